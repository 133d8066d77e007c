"""The incident from its first turn to its proof, on a guest of our own, with the tools a real host would be given.

    boot -> audit -> doctor finds the loop -> the zombies are named -> the unit is disabled and masked -> they are
    purged
         -> doctor again -> the machine is as it was

Each scene looks or acts and says in a sentence what came out of it; ``held`` is whether that is what should have. The
first that does not hold ends the story; whatever happens, the guest goes, with all it made. Nothing outside the guest's
own cgroup and one scratch directory is touched: the purge's reach ends there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

import msgspec

from sexton.care.audit.auditing import audit
from sexton.care.audit.rulebook import open_rulebook
from sexton.care.grave_report import attempt_says
from sexton.care.graves import Survey, survey
from sexton.care.look import Round, look_around
from sexton.care.probes import units
from sexton.care.purging import Purge
from sexton.care.remedies import disable_unit
from sexton.care.remedy import Ground
from sexton.care.replay.stage import LOGS, UNIT, files
from sexton.core.action import Cannot
from sexton.core.finding import ZOMBIES_WARNING, Finding
from sexton.core.policy import DisableUnit
from sexton.core.purge import Allowed
from sexton.host.errors import Unreadable
from sexton.host.guest import NAME, Guest, hierarchies, sweep
from sexton.host.rootfs import Directory

# The whole replay, but for making the root file system; the guest boots within a second and each turn takes some.
DEADLINE = 110.0
# How often to look; a turn takes two seconds or more.
PAUSE = 0.25
# Where the agent's logs are: page cache of a disk, which is what leaks on real hosts. Not a tmpfs.
SCRATCH = Path("/var/tmp")  # noqa: S108 - a directory of our own is made in it
SCRATCH_NAME = "sexton-replay-"
# Zombies that may be left, of a thousand and more: a page on a tmpfs of the guest is never freed while the guest lives,
# as that of the group that wrote its login records; others are the kernel's to free in its own time.
LEFT_OVER = 10
NO_ENGINE = "unix:///nonexistent"


class _Told:
    """Being told to go is answered like Ctrl-C: what was made is taken away first. A signal only leaves word here, and
    whoever waits looks for it: an exception in the middle of an import may be taken for a module that is not there,
    and one in the middle of an event loop can stop it for ever. Whoever says it twice means it."""

    def __init__(self) -> None:
        self._told = False
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._earlier[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._told:
            raise KeyboardInterrupt
        self._told = True

    def obey(self) -> None:
        """KeyboardInterrupt when a signal came."""
        if self._told:
            raise KeyboardInterrupt


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One scene as it came out, ``at`` seconds into the story."""

    name: str
    says: str
    details: tuple[str, ...] = ()
    held: bool = True
    at: float = 0.0


def play(rootfs: Path) -> Iterator[Scene]:
    """Play it. Absent or Unreadable when it cannot be staged here; KeyboardInterrupt and the like clean up first."""
    begun = time.monotonic()
    before = _machine()
    with _Told() as told:
        sweep()
        _sweep_scratch()
        scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_NAME}{os.getpid()}-", dir=SCRATCH))
        try:
            logs = scratch / "logs"
            logs.mkdir()
            for scene in _acts(rootfs, scratch, logs, begun + DEADLINE, told):
                told.obey()
                yield msgspec.structs.replace(scene, at=time.monotonic() - begun)
                if not scene.held:
                    break
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    left = _machine() - before
    yield Scene(
        name="leave",
        says="the guest is gone, and this machine is as it was: no mount, cgroup or file more"
        if not left
        else f"something is left: {', '.join(sorted(left)[:5])}",
        held=not left,
        at=time.monotonic() - begun,
    )


def _acts(rootfs: Path, scratch: Path, logs: Path, until: float, told: _Told) -> Iterator[Scene]:
    state = scratch / "state"
    with Guest(rootfs, scratch, files(), (logs, LOGS)) as guest:
        yield Scene(
            name="boot", says=f"a Debian boots with {UNIT} enabled, as the vendor's image has it (guest {guest.group})"
        )
        yield _audit(guest)
        yield _found(guest, state, until, told)
        within = f"/{guest.group}"
        seen = _leaked(within, until, told)
        yield _named(seen, guest)
        yield _disabled(guest, state)
        yield from _purged(within)
        yield _healthy(guest, state, within, until)


def _audit(guest: Guest) -> Scene:
    """What would have been said at the bake."""
    judged = audit(Directory(guest.root), open_rulebook("ray")).unit(UNIT)
    if judged is None:
        return Scene(name="audit", says=f"the audit does not see {UNIT}", held=False)
    found = judged.assessment
    return Scene(
        name="audit",
        says=f"sexton audit --shape ray would have said: {found.verdict} {UNIT}: {', '.join(found.reasons[:1])}",
        details=found.reasons[1:],
        held=found.verdict == "mask",
    )


def _look(guest: Guest, state: Path) -> Round:
    return asyncio.run(look_around(guest.root, NO_ENGINE, state, (units.PROBE,)))


def _loop(seen: Round) -> Finding | None:
    return next((finding for finding in seen.findings if finding.fingerprint == f"unit-loop/{UNIT}"), None)


def _found(guest: Guest, state: Path, until: float, told: _Told) -> Scene:
    while (loop := _loop(_look(guest, state))) is None:
        if time.monotonic() > until:
            return Scene(name="find", says=f"{UNIT} was not found to loop in time", held=False)
        told.obey()
        time.sleep(PAUSE)
    return Scene(
        name="find",
        says=f"sexton doctor finds: {loop.title} ({loop.severity})",
        details=tuple(f"{item.what}: {item.value}" for item in loop.evidence),
    )


