"""Tells what ``sexton zombies`` saw and did: as text for a person, as JSON for a program.

The text answers in the order of the questions: how many, who made them, what holds them, what would be done or was
done, what is left and why, what could not be seen. The JSON's shape is documented in ``docs/zombies.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from sexton.care.graves import Survey
from sexton.care.purging import Attempt
from sexton.core.finding import counted, size
from sexton.core.purge import DropFiles, Left, Plan, Reclaim, Step, Why
from sexton.core.zombie import Holder, HolderKind
from sexton.host.file_users import User, Users
from sexton.host.ghosts import PAGE
from sexton.host.pinned_files import Mounts

JSON_SCHEMA = 1
MIB = 2**20

CURES = {
    Why.MEMORY: "files in memory only: delete them, or end what has them open",
    Why.ANONYMOUS: "memory of processes that left the group: it goes when they end",
    Why.LOCKED: "locked in memory (mlock): it goes when the locking process ends or unlocks it",
    Why.BELOW: "zombies below them are left",
    Why.BUDGET: "one round of reclaim past others it cannot free would outlast the budget: allow more with --budget",
    Why.CONSENT: "freeing them costs live groups their page cache: allow it with --allow-drop-caches",
    Why.TRIED: "all means were used in vain: somebody uses the pages right now",
    Why.REFUSED: "the means that would free them was refused, for the reason above",
    Why.UNSEEN: "nothing that pins them is on any list: pages on their way, or objects of the kernel; look again later",
}


class By(StrEnum):
    MAKER = "maker"
    PATH = "path"
    FILE = "file"


class Row(msgspec.Struct, frozen=True):
    """One line of a table."""

    what: str
    zombies: int
    pages: int
    note: str = ""


def amount(pages: int) -> str:
    """Pages as a person says them."""
    return size(pages * PAGE) if pages * PAGE >= MIB else f"{pages * PAGE // 1024} KiB"


def rows(seen: Survey, by: By, mounts: Mounts) -> tuple[Row, ...]:
    """The zombies in question by maker, by former path, or by the file or process that pins them."""
    if seen.walk is None:
        return ()
    groups = seen.walk.groups
    if by is By.MAKER:
        return tuple(Row(one.says, one.zombies, one.pages, f"{one.share:.1%}") for one in seen.origins)
    if by is By.PATH:
        dead = (groups[row] for row in seen.rows)
        return tuple(
            Row(
                group.path,
                1,
                group.file + group.anon + group.unevictable,
                f"{counted(group.refs, 'pin')}, {amount(group.usage)} charged, below {groups[group.above].path}",
            )
            for group in dead
        )
    wanted = frozenset(seen.rows)
    pages: Counter[int] = Counter()
    held: dict[int, set[int]] = {}
    for pin in seen.walk.pins:
        if pin.group in wanted:
            pages[pin.holder] += pin.pages
            held.setdefault(pin.holder, set()).add(pin.group)
    ordered = sorted(held, key=lambda row: (-len(held[row]), -pages[row], row))
    return tuple(
        Row(mounts.says(seen.walk.holders[row]), len(held[row]), pages[row], seen.walk.holders[row].kind)
        for row in ordered
    )


def step_says(step: Step) -> str:
    """What a step touches, before it does."""
    if isinstance(step, DropFiles):
        pages = sum(file.pages for file in step.files)
        dirty = sum(1 for file in step.files if file.dirty)
        return (
            f"drop exactly {counted(pages, 'page')} ({amount(pages)}) of {counted(len(step.files), 'file')} from "
            f"memory, for {counted(len(step.zombies), 'zombie')}" + (f"; {dirty:,} written back first" if dirty else "")
        )
    many = f", for {counted(len(step.zombies), 'zombie')}" if step.zombies else ""
    if isinstance(step, Reclaim):
        walked = f"; {counted(step.walked, 'zombie')} in its way that it cannot free" if step.walked else ""
        return (
            f"reclaim {amount(step.pages)} below {step.group}{many}; may take along "
            f"{amount(step.collateral)} page cache of live groups there{walked}"
        )
    return (
        f"drop the clean page cache of the whole host, {amount(step.collateral)} of it live groups'{many}; "
        "no deadline can end this call"
    )


def left_says(left: Left, mounts: Mounts, users: Mapping[Holder, Sequence[User]]) -> str:
    """Zombies that stay, and who holds them."""
    many = f"{counted(left.zombies, 'zombie')}, " if left.zombies else ""
    where = f" below {left.group}" if left.group else ""
    by = ""
    if left.holder is not None:
        by = f" by {mounts.says(left.holder)}"
        if using := users.get(left.holder):
            by += ", used by " + ", ".join(f"{user.name} ({user.pid})" for user in using[:5])
    return f"{many}{amount(left.pages)}{where} held{by}: {CURES[left.why]}"


def files_to_look_up(left: Iterable[Left]) -> dict[Holder, tuple[int, int, int]]:
    """Files in memory whose users are worth naming."""
    return {
        entry.holder: (*entry.holder.device, entry.holder.number)
        for entry in left
        if entry.why is Why.MEMORY and entry.holder is not None and entry.holder.kind is HolderKind.FILE
    }


def attempt_says(attempt: Attempt) -> str:
    """What an attempt changed, as it was proved."""
    cached = attempt.cached_before - attempt.cached_after
    how = "killed at its deadline after" if attempt.killed else "took"
    trouble = {name: value for name, value in attempt.said.items() if name != "next"}
    said = f"; {', '.join(f'{name}: {value}' for name, value in trouble.items())}" if trouble else ""
    stuck = "; it is still in the kernel, nothing more is tried" if attempt.stuck else ""
    return (
        f"freed {counted(attempt.freed, 'zombie')}, {attempt.remaining:,} remain; {how} {attempt.seconds:.2f} s, "
        f"{attempt.kernel:.2f} s in the kernel; page cache {'-' if cached >= 0 else '+'}{size(abs(cached))}"
        f"{said}{stuck}"
    )


def as_text(
    seen: Survey, table: tuple[Row, ...], by: By, limit: int, clean: Callable[[str], str] = lambda text: text
) -> str:
    """The survey for a person; ends with a newline."""
    count = seen.count
    where = "" if seen.within == "/" else f" ({len(seen.rows):,} of them below {seen.within})"
    lines = [
        f"{counted(count.zombies, 'zombie memory cgroup')}{where}: the kernel tracks {count.tracked:,}, "
        f"{count.live:,} are live"
    ]
    if table:
        shown = table[:limit]
        wide = min(max(len(row.what) for row in shown), 100)
        lines += ["", f"{'zombies':>9}  {'pinned by':>10}  {by}"]
        for row in shown:
            lines.append(f"{row.zombies:>9,}  {amount(row.pages):>10}  {clean(row.what):<{wide}}  {row.note}".rstrip())
        if len(table) > limit:
            lines.append(f"{'':>9}  {'':>10}  and {len(table) - limit:,} more (--limit 0 shows all)")
    for ghost in seen.ghosts:
        many = "" if ghost.zombies is None else f"{counted(ghost.zombies, 'zombie')}, "
        kinds = (("page cache", ghost.file), ("memory", ghost.anon), ("locked", ghost.unevictable))
        held = ", ".join(f"{amount(pages)} {kind}" for kind, pages in kinds)
        lines.append(f"  below {clean(ghost.path)}: {many}{held} still held by dead groups")
    for sentence in seen.cannot_see:
        lines.append(f"  cannot see: {clean(sentence)}")
    return "\n".join(lines) + "\n"


def plan_text(plan: Plan, mounts: Mounts, users: Users | None, *, dry: bool) -> str:
    """What would be done, and what would be left; ends with a newline."""
    using = _using(plan, users)
    lines = []
    if plan.steps:
        lines.append("would do, the gentlest first:" if dry else "does, the gentlest first:")
        lines += [f"  {number}. {step_says(step)}" for number, step in enumerate(plan.steps, 1)]
    else:
        lines.append("nothing can be freed" if plan.left else "nothing is to be freed")
    if plan.left:
        lines.append("left:")
        lines += [f"  - {left_says(left, mounts, using)}" for left in plan.left]
    if any(left.why is Why.LOCKED for left in plan.left) and users is not None and users.locking:
        lines.append("    lock memory now: " + ", ".join(f"{user.name} ({user.pid})" for user in users.locking[:10]))
    if users is not None and not users.complete:
        lines.append("    there was no time to look at all processes: others may hold files, too")
    if dry and plan.steps:
        lines.append("this was a dry run: --yes does it")
    return "\n".join(lines) + "\n"


def _using(plan: Plan, users: Users | None) -> dict[Holder, Sequence[User]]:
    if users is None:
        return {}
    return {holder: users.of.get(file, ()) for holder, file in files_to_look_up(plan.left).items()}


def as_json(
    seen: Survey,
    table: tuple[Row, ...],
    by: By,
    plan: Plan | None,
    attempts: tuple[Attempt, ...],
    mounts: Mounts,
    users: Users | None,
    exit_code: int,
) -> bytes:
    """One object, keys in a fixed order."""
    finding = seen.finding
    return msgspec.json.encode(
        {
            "schema": JSON_SCHEMA,
            "exit_code": exit_code,
            "within": seen.within,
            "tracked": seen.count.tracked,
            "live": seen.count.live,
            "zombies": seen.count.zombies,
            "named": None if seen.walk is None else len(seen.rows),
            "took_seconds": round(seen.seconds, 4),
            "finding": None if finding is None else finding.fingerprint,
            "makers": seen.shares,
            "origins": seen.origins,
            "by": by,
            "rows": [
                {"what": row.what, "zombies": row.zombies, "bytes": row.pages * PAGE, "note": row.note} for row in table
            ],
            "ghosts": seen.ghosts,
            "cannot_see": seen.cannot_see,
            "plan": None if plan is None else _plan_json(plan, mounts, _using(plan, users)),
            "attempts": [_attempt_json(attempt) for attempt in attempts],
        }
    )


def _plan_json(plan: Plan, mounts: Mounts, users: Mapping[Holder, Sequence[User]]) -> dict[str, object]:
    return {
        "zombies": plan.zombies,
        "steps": [{"key": step.key, "zombies": len(step.zombies), "says": step_says(step)} for step in plan.steps],
        "left": [
            {
                "why": left.why,
                "zombies": left.zombies,
                "bytes": left.pages * PAGE,
                "group": left.group,
                "holder": None if left.holder is None else mounts.says(left.holder),
                "says": left_says(left, mounts, users),
            }
            for left in plan.left
        ],
    }


def _attempt_json(attempt: Attempt) -> dict[str, object]:
    return {
        "key": attempt.step.key,
        "freed": attempt.freed,
        "remaining": attempt.remaining,
        "seconds": round(attempt.seconds, 4),
        "kernel_seconds": round(attempt.kernel, 4),
        "killed": attempt.killed,
        "stuck": attempt.stuck,
        "cached_before": attempt.cached_before,
        "cached_after": attempt.cached_after,
        "says": attempt_says(attempt),
    }
