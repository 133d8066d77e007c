"""``sexton advise``: which definitions ask for too much or too little of this host, and what to set instead.

The agent on this host tells what it has measured; what follows from it is decided here, by ``core.advice``. Text for
people, ``--json`` for programs, with the same figures.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
import typer

from sexton.cli.connection import fail, local
from sexton.core import advice, values
from sexton.core.advice import Judgement, Verdict
from sexton.core.sizewindow import Measured
from sexton.core.values import BadValue

_ORDER = {Verdict.UNDER: 0, Verdict.OVER: 1, Verdict.FITS: 2, Verdict.UNKNOWN: 3}


class _Sizes(msgspec.Struct, frozen=True):
    """What the agent answers. Not ``followed``: it makes no readings."""

    followed: bool
    sizes: tuple[Measured, ...]


def advise_command(
    family: str = typer.Argument("", help="One family, or family:revision; without, all of them."),
    everything: bool = typer.Option(False, "--all", "-a", help="Older revisions too, not only the newest one seen."),
    enough: str = typer.Option("1h", help="Use that it takes before something is said to fit or to be too large."),
    json_: bool = typer.Option(False, "--json", help="One JSON object; the fields are in docs/sizing.md."),
) -> None:
    """Compare what task definitions ask for with what their tasks used on this host, over up to two weeks."""
    try:
        seconds = values.duration(enough)
    except BadValue as error:
        raise typer.BadParameter(str(error), param_hint="--enough") from None
    answer = asyncio.run(_ask())
    chosen = _chosen(answer.sizes, family, everything=everything)
    host = next((one for one in answer.sizes if not one.family), None)
    if family and not chosen:
        known = ", ".join(sorted({one.family for one in answer.sizes if one.family}))
        raise fail(f"nothing of '{family}' was measured on this host" + (f"; there is {known}" if known else ""))
    judged = advice.judge(chosen, seconds)
    if json_:
        typer.echo(msgspec.json.encode({"followed": answer.followed, "host": host, "judgements": judged}).decode())
        return
    if not answer.followed:
        typer.echo("this agent makes no readings: ECS_DISABLE_METRICS is set; older ones are shown", err=True)
    if host is not None:
        typer.echo(_host(host))
    if not judged:
        typer.echo(_nothing(chosen))
        return
    young = []
    for subject in dict.fromkeys((one.family, one.revision) for one in judged):
        its = [one for one in judged if (one.family, one.revision) == subject]
        if all(one.verdict is Verdict.UNKNOWN for one in its):
            young.append(f"{':'.join(subject)} ({its[0].why})")
        else:
            _show(subject, its, chosen)
    if young:
        typer.echo(f"\nnot enough data yet of {', '.join(young)}")
    typer.echo(_summary(judged))


async def _ask() -> _Sizes:
    async with local("/sizes", {}) as answer:
        try:
            return msgspec.json.decode(await answer.read(), type=_Sizes)
        except msgspec.MsgspecError:
            raise fail("cannot understand the agent's answer; it is of another version, restart it") from None


def _chosen(sizes: tuple[Measured, ...], family: str, *, everything: bool) -> list[Measured]:
    name, _, revision = family.partition(":")
    found = [one for one in sizes if one.family and name in ("", one.family) and revision in ("", one.revision)]
    if everything or revision:
        return found
    newest: dict[str, Measured] = {}
    for one in found:
        if one.family not in newest or one.last > newest[one.family].last:
            newest[one.family] = one
    return [one for one in found if one.revision == newest[one.family].revision]


def _nothing(chosen: list[Measured]) -> str:
    if chosen:
        return "nothing to judge: no definition that ran here says how much it needs; set cpu and memory"
    return "nothing measured yet: a task is measured from its second reading on, 20 s after its start"


def _show(subject: tuple[str, str], judged: list[Judgement], chosen: list[Measured]) -> None:
    family, revision = subject
    parts = [one for one in chosen if (one.family, one.revision) == subject]
    first, last = min(one.first for one in parts), max(one.last for one in parts)
    used = max(one.seconds for one in parts)
    typer.echo(f"\n{family}:{revision}   {_span(used)} of use, {_ago(first)} to {_ago(last)}")
    if any(one.varied for one in parts):
        typer.echo("  (started with differing figures, such as overrides; judged by the newest)")
    for one in sorted(judged, key=lambda one: _ORDER[one.verdict]):
        if one.verdict is Verdict.UNKNOWN:
            continue
        typer.echo(_line(one))
        if one.why:
            typer.echo(f"      {one.why}")
        if one.used is not None and one.samples:
            typer.echo(f"      {_evidence(one)}")
    unknown = [one for one in judged if one.verdict is Verdict.UNKNOWN]
    for why in dict.fromkeys(one.why for one in unknown):
        names = ", ".join(_name(one) for one in unknown if one.why == why)
        typer.echo(f"  not enough data yet ({why}): {names}")


def _name(one: Judgement) -> str:
    return f"{one.container or 'task'} {one.setting}"


def _line(one: Judgement) -> str:
    asked = f"{one.now} {one.unit}" if one.now else "none"
    advised = f", set {one.set_to}" if one.set_to is not None and one.set_to != one.now else ""
    return f"  {_name(one):<28} {asked:>12}  {one.verdict}{advised}"


def _evidence(one: Judgement) -> str:
    assert one.used is not None
    used = one.used
    return f"used: half the time {used.p50:g}, 95 % {used.p95:g}, at most {used.max:g} {one.unit}"


def _host(one: Measured) -> str:
    text = f"host: offers {one.reserved.cpu} units and {one.reserved.memory} MiB; {_span(one.seconds)} watched"
    if one.cpu is not None and one.memory is not None:
        for what, used, unit in (("CPU", one.cpu, "units"), ("memory", one.memory, "MiB")):
            text += f"\n  {what} used by everything: half the time {used.p50:g}, 95 % {used.p95:g}"
            text += f", at most {used.max:g} {unit}"
    if one.steal_seconds >= 1:
        text += f"\n  stolen by its hypervisor: {_span(one.steal_seconds)} of processor time"
    return text


def _summary(judged: list[Judgement]) -> str:
    counts = {verdict: sum(one.verdict is verdict for one in judged) for verdict in _ORDER}
    text = "\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    spare = {"MiB": 0, "units": 0}
    for one in judged:
        if one.verdict is Verdict.OVER and one.set_to is not None:
            spare[one.unit] += one.now - one.set_to
    freed = [f"{amount} {unit}" for unit, amount in spare.items() if amount]
    return text + (f"; advice would free {' and '.join(freed)} for each task" if freed else "")


def _span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def _ago(moment: float) -> str:
    age = time.time() - moment
    return "now" if age < 60 else f"{_span(age)} ago"
