"""``sexton findings``, ``sexton explain``, ``sexton fix``: what the caretaker found, what is known, what can be done.

Rendering only; what is shown comes from ``care/desk.py``, by the daemon's socket or from the ledger itself.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from sexton.core.action import Outcome
from sexton.core.finding import span
from sexton.core.ledger import Sight, State
from sexton.core.values import BadValue

if TYPE_CHECKING:
    from sexton.care.acting import Proposal
    from sexton.care.desk import Findings, FixLine, Row
    from sexton.cli.care_desk import CareDesk
    from sexton.core.incident import Incident

EXIT_NOT_FIXED = 1
EXIT_NO_WAY = 2

findings_app = typer.Typer(
    help="What the caretaker found: open findings, and with --all the closed ones.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_DATA_DIR = typer.Option(None, "--data-dir", envvar="ECS_DATADIR", help="The caretaker's data directory.")


@findings_app.callback()
def findings_command(
    context: typer.Context,
    all_: bool = typer.Option(False, "--all", help="Closed findings, too, as long as they are kept."),
    json_: bool = typer.Option(False, "--json", help="One JSON object; see docs/findings.md."),
    data_dir: Path | None = _DATA_DIR,
) -> None:
    """List findings.

    Exit code 0: nothing is open, and everything could be seen. 1: something is. 2: nothing is open on record, but
    something cannot be seen, or no caretaker runs.
    """
    if context.invoked_subcommand is not None:
        return
    from sexton.cli.care_desk import ask

    seen = ask(lambda desk: desk.findings(all_=all_), data_dir)
    if json_:
        _say(msgspec.json.encode(seen).decode() + "\n")
    else:
        _say(_listed(seen))
    raise typer.Exit(seen.exit_code)


@findings_app.command("mute")
def mute_command(
    fingerprint: str = typer.Argument(help="Of the finding, or its beginning."),
    for_: str = typer.Option("", "--for", metavar="SPAN", help="For how long, such as 12h or 7d; else for ever."),
    reason: str = typer.Option("", help="Why; it is kept with the finding."),
    data_dir: Path | None = _DATA_DIR,
) -> None:
    """Silence a finding: it is kept and listed, but nobody is told and nothing is done about it."""
    from sexton.care.policy import read_span
    from sexton.cli.care_desk import ask, who

    seconds = None
    if for_:
        try:
            seconds = read_span(for_)
        except BadValue as error:
            raise typer.BadParameter(str(error), param_hint="--for") from None
        if seconds <= 0:
            raise typer.BadParameter("say more than 0 seconds", param_hint="--for")
    row = ask(lambda desk: desk.mute(fingerprint, seconds, who(), reason), data_dir)
    _say(f"{row.fingerprint} is muted {'until it is unmuted' if seconds is None else f'for {span(seconds)}'}\n")


@findings_app.command("unmute")
def unmute_command(
    fingerprint: str = typer.Argument(help="Of the finding, or its beginning."), data_dir: Path | None = _DATA_DIR
) -> None:
    """End a finding's silence."""
    from sexton.cli.care_desk import ask, who

    row = ask(lambda desk: desk.unmute(fingerprint, who()), data_dir)
    _say(f"{row.fingerprint} is not muted any more: it is {row.state}\n")


def explain_command(
    fingerprint: str = typer.Argument(help="Of the finding, or its beginning; 'sexton findings' lists them."),
    json_: bool = typer.Option(False, "--json", help="One JSON object; see docs/findings.md."),
    data_dir: Path | None = _DATA_DIR,
) -> None:
    """Tell one finding as an incident: what happened, in order, with its evidence, and what is unknown."""
    from sexton.cli.care_desk import ask

    told = ask(lambda desk: desk.incident(fingerprint), data_dir)
    _say(msgspec.json.encode(told).decode() + "\n" if json_ else _incident(told))


def fix_command(
    fingerprint: str = typer.Argument(help="Of the finding, or its beginning; 'sexton findings' lists them."),
    dry_run: bool = typer.Option(True, "--dry-run/--yes", help="Only say what would be done, or do it."),
    remedy: str = typer.Option("", help="Which remedy, where several answer the finding."),
    reason: str = typer.Option("", help="Why; it is kept with the action."),
    json_: bool = typer.Option(False, "--json", help="JSON: one object, or with --yes one for each step."),
    data_dir: Path | None = _DATA_DIR,
) -> None:
    """Do something about a finding: says before what it will touch, and afterwards proves what it changed.

    Exit code 0: it would, or it did, and it helped. 1: it did not help, or not all of it could be done. 2: nothing can
    be done from here.
    """
    from sexton.cli.care_desk import ask, who

    proposals = ask(lambda desk: desk.proposals(fingerprint), data_dir)
    chosen = [one for one in proposals.proposals if remedy in ("", one.remedy)]
    ready = next((one for one in chosen if one.plan is not None and one.refused is None), None)
    if json_ and dry_run:
        _say(msgspec.json.encode(proposals).decode() + "\n")
    elif not json_:
        _say(_clean(f"{proposals.fingerprint}: {proposals.title}") + "\n")
        if not chosen:
            _say("no remedy answers it\n" if not remedy else f"no remedy {remedy} answers it\n")
        for one in chosen:
            _say(_proposed(one, chosen=one is ready and not dry_run))
    if ready is None:
        raise typer.Exit(EXIT_NO_WAY)
    if dry_run:
        if not json_:
            _say("this was a dry run: --yes does it\n")
        return
    last: FixLine | None = None

    async def work(desk: CareDesk) -> None:
        nonlocal last
        async for line in desk.fix(proposals.fingerprint, ready.remedy, who(), reason or "asked for by hand"):
            last = line
            _say(msgspec.json.encode(line).decode() + "\n" if json_ else _worked(line))

    ask(work, data_dir)
    raise typer.Exit(0 if last is not None and last.outcome is Outcome.DONE else EXIT_NOT_FIXED)


