"""Watches cgroups come and go: loops that no restart counter and no engine shows, and what each turn leaves behind.

The kernel's trace events tell each group made, removed and released, whoever made it. Births go into the register, so
that a zombie found later can be traced to its container; turns go into the book of churn, whose rule tells loops.
Only a daemon watches: events that nobody listened for are gone.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec

from sexton.care.births import Births, GroupBirth
from sexton.care.probe import CouldNotLook, Looked, NotPresent, Scene, Tell, Watcher
from sexton.core.churn import GRACE, Churn
from sexton.core.finding import Evidence, Finding, span
from sexton.core.loop import Loop, judge_loop
from sexton.host.errors import Absent, Unreadable
from sexton.host.offload import in_thread
from sexton.host.tracefs import GroupEvent, GroupTrace, Seen

# Events of so long are read together: one pass for a burst instead of one for each.
GATHER = 0.25
# Of a flood so many portions are taken before it is judged; the rest wakes it again.
PORTIONS = 64
# With turns under way it is judged again after this time without events: their ends may be what is missing.
PACE = GRACE + 0.5
SOURCE = "cgroup trace events"


async def watch(scene: Scene, tell: Tell) -> None:
    try:
        with GroupTrace(scene.root) as trace:
            await _Watch(scene, trace, tell).run()
    except Absent as nothing:
        tell(NotPresent(str(nothing)))
    except Unreadable as blind:
        tell(CouldNotLook(str(blind), blind.next_step))


class _Watch:
    def __init__(self, scene: Scene, trace: GroupTrace, tell: Tell) -> None:
        self._trace = trace
        self._tell = tell
        self._births = None if scene.keep is None else Births(scene.keep)
        self._churn = Churn()
        self._made = 0
        # The events' clock does not stand still while the host sleeps or its clock is set; once is near enough.
        self._offset = time.time() - time.monotonic()

    async def run(self) -> None:
        self._say()
        while True:
            quiet = not await self._woken(PACE if self._churn.left() else None)
            await asyncio.sleep(GATHER)
            born = False
            for _ in range(PORTIONS):
                if not (events := self._trace.read()):
                    break
                births = self._take(events)
                born = born or bool(births)
                if births and self._births is not None:
                    await in_thread("births", partial(self._births.write, births))
            if born or quiet or self._churn.left():
                self._say()

    async def _woken(self, patience: float | None) -> bool:
        """Sleep until the kernel has something to tell."""
        loop = asyncio.get_running_loop()
        awake = asyncio.Event()
        loop.add_reader(self._trace.fileno(), awake.set)
        try:
            await asyncio.wait_for(awake.wait(), patience)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._trace.fileno())
        return True

    def _take(self, events: list[GroupEvent]) -> list[GroupBirth]:
        births = []
        for event in events:
            at = event.at + self._offset
            if event.what is Seen.MADE:
                self._made += 1
                self._churn.made(event.id, event.path, at, event.by)
                births.append(GroupBirth(event.id, int(at), event.path, event.by))
            elif event.what is Seen.REMOVED:
                self._churn.removed(event.id, event.path, at)
            else:
                self._churn.released(event.id, event.path)
        return births

    def _say(self) -> None:
        now = time.time()
        findings = tuple(self._findings(now))
        says = f"{self._made:,} cgroups made since the watch began, {len(findings):,} kinds in a loop"
        if self._trace.lost:
            says += f"; {self._trace.lost:,} events came too fast and were lost"
        if self._births is not None and self._births.trouble:
            says += f"; {self._births.trouble}"
        self._tell(Looked(says=says, findings=findings, figures={"made": self._made, "left": self._churn.left()}))

    def _findings(self, now: float) -> list[Finding]:
        found: dict[str, Finding] = {}
        for kind, loop in self._churn.loops(now):
            extra = [
                Evidence("comes and goes", kind.path, SOURCE),
                Evidence("made by", ", ".join(self._churn.makers(kind)[:5]) or "not known", SOURCE),
            ]
            finding = judge_loop(loop, now, source=SOURCE, extra=extra, what=kind.path)
            found.setdefault(loop.who, _of_unit(finding, loop) if kind.unit and not kind.who else finding)
        return list(found.values())


def _of_unit(finding: Finding, loop: Loop) -> Finding:
    """A unit's own group comes and goes with its starts: what turns it, systemd tells and these events do not."""
    return msgspec.structs.replace(
        finding,
        title=f"{loop.who} starts and ends over and over and leaves a zombie cgroup each time, {loop.turns:,} turns, "
        f"one every {span(loop.period)}",
        evidence=tuple(item for item in finding.evidence if item.what != "shape"),
    )


WATCHER = Watcher(
    name="group-churn",
    reads=("the kernel's trace events cgroup_mkdir, cgroup_rmdir, cgroup_release of the memory hierarchy",),
    cost="nothing while nothing happens; some 30 microseconds for each event; 512 kB of kernel memory a processor",
    watch=watch,
)
