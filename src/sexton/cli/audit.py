"""``sexton audit``: which units of an image can loop for ever and cannot work there, and what to do about each.

Following it from here: ``care/audit/auditing.py``, ``core/audit.py``; for ``--apply`` ``care/audit/applying.py``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sexton.cli.doctor import default_docker_host

if TYPE_CHECKING:
    from sexton.host.rootfs import Tree


def audit_command(
    source: str = typer.Argument(
        "", metavar="ROOTFS|TAR|IMAGE", help="A root directory, a tar, a saved image, or the name of an engine's image."
    ),
    live: bool = typer.Option(False, "--live", help="This running host."),
    shape: str = typer.Option(..., metavar="ecs|kubernetes|ray|plain|FILE", help="What kind of host it is to be."),
    rules: list[Path] = typer.Option([], help="A file of further rules; may be repeated."),
    every: bool = typer.Option(False, "--all", help="Show units that are in order, too."),
    apply: bool = typer.Option(False, "--apply", help="Say what to change in the root file system; with --yes, do it."),
    undo: bool = typer.Option(False, "--undo", help="Take back what --apply did to this root file system."),
    dry_run: bool = typer.Option(True, "--dry-run/--yes", help="With --apply or --undo: only say it, or do it."),
    lock: Path | None = typer.Option(None, metavar="FILE", help="Write the lock of this host there, for sexton drift."),
    docker_host: str = typer.Option(
        "",
        envvar="DOCKER_HOST",
        show_default=False,
        help="Engine an image is taken from. Default: Docker's socket.",
    ),
    json_: bool = typer.Option(False, "--json", help="One JSON object instead of text; see docs/audit.md."),
) -> None:
    """Audit the units an image or host starts: keep, disable, mask or fix, with reasons.

    Exit code 0: nothing to change. 1: something is. 2: it could not be audited.
    """
    from sexton.care.audit import applying, report
    from sexton.care.audit.auditing import audit
    from sexton.care.audit.lockfile import make_lock, write_lock
    from sexton.care.audit.rulebook import BadRules, open_rulebook
    from sexton.care.audit.sources import live_states, open_source
    from sexton.host.errors import HostFault
    from sexton.host.rootfs import Directory

    if bool(source) == live:
        raise typer.BadParameter("name one root file system, tar or image, or say --live", param_hint="SOURCE")
    if not dry_run and not (apply or undo):
        raise typer.BadParameter("it belongs to --apply or --undo", param_hint="--yes")
    changes = None
    try:
        book = open_rulebook(shape, tuple(rules))
        tree: Tree = open_source("/" if live else source, docker_host or default_docker_host(Path("/")))
        if (apply or undo) and not isinstance(tree, Directory):
            raise typer.BadParameter(
                "an archive is not changed in place: unpack it, or apply in the build", param_hint="--apply"
            )
        if undo and isinstance(tree, Directory):
            taken = applying.read_record(tree).changes
            if not dry_run:
                applying.undo(tree)
            verb = "would take back" if dry_run else "took back"
            _say(f"{verb} {len(taken)} changes\n" + "".join(f"  {visible(one.says)}\n" for one in reversed(taken)))
            raise typer.Exit(0)
        seen = audit(tree, book, live=live)
        if apply and isinstance(tree, Directory):
            changes = applying.plan(seen, tree)
            if not dry_run:
                applying.carry_out(changes, tree)
        if lock is not None:
            write_lock(make_lock(seen, live_states(Path("/")) if live else {}), lock)
    except (BadRules, applying.CannotApply) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except HostFault as fault:
        typer.echo(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip(), err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"cannot write {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    code = report.exit_code(seen)
    if json_:
        _say(report.as_json(seen, changes, applied=not dry_run, code=code).decode() + "\n")
    else:
        _say(report.as_text(seen, every=every, clean=visible))
        if changes is not None:
            _say("\n" + report.changes_text(changes, dry=dry_run, clean=visible))
        if lock is not None:
            _say(f"wrote the lock {os.fspath(lock)}\n")
    raise typer.Exit(code)


def visible(text: str) -> str:
    """Names come from the image: none of them may drive the reader's terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