def _listed(seen: Findings) -> str:
    lines = []
    if not seen.daemon:
        lines.append("no caretaker runs: this is what the last one knew\n")
    for row in seen.findings:
        lines += _row(row, seen.at)
    if not seen.findings:
        looked = ", ".join(eye.probe for eye in seen.eyes if eye.sight is Sight.LOOKED) or "nothing"
        lines.append(f"no open findings; looked at: {looked}\n")
    if any(row.resolved is None for row in seen.findings):
        lines.append("sexton explain FINDING tells one in full, sexton fix FINDING what can be done about it\n")
    for eye in seen.eyes:
        if eye.sight is Sight.BLIND:
            blind = span(max(0.0, seen.at - eye.since))
            lines.append(_clean(f"could not see {eye.probe} for {blind}: {eye.says}. {eye.next_step}".rstrip()) + "\n")
    if seen.resolved and not any(row.state is State.RESOLVED for row in seen.findings):
        lines.append(f"{seen.resolved} closed (--all lists them)\n")
    return "".join(lines)


def _row(row: Row, now: float) -> list[str]:
    since = span(max(0.0, now - row.opened))
    when = f"open for {since}" if row.resolved is None else f"closed {span(max(0.0, now - row.resolved))} ago"
    more = [
        f"{row.times} times" if row.times > 1 else "",
        "comes and goes" if row.flapping else "",
        f"out of sight for {span(max(0.0, now - row.out_of_sight_since))}" if row.out_of_sight_since else "",
    ]
    if row.mute is not None:
        until = "" if row.mute.until is None else f" for another {span(max(0.0, row.mute.until - now))}"
        more.append(f"muted{until} by {row.mute.who}{f': {row.mute.reason}' if row.mute.reason else ''}")
    notes = "; ".join([when, *(one for one in more if one)])
    return [
        _clean(f"{row.severity.upper():<8}  {row.state:<10}  {row.fingerprint}") + "\n",
        _clean(f"          {row.title}") + "\n",
        _clean(f"          by {row.culprit}; {notes}") + "\n",
    ]


def _incident(told: Incident) -> str:
    record = told.record
    lines = [
        f"{record.finding.severity.upper()}  {record.finding.title}",
        f"finding {record.fingerprint}, {told.state}",
    ]
    lines.append("")
    for link in told.links:
        lines.append(f"{link.question + ':':<30}{'' if link.known else '? '}{link.answer}")
        lines += [f"{'':<30}- {item.what}: {item.value}  [{item.source}]" for item in link.evidence]
    lines += ["", "what happened, in order:"]
    lines += [f"  {_moment(entry.at)}  {entry.kind.value}: {entry.says}" for entry in told.history]
    if told.unknown:
        lines += ["", "what is unknown:"]
        lines += [f"  - {one}" for one in told.unknown]
    if record.open:
        lines += ["", f"next: {record.finding.next_step}"]
        lines += [f"what the caretaker can do about it: sexton fix {record.fingerprint}"]
    return "\n".join(_clean(line) for line in lines) + "\n"


def _proposed(one: Proposal, *, chosen: bool) -> str:
    if one.plan is None:
        assert one.cannot is not None  # either a plan or the reason why there is none
        return _clean(f"{one.remedy}: cannot: {one.cannot.reason}. {one.cannot.next_step}".rstrip(" .")) + "\n"
    if one.refused is not None:
        return _clean(f"{one.remedy}: not allowed: {one.refused}") + "\n"
    plan = one.plan
    lines = [f"{one.remedy} {'does' if chosen else 'would'}: {plan.says} (within {plan.seconds:g} s)"]
    lines += [f"  {number}. {step.says}" for number, step in enumerate(plan.steps, 1)]
    lines += [f"  - {note}" for note in plan.notes]
    lines += [f"  undo with: {'; '.join(plan.undo)}"] if plan.undo else []
    return "\n".join(_clean(line) for line in lines) + "\n"


def _worked(line: FixLine) -> str:
    if line.error:
        return _clean(f"not done: {line.error}") + "\n"
    if line.outcome is None:
        return _clean(f"  {line.step}: {line.says}") + "\n"
    undo = f"\nundo with: {'; '.join(line.undo)}" if line.undo else ""
    return _clean(f"{line.outcome.value}: {line.says}") + _clean(undo).replace("\\n", "\n") + "\n"


def _moment(at: float) -> str:
    day = "%H:%M:%S" if abs(time.time() - at) < 86400 / 2 else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(at).astimezone().strftime(day)


def _clean(text: str) -> str:
    """Names come from the host: none of them may drive the reader's terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
