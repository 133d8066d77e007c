"""``sexton zombies``: whose zombies they are, what pins them, and their purge.

Without ``--purge`` it only reads. With it, it says what it would touch; with ``--yes`` it does that, step by step, and
says after each what it proved. Following it from here: ``care/graves.py``, ``core/maker.py``; ``care/purging.py``,
``core/purge.py``.
"""

from __future__ import annotations

import sys

import typer


def zombies_command(
    by: str = typer.Option("maker", metavar="maker|path|file", help="What to list them by."),
    within: str = typer.Option("/", "--under", help="Only those below this cgroup, such as /system.slice or /docker."),
    limit: int = typer.Option(40, min=0, help="Lines of the list; 0 for all."),
    purge: bool = typer.Option(False, "--purge", help="Say what would free them; with --yes, do it."),
    dry_run: bool = typer.Option(True, "--dry-run/--yes", help="With --purge: only say it, or do it."),
    allow_drop_caches: bool = typer.Option(
        False,
        "--allow-drop-caches",
        help="With --purge: means that cost live workloads their page cache may be used, the whole host's at last.",
    ),
    budget: float = typer.Option(0.5, help="Longest stay of one step in the kernel, in seconds."),
    json_: bool = typer.Option(False, "--json", help="One JSON object instead of text; see docs/zombies.md."),
) -> None:
    """Name zombie memory cgroups, their makers and what pins them; free them without a reboot.

    Exit code 0: too few to matter. 1: enough for a finding (after a purge: still). 2: no finding, but something could
    not be seen.
    """
    from sexton.care import grave_report as report
    from sexton.care.graves import survey
    from sexton.care.purging import Purge
    from sexton.core.purge import Allowed
    from sexton.host.errors import HostFault
    from sexton.host.file_users import file_users
    from sexton.host.pinned_files import read_mounts

    if by not in set(report.By):
        raise typer.BadParameter(f"say maker, path or file, not '{by}'", param_hint="--by")
    if not dry_run and not purge:
        raise typer.BadParameter("it belongs to --purge", param_hint="--yes")
    if budget <= 0:
        raise typer.BadParameter("say more than 0 seconds", param_hint="--budget")
    order = report.By(by)
    within = "/" + within.strip("/")
    many = limit if limit > 0 else sys.maxsize
    mounts = read_mounts()
    attempts = []
    plan = users = None
    try:
        if purge:
            work = Purge(allowed=Allowed(caches=allow_drop_caches, budget=budget), within=within)
            seen, plan = work.seen, work.plan()
            users = file_users(report.files_to_look_up(plan.left).values())
        else:
            seen = survey(pins=order is report.By.FILE, within=within)
        if not json_:
            _say(report.as_text(seen, report.rows(seen, order, mounts), order, many, _visible))
        if purge and plan is not None and not json_:
            _say("\n" + report.plan_text(plan, mounts, users, dry=dry_run))
        if purge and not dry_run:
            for attempt in work.run():
                attempts.append(attempt)
                if not json_:
                    _say(f"  {attempt.step.key}: {report.attempt_says(attempt)}\n")
            seen, plan = work.seen, work.plan()
            users = file_users(report.files_to_look_up(plan.left).values())
            if not json_:
                _say("\nafterwards " + report.as_text(seen, (), order, many, _visible))
                _say(report.plan_text(plan, mounts, users, dry=False))
    except HostFault as fault:
        typer.echo(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip(), err=True)
        raise typer.Exit(2) from None
    code = _exit_code(seen.finding is not None, bool(seen.cannot_see) and seen.count.zombies > 0)
    if json_:
        table = report.rows(seen, order, mounts)[:many]
        _say(report.as_json(seen, table, order, plan, tuple(attempts), mounts, users, code).decode() + "\n")
    raise typer.Exit(code)


def _exit_code(finding: bool, blind: bool) -> int:
    """As ``sexton doctor``'s."""
    if finding:
        return 1
    return 2 if blind else 0


def _visible(text: str) -> str:
    """Names come from the host: none of them may drive the reader's terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
