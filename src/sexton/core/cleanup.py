"""What may be removed from a host's disk, in which order, and why: pure decisions.

By age, each cycle: images that this agent pulled, that no container and no task uses, and whose pull is long enough
ago; least recently used first, so many a cycle. Where the operator asked for it also images of others by the time
they were made, smallest first, out of the same number.

By pressure, when less of the disk is free than the reserve: the same images whatever their age, and what stopped tasks
left (containers, volumes, logs), until enough would be free. The oldest and largest goes first: what weighs most, as
bytes times the time that nobody used them.

Never: what is in use, what is being pulled, what the operator named, and what was not ours unless he asked for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

# Names that belong to somebody who would miss them.
ALWAYS_KEPT = ("amazon/amazon-ecs-agent:latest", "amazon/amazon-ecs-pause:0.1.0")


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image on this host. ``size`` is what its removal would free, as far as that is known."""

    id: str
    names: tuple[str, ...] = ()  # tags
    digests: tuple[str, ...] = ()
    size: int = 0
    created_at: float = 0.0


class Ours(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an image that this agent pulled."""

    pulled_at: float = 0.0
    used_at: float = 0.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's wishes. Ages are seconds."""

    minimum_age: float = 3600.0
    per_cycle: int = 5
    excluded: tuple[str, ...] = ()
    others: bool = False  # images that this agent did not pull as well
    others_minimum_age: float = 3600.0


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """What must stay: images of containers by id, and of tasks and pulls by any of their names."""

    ids: Collection[str] = frozenset()
    names: Collection[str] = frozenset()

    def holds(self, image: Image) -> bool:
        if image.id in self.ids or image.id in self.names:
            return True
        return any(_plain(name) in self.names or name in self.names for name in (*image.names, *image.digests))


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A stopped task whose containers are still kept, with what they, their volumes and their logs take."""

    task: str
    stopped_at: float
    size: int = 0


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """An image that goes, or what a task left; and the reason, for the log."""

    why: str
    size: int
    image: Image | None = None
    task: str = ""


def by_age(
    images: Iterable[Image], ours: Mapping[str, Ours], used: InUse, rules: Rules, now: float
) -> tuple[Removal, ...]:
    """What one cycle removes."""
    mine, others = [], []
    for image in images:
        if not _may_go(image, used, rules):
            continue
        record = ours.get(image.id)
        if record is not None:
            if now - record.pulled_at >= rules.minimum_age:
                mine.append((record.used_at, image))
        elif rules.others and now - image.created_at >= rules.others_minimum_age:
            others.append((image.size, image))
    chosen = [
        Removal(image=image, size=image.size, why=f"no task has used it for {_span(now - at)}")
        for at, image in sorted(mine, key=lambda one: (one[0], one[1].id))[: rules.per_cycle]
    ]
    left = rules.per_cycle - len(chosen)
    chosen += [
        Removal(image=image, size=image.size, why=f"not brought by a task, {_span(now - image.created_at)} old")
        for _, image in sorted(others, key=lambda one: (one[0], one[1].id))[:left]
    ]
    return tuple(chosen)


def under_pressure(
    images: Iterable[Image],
    ours: Mapping[str, Ours],
    leftovers: Iterable[Leftover],
    used: InUse,
    rules: Rules,
    *,
    need: int,
    now: float,
) -> tuple[Removal, ...]:
    """What is removed so that ``need`` more bytes are free; all that may go when that is not enough."""
    candidates: list[tuple[float, Removal]] = []
    for image in images:
        record = ours.get(image.id)
        if (record is None and not rules.others) or not _may_go(image, used, rules):
            continue
        idle = now - (record.used_at if record else image.created_at)
        why = f"the disk is short; no task has used it for {_span(idle)}"
        candidates.append((_weight(image.size, idle), Removal(image=image, size=image.size, why=why)))
    for left in leftovers:
        idle = now - left.stopped_at
        why = f"the disk is short; the task stopped {_span(idle)} ago"
        candidates.append((_weight(left.size, idle), Removal(task=left.task, size=left.size, why=why)))
    chosen, freed = [], 0
    for _, removal in sorted(candidates, key=lambda one: -one[0]):
        if freed >= need:
            break
        chosen.append(removal)
        freed += removal.size
    return tuple(chosen)


def shortage(total: int, free: int, reserve_percent: int) -> int:
    """How many bytes are missing to the reserve; 0 when there is enough, or no reserve."""
    if reserve_percent <= 0 or total <= 0:
        return 0
    return max(0, total * reserve_percent // 100 - free)


def _may_go(image: Image, used: InUse, rules: Rules) -> bool:
    if used.holds(image):
        return False
    kept = {*ALWAYS_KEPT, *rules.excluded}
    return not any(name in kept or _plain(name) in kept for name in image.names)


def _plain(name: str) -> str:
    """A name without the tag that everybody leaves out."""
    return name.removesuffix(":latest")


def _weight(size: int, idle: float) -> float:
    return (size + 1.0) * max(idle, 1.0)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
