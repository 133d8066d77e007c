"""``sexton drift``: why two hosts, or two builds of one image, end differently: the unit, and the gate that decides.

Following it from here: ``care/audit/lockfile.py`` makes or reads both locks, ``core/lock.py`` compares them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from sexton.cli.audit import visible
from sexton.cli.doctor import default_docker_host

if TYPE_CHECKING:
    from sexton.core.lock import Difference, Lock


def drift_command(
    first: str = typer.Argument(..., metavar="A", help="A lock, a root directory, a tar, an image, or 'live'."),
    second: str = typer.Argument(..., metavar="B", help="The same; what is said is said of B against A."),
    shape: str = typer.Option("plain", metavar="ecs|kubernetes|ray|plain|FILE", help="What roots and hosts are to be."),
    docker_host: str = typer.Option(
        "", envvar="DOCKER_HOST", show_default=False, help="The engine images are taken from. Default: Docker's socket."
    ),
    json_: bool = typer.Option(False, "--json", help="One JSON object instead of text; see docs/drift.md."),
) -> None:
    """Compare two locks, root file systems or hosts, and name the unit and the gate that make them differ.

    Exit code 0: they agree. 1: they differ. 2: they could not be compared.
    """
    from sexton.care.audit.lockfile import BadLock
    from sexton.care.audit.rulebook import BadRules
    from sexton.core.lock import drift
    from sexton.host.errors import HostFault

    engine = docker_host or default_docker_host(Path("/"))
    try:
        was, now = _lock_of(first, shape, engine), _lock_of(second, shape, engine)
        # A running host compares with an image as the image it was made from.
        if was.live != now.live:
            was, now = _lock_of(first, shape, engine, image=True), _lock_of(second, shape, engine, image=True)
    except (BadLock, BadRules) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except HostFault as fault:
        typer.echo(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip(), err=True)
        raise typer.Exit(2) from None
    found = drift(was, now)
    if json_:
        said = {
            "schema": 1,
            "exit_code": 1 if found else 0,
            "first": first,
            "second": second,
            "shapes": [was.shape, now.shape],
            "differences": found,
        }
        sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    else:
        sys.stdout.write(drift_text(found, first, second, was, now))
    raise typer.Exit(1 if found else 0)


def drift_text(found: tuple[Difference, ...], first: str, second: str, was: Lock, now: Lock) -> str:
    """For a person; ends with a newline."""
    others = sum(1 for one in found if one.outcome)
    lines = [f"{len(found)} units differ from {first} to {second}, {others} of them in what becomes of them"]
    if not found:
        lines = [f"{first} and {second} agree on all {len(was.units)} units"]
    if was.live != now.live:
        lines.append("one lock is of a running host, the other is not: units and gates that a boot makes differ")
    if was.shape != now.shape:
        lines.append(f"their shapes differ: {was.shape} and {now.shape}; verdicts are not comparable")
    if was.default_target != now.default_target:
        lines.append(f"they boot to different goals: {was.default_target} and {now.default_target}")
    for one in found:
        lines += ["", f"{'OUTCOME' if one.outcome else 'changed':<8} {visible(one.unit)}"]
        lines += [f"  {'first':<9}{one.was}", f"  {'second':<9}{one.now}"]
        lines += [f"  {'because' if at == 0 else '':<9}{visible(why)}" for at, why in enumerate(one.why)]
        if one.warning:
            lines.append(f"  {'careful':<9}{visible(one.warning)}")
    return "\n".join(lines) + "\n"


def _lock_of(source: str, shape: str, engine: str, *, image: bool = False) -> Lock:
    from sexton.care.audit.auditing import audit
    from sexton.care.audit.lockfile import is_lock, make_lock, read_lock
    from sexton.care.audit.rulebook import open_rulebook
    from sexton.care.audit.sources import live_states, open_source
    from sexton.host.rootfs import Directory

    path = Path(source)
    if path.is_file() and is_lock(path):
        return read_lock(path)
    tree = Directory(Path("/")) if source == "live" else open_source(source, engine)
    # A root directory may be a running host's, such as /proc/PID/root: then its service manager is asked as well.
    states = live_states(Path(tree.top)) if isinstance(tree, Directory) and not image else {}
    return make_lock(audit(tree, open_rulebook(shape), live=bool(states), runtime=not image), states)
