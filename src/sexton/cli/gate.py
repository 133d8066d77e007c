"""``sexton gate``: the last step of an image pipeline, on the build host it has just booted.

Following it from here: ``care/gate.py``, ``core/gate.py``, ``care/gate_report.py``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import typer

from sexton.cli.audit import visible
from sexton.cli.doctor import default_docker_host


def gate_command(
    max_memcgs: int = typer.Option(1000, help="Most memory cgroups the kernel may track at the end."),
    max_growth: float = typer.Option(300.0, help="Most zombies an hour by which they may grow while it settles."),
    settle: float = typer.Option(120.0, help="How long to watch the host, in seconds."),
    lock: Path | None = typer.Option(None, metavar="FILE", help="Fail on any drift from this lock."),
    shape: str | None = typer.Option(None, metavar="NAME|FILE", help="Shape of this host. Default: the lock's own."),
    junit: Path | None = typer.Option(None, metavar="FILE", help="Write JUnit XML there."),
    sarif: Path | None = typer.Option(None, metavar="FILE", help="Write SARIF 2.1.0 there."),
    docker_host: str = typer.Option(
        "", envvar="DOCKER_HOST", show_default=False, help="The container engine. Default: Docker's socket."
    ),
    root: Path = typer.Option(Path("/"), help="The host's root directory, when it is mounted elsewhere."),
) -> None:
    """Pass or fail the image this freshly booted host was made from: cgroup count, growth, loops, drift from its lock.

    Exit code 0: passed. 1: failed. 2: something could not be checked, so it is no pass.
    """
    from sexton.care.gate import run_gate
    from sexton.care.gate_report import as_junit, as_sarif, as_text
    from sexton.core.gate import Limits
    from sexton.kit.atomicfile import write_atomic

    if settle <= 0:
        raise typer.BadParameter("say more than 0 seconds", param_hint="--settle")
    if not root.is_dir():
        typer.echo(f"cannot look at {root}: no such directory. Give --root the host's root directory.", err=True)
        raise typer.Exit(2)
    top = Path(os.path.abspath(root))  # not resolved: /proc/<pid>/root is a link that must stay one
    limits = Limits(memcgs=max_memcgs, growth_per_hour=max_growth)
    engine = docker_host or default_docker_host(top)
    seen = asyncio.run(run_gate(top, engine, limits, settle, lock=lock, shape=shape))
    sys.stdout.write(as_text(seen, visible))
    for path, make in ((junit, as_junit), (sarif, as_sarif)):
        if path is not None:
            try:
                write_atomic(path, make(seen))
            except OSError as error:
                typer.echo(f"cannot write {path}: {error.strerror}", err=True)
                raise typer.Exit(2) from None
    raise typer.Exit(seen.exit_code)
