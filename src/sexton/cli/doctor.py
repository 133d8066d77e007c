"""``sexton doctor``: one look at this host, said on standard output, with the verdict as the exit code.

It needs no daemon, no cluster and no rights beyond reading; what it may not read it names. Following a finding from
here: ``care/look.py``, one of ``care/probes/``, ``core/finding.py``, ``care/report.py``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import typer

# Where the figures of the last look are kept, below care/.
STATE_DIR = Path("/var/lib/sexton")


def doctor_command(
    json_: bool = typer.Option(
        False, "--json", help="One JSON object instead of text; the schema is in docs/doctor.md."
    ),
    npd: bool = typer.Option(
        False, "--npd", help="One short line, as a custom plugin of node-problem-detector says it."
    ),
    probe: list[str] = typer.Option([], help="Look with this probe only; can be given more than once."),
    state_dir: Path = typer.Option(STATE_DIR, help="Where the figures of the last look are kept, to tell growth."),
    docker_host: str = typer.Option(
        "",
        envvar="DOCKER_HOST",
        show_default=False,
        help="The container engine, such as unix:///run/docker.sock. Default: Docker's socket below the root.",
    ),
    root: Path = typer.Option(
        Path("/"), help="The host's root directory, when it is mounted elsewhere (in a container: /host)."
    ),
) -> None:
    """Say whether this host is fit: zombie memory cgroups, crash-looping units and containers.

    Exit code 0: healthy. 1: findings. 2: nothing found, but something could not be looked at.
    """
    from sexton.care.look import PROBES, look_around
    from sexton.care.report import as_json, as_line, as_text, exit_code

    if not root.is_dir():
        typer.echo(f"cannot look at {root}: no such directory. Give --root the host's root directory.", err=True)
        raise typer.Exit(2)
    root = Path(os.path.abspath(root))  # not resolved: /proc/<pid>/root is a link that must stay one
    known = {one.name: one for one in PROBES}
    if unknown := [name for name in probe if name not in known]:
        raise typer.BadParameter(f"no probe {', '.join(unknown)}; there are {', '.join(known)}", param_hint="--probe")
    chosen = tuple(known[name] for name in dict.fromkeys(probe)) or PROBES
    seen = asyncio.run(look_around(root, docker_host or default_docker_host(root), state_dir, chosen))
    if npd:
        sys.stdout.write(as_line(seen) + "\n")
    elif json_:
        sys.stdout.write(as_json(seen).decode() + "\n")
    else:
        sys.stdout.write(as_text(seen, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    raise typer.Exit(int(exit_code(seen)))


def default_docker_host(root: Path) -> str:
    """Docker's socket below the root; ``/var/run`` is a link on today's systems and a directory on others."""
    for relative in ("run/docker.sock", "var/run/docker.sock"):
        if (root / relative).exists():
            return f"unix://{root / relative}"
    return f"unix://{root / 'run/docker.sock'}"