def _leaked(within: str, until: float, told: _Told) -> Survey:
    """Wait until the leak is a finding by itself."""
    while True:
        seen = survey(pins=True, within=within)
        if _amount(seen) >= ZOMBIES_WARNING or time.monotonic() > until:
            return seen
        told.obey()
        time.sleep(PAUSE)


def _amount(seen: Survey) -> int:
    """Zombies; where they cannot be told one by one, the page cache that dead groups hold stands for them: a page or
    more each."""
    return sum(ghost.file for ghost in seen.ghosts) if seen.walk is None else len(seen.rows)


def _what(seen: Survey) -> str:
    return "pages of dead groups" if seen.walk is None else "zombies"


def _named(seen: Survey, guest: Guest) -> Scene:
    if seen.walk is None:
        return Scene(
            name="name",
            says="zombies cannot be named here; arithmetic tells where they hold memory",
            details=(*seen.cannot_see, *(f"{ghost.path}: {ghost.file:,} pages" for ghost in seen.ghosts)),
            held=bool(seen.ghosts),
        )
    dead = [seen.walk.groups[row] for row in seen.rows]
    makers = seen.shares
    named = bool(makers) and makers[0].maker == UNIT and makers[0].share > 0.9
    example = next((one.path.removeprefix(f"/{guest.group}") for one in dead if f"/{UNIT}/" in one.path), "none")
    return Scene(
        name="name",
        says=f"sexton zombies names {len(dead):,} zombie memory cgroups, made by "
        + ", ".join(f"{share.says} ({share.share:.0%})" for share in makers[:3]),
        details=(
            f"one of them was {example}",
            f"the kernel tracks {seen.count.tracked:,} on this machine, {seen.count.live:,} are live",
            f"all named in {seen.seconds * 1000:.0f} ms",
        ),
        held=named and len(dead) >= ZOMBIES_WARNING,
    )


def _disabled(guest: Guest, state: Path) -> Scene:
    loop = _loop(_look(guest, state))
    if loop is None:
        return Scene(name="disable", says=f"{UNIT} is not found to loop any more", held=False)
    ground = Ground(root=guest.root, docker_host=NO_ENGINE, rule=DisableUnit(), now=time.time())

    async def act() -> Scene:
        planned = await disable_unit.REMEDY.plan(ground, loop)
        if isinstance(planned, Cannot):
            return Scene(name="disable", says=f"cannot disable {UNIT}: {planned.reason}", held=False)
        done = [did.says async for did in disable_unit.REMEDY.carry_out(ground, planned, frozenset())]
        proof = await disable_unit.REMEDY.prove(ground, planned)
        return Scene(
            name="disable",
            says=f"remedy {planned.remedy}: {planned.says}; proved: {proof.says}",
            details=tuple(f"{step.says}: {said}" for step, said in zip(planned.steps, done, strict=False)),
            held=proof.holds,
        )

    return asyncio.run(act())


def _purged(within: str) -> Iterator[Scene]:
    purge = Purge(allowed=Allowed(), within=within)
    before = _amount(purge.seen)
    said = tuple(attempt_says(attempt) for attempt in purge.run())
    left = _amount(purge.seen)
    yield Scene(
        name="purge",
        says=f"sexton zombies --purge frees {before - left:,} of {before:,} {_what(purge.seen)}, without a reboot",
        details=said,
        held=left <= LEFT_OVER,
    )


def _healthy(guest: Guest, state: Path, within: str, until: float) -> Scene:
    seen = _look(guest, state)
    left = survey(within=within)
    again = guest.run("systemctl", "start", UNIT)
    many = _amount(left)
    held = _loop(seen) is None and many <= LEFT_OVER and again.returncode != 0
    return Scene(
        name="healthy",
        says=f"sexton doctor finds nothing more: {many:,} {_what(left)} left, and {UNIT} cannot be started again"
        if held
        else f"not healthy: {seen.verdict}, {many:,} {_what(left)} left, start of {UNIT}: {again.returncode}",
        held=held,
    )


def _machine() -> frozenset[str]:
    """What a replay could leave: mounts, and groups and directories of its kind."""
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    own = (str(path) for path in SCRATCH.glob(f"{SCRATCH_NAME}{os.getpid()}-*"))
    groups = (str(path) for tree in hierarchies() for path in tree.glob(f"{NAME}{os.getpid()}-*"))
    return frozenset((*(f"mount {mount}" for mount in mounts if SCRATCH_NAME in mount), *own, *groups))


def _sweep_scratch() -> None:
    """Directories of replays that were killed outright."""
    for path in SCRATCH.glob(f"{SCRATCH_NAME}*"):
        keeper = path.name.removeprefix(SCRATCH_NAME).partition("-")[0]
        if keeper.isdecimal() and not Path(f"/proc/{keeper}").exists():
            shutil.rmtree(path, ignore_errors=True)


def check_scratch() -> None:
    """Page cache of a disk is what leaks; files in memory would pin their groups until they are deleted."""
    kind = "tmpfs"
    best = ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        place = fields[4]
        if str(SCRATCH).startswith(place) and len(place) >= len(best):
            best, kind = place, fields[fields.index("-") + 1]
    if kind in ("tmpfs", "ramfs"):
        raise Unreadable(f"{SCRATCH} is in memory ({kind})", "A replay needs it on a disk.")
