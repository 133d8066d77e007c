"""``sexton net``: interfaces of tasks, their groups and what these have let pass; and why a packet passes or does not.

On a host the agent is asked, which knows what is in force there and what was counted. What it cannot know, tasks and
groups of other hosts, is asked of the control plane, with the same keys as everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import typer

from sexton.cli.connection import ask_agent, fail
from sexton.cli.own import ask
from sexton.core import grouprules, netreport
from sexton.core.judgement import EGRESS, INGRESS
from sexton.core.names import last_part
from sexton.core.netcounters import SPOOFED, dropped
from sexton.core.netreport import NotUnderstood
from sexton.wire.network import Group, Interface, Rule
from sexton.wire.ownnetwork import Count, HostNetworks

_USAGE = "sexton net [TASK], or: sexton net why A B:PORT[/udp]"


def net_command(
    words: list[str] = typer.Argument(
        None, metavar="[TASK | why A B:PORT]", help="A task, an interface or an address; or a pair to judge."
    ),
    anywhere: bool = typer.Option(False, "--all", "-a", help="Of all hosts, as the control plane knows them."),
    json_: bool = typer.Option(False, "--json", help="The same as one JSON object."),
) -> None:
    """Show tasks' networks: interfaces, groups, rules and counters; or say which rule lets a packet pass.

    Ends of a pair are addresses, tasks or interfaces. B:PORT is TCP, B:PORT/udp is UDP, B:icmp is a ping.
    """
    match words or []:
        case []:
            _show(_networks(anywhere=anywhere), "", json_=json_)
        case ["why", source, aim]:
            _why(source, aim, json_=json_)
        case [wanted] if wanted != "why":
            here = None if anywhere else _of_host()
            found = here if here is not None and netreport.matching(here.state, wanted) else _of_plane()
            _show(found, wanted, json_=json_)
        case _:
            raise fail(f"cannot tell what is asked; write {_USAGE}")


def _networks(*, anywhere: bool) -> HostNetworks:
    here = None if anywhere else _of_host()
    return here if here is not None else _of_plane()


def _of_host() -> HostNetworks | None:
    """What the agent on this host says; nothing where there is none."""
    answer = asyncio.run(ask_agent("/net", {}))
    return msgspec.json.decode(answer, type=HostNetworks) if answer is not None else None


def _of_plane() -> HostNetworks:
    return ask("GET", "/sexton/network", HostNetworks)


def _why(source: str, aim: str, *, json_: bool) -> None:
    """Ask the host first, and the control plane where the host does not know enough."""
    try:
        wanted = netreport.target(aim)
        found = _answer(_of_host(), source, wanted)
        if found is None or found.passes is None:
            try:
                found = netreport.why(_of_plane().state, source, wanted)
            except typer.Exit:
                if found is None:
                    raise
    except NotUnderstood as error:
        raise fail(str(error)) from None
    if json_:
        typer.echo(msgspec.json.encode(found).decode())
        return
    typer.echo(found.headline)
    for sentence in found.sentences:
        typer.echo(f"  {sentence}")


def _answer(here: HostNetworks | None, source: str, wanted: netreport.Target) -> netreport.Why | None:
    """The host's own answer, if it knows whom is meant."""
    if here is None:
        return None
    try:
        return netreport.why(here.state, source, wanted)
    except NotUnderstood:
        return None


def _show(found: HostNetworks, wanted: str, *, json_: bool) -> None:
    state = found.state
    chosen = netreport.matching(state, wanted) if wanted else _own(found)
    if wanted and not chosen:
        raise fail(
            f"cannot find '{wanted}': it is no task with a network of its own, no interface and no address of one"
        )
    if json_:
        typer.echo(msgspec.json.encode(_only(found, chosen) if wanted else found).decode())
        return
    if found.trouble:
        typer.echo(f"not in force: {found.trouble}")
    if not chosen:
        where = "on this host" if found.on_host else "of the control plane"
        typer.echo(f"no task {where} has a network of its own")
        return
    for one in chosen:
        _interface(found, one)
    groups = {each for one in chosen for each in one.groups}
    for group in sorted((one for one in state.groups if one.id in groups), key=lambda one: one.id):
        _group(found, group)


def _own(found: HostNetworks) -> Sequence[Interface]:
    """A host speaks of its own, the control plane of all."""
    return [one for one in found.state.interfaces if not (found.on_host and one.host)]


def _only(found: HostNetworks, chosen: Sequence[Interface]) -> HostNetworks:
    """What concerns these interfaces alone."""
    state = found.state
    subnets, groups = {one.subnet for one in chosen}, {each for one in chosen for each in one.groups}
    kept = tuple(one for one in state.groups if one.id in groups)
    rules = {rule.id for one in kept for rule in (*one.ingress, *one.egress)}
    ids = tuple(one.id for one in chosen)
    return msgspec.structs.replace(
        found,
        state=msgspec.structs.replace(
            state,
            subnets=tuple(one for one in state.subnets if one.id in subnets),
            groups=kept,
            interfaces=tuple(chosen),
        ),
        devices={one: found.devices[one] for one in ids if one in found.devices},
        counts={name: count for name, count in found.counts.items() if name in rules or name.startswith(ids)},
    )


def _interface(found: HostNetworks, one: Interface) -> None:
    addresses = " ".join(grouprules.addresses(one))
    task = last_part(one.task_arn)
    typer.echo(f"task {task}" if task else f"interface {one.id}")
    typer.echo(f"  {one.id}  {addresses}  {one.mac}  {one.subnet}")
    device = found.devices.get(one.id)
    if device:
        typer.echo(f"  device {device}")
    if one.host:
        typer.echo(f"  on the host {one.host}")
    typer.echo(f"  groups {' '.join(one.groups) or 'none: nothing passes'}")
    if found.on_host and not one.host:
        words = ((INGRESS, "in"), (EGRESS, "out"), (SPOOFED, "with addresses that are not its own"))
        refused = [
            f"{count.packets} {said}" for word, said in words if (count := found.counts.get(dropped(one.id, word)))
        ]
        typer.echo(f"  dropped: {', '.join(refused) or 'nothing'}")


def _group(found: HostNetworks, group: Group) -> None:
    typer.echo(f"group {group.id}" + (f" ({group.name})" if group.name else ""))
    for way, rules in (("in", group.ingress), ("out", group.egress)):
        for rule in rules:
            typer.echo(f"  {way:<3} {rule.id}  {netreport.rule_text(rule, way == 'out')}{_counted(found, rule)}")
        if not rules:
            typer.echo(f"  {way:<3} nothing")


def _counted(found: HostNetworks, rule: Rule) -> str:
    """Nothing is said where nobody counted."""
    if not found.on_host:
        return ""
    count = found.counts.get(rule.id, Count())
    return f"  ({count.packets} packets, {count.bytes} bytes)"
