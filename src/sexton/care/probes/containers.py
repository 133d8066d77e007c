"""Looks for containers that die young over and over, whoever starts them.

systemd's counters miss a loop inside a service: the unit stays active while it makes one container after another. The
engine's events do not. Engines keep the last few hundred events (Docker 256), so one look replays the recent past and
needs no daemon that watched. Events become turns (a start and its death); the rule in ``core/finding.py`` judges them.

A daemon stays subscribed: it tells a loop at its third turn, looks at each birth who is connected to the engine, and
writes births down, because engines forget a container with its removal.

Flows in: the engine's events. Flows out: a finding per looping kind of container; with a unit that stays up while it
makes them, a finding about that unit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec

from sexton.care.births import Births, ContainerBirth
from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene, Tell, Watcher
from sexton.core.asker import Asker, Askers, Connected
from sexton.core.finding import Evidence, Finding, Turn, judge_containers, name_pattern
from sexton.core.loop import Life, inner_loop, judge_loop
from sexton.core.maker import MakerKind, maker_of
from sexton.host.engine_clients import clients_of
from sexton.host.errors import HostFault
from sexton.host.offload import in_thread
from sexton.host.unit_signals import ask_units
from sexton.runtime.contract import Event, EventKind, Runtime, RuntimeFault

# How far back a look goes; a loop slower than three turns in this time is found by its unit, or by a later look.
WINDOW = 900.0
# The engine sends what it has buffered in one go; silence for this long means that it has no more.
REPLAY_PAUSE = 0.25
# An engine that has not finished the replay by then is not asked further.
REPLAY_DEADLINE = 2.5
# A watch keeps so many events, the newest; a busy engine makes some ten thousand an hour.
EVENTS_KEPT = 1024
# A storm of events is judged at this pace, not at each.
CALM = 0.5
# With a loop open, it is judged again after this time without events: that is how an ended loop ends.
PACE = 5.0
# Who is connected is looked at only for births that are this young: an older one's asker has gone.
YOUNG = 2.0


def _engine(scene: Scene) -> Runtime | NotPresent | CouldNotLook:
    """The engine, or why there is none."""
    if scene.docker_host.startswith("unix://"):
        socket = Path(scene.docker_host.removeprefix("unix://"))
        try:
            if not socket.exists():
                return NotPresent(f"no container engine listens at {socket}")
        except OSError as error:
            return CouldNotLook(f"cannot reach the container engine at {socket}: {error.strerror}", "Run it as root.")
    from sexton.runtime.opening import open_runtime  # an HTTP client is only loaded when there is somebody to talk to

    try:
        return open_runtime(scene.docker_host)
    except ValueError as error:
        return CouldNotLook(str(error), "Give --docker-host (or DOCKER_HOST) an address of that kind.")


async def look(scene: Scene) -> Outcome:
    runtime = _engine(scene)
    if isinstance(runtime, NotPresent | CouldNotLook):
        return runtime
    try:
        async with asyncio.timeout(REPLAY_DEADLINE):
            engine = await runtime.describe()
            events = await replay(runtime, since=scene.now - WINDOW, until=scene.now)
    except TimeoutError:
        return CouldNotLook(
            f"the container engine did not answer within {REPLAY_DEADLINE:g} s",
            "Check that it is not stuck: docker info.",
        )
    except RuntimeFault as fault:
        return CouldNotLook(
            f"cannot ask the container engine at {scene.docker_host}: {fault}",
            "Check that it runs and that this user may use it: docker info.",
        )
    finally:
        await runtime.close()
    turns = turns_of(events)
    findings = judge_containers(turns, scene.now)
    died = sum(1 for turn in turns if turn.died is not None)
    return Looked(
        says=(
            f"{len(turns):,} starts and {died:,} ends of containers in the last {WINDOW / 60:.0f} minutes "
            f"({engine.name} {engine.version}), {len(findings):,} kinds in a loop"
        ),
        findings=findings,
        figures={"starts": len(turns), "deaths": died},
    )


async def replay(runtime: Runtime, since: float, until: float) -> list[Event]:
    """The events the engine still has of that time."""
    found: list[Event] = []
    async with runtime.events(since=since) as stream:
        while True:
            try:
                event = await asyncio.wait_for(anext(stream), REPLAY_PAUSE)
            except (TimeoutError, StopAsyncIteration):
                return found
            found.append(event)
            if event.time >= until:
                return found


def turns_of(events: Iterable[Event]) -> list[Turn]:
    """Pair each start with the death that ended it. A death whose start the engine no longer has counts from the
    container's creation, or is left out when that is gone as well: nothing is known of how long it lived."""
    turns: list[Turn] = []
    created: dict[str, float] = {}
    running: dict[str, Turn] = {}
    choked: set[str] = set()
    for event in sorted(events, key=lambda e: e.time):
        key = event.container_id
        if event.kind is EventKind.CREATE:
            created[key] = event.time
        elif event.kind is EventKind.START:
            running[key] = Turn(container_id=key, name=event.name, image=event.image, started=event.time)
        elif event.kind is EventKind.OOM:
            choked.add(key)
        elif event.kind is EventKind.DIE:
            begun = running.pop(key, None)
            started = begun.started if begun is not None else created.get(key)
            if started is None:
                continue
            turns.append(
                Turn(
                    container_id=key,
                    name=event.name,
                    image=event.image,
                    started=started,
                    died=event.time,
                    exit_code=event.exit_code,
                    oom_killed=key in choked,
                )
            )
            choked.discard(key)
    return turns + list(running.values())


async def watch(scene: Scene, tell: Tell) -> None:
    runtime = _engine(scene)
    if isinstance(runtime, NotPresent | CouldNotLook):
        tell(runtime)
        return
    try:
        async with asyncio.timeout(REPLAY_DEADLINE):
            await runtime.describe()
        await _Watch(scene, runtime, tell).run()
    except TimeoutError:
        tell(
            CouldNotLook(
                f"the container engine did not answer within {REPLAY_DEADLINE:g} s",
                "Check that it is not stuck: docker info.",
            )
        )
    except RuntimeFault as fault:
        tell(
            CouldNotLook(
                f"cannot listen to the container engine at {scene.docker_host}: {fault}",
                "Check that it runs and that this user may use it: docker info.",
            )
        )
    finally:
        await runtime.close()


class _Watch:
    """One subscription's worth of watching."""

    def __init__(self, scene: Scene, runtime: Runtime, tell: Tell) -> None:
        self._scene = scene
        self._runtime = runtime
        self._tell = tell
        self._births = None if scene.keep is None else Births(scene.keep)
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._askers = Askers()
        self._heard = 0

    async def run(self) -> None:
        """Until the stream ends, which the engine's client says by raising."""
        async with self._runtime.events(since=self._scene.now - WINDOW) as stream:
            pending: asyncio.Future[Event] | None = None
            open_ = await self._say()
            judged = time.monotonic()
            try:
                while True:
                    if pending is None:
                        pending = asyncio.ensure_future(anext(stream))
                    # Sleeps for ever while no loop is open and nothing happens.
                    done, _ = await asyncio.wait({pending}, timeout=PACE if open_ else None)
                    if done:
                        event = pending.result()
                        pending = None
                        await self._note(event)
                        if time.monotonic() - judged < CALM and event.kind is not EventKind.DIE:
                            continue
                    open_ = await self._say()
                    judged = time.monotonic()
            finally:
                if pending is not None:
                    pending.cancel()
                    await asyncio.gather(pending, return_exceptions=True)

    async def _note(self, event: Event) -> None:
        self._heard += 1
        self._events.append(event)
        if event.kind is not EventKind.CREATE:
            return
        asker = self._askers.of(event.name, event.image)
        if abs(time.time() - event.time) <= YOUNG and self._scene.docker_host.startswith("unix://"):
            socket = self._scene.docker_host.removeprefix("unix://")
            clients = await in_thread("clients", lambda: clients_of(socket, self._scene.root / "proc"))
            connected = [Connected(_unit(client.cgroup), client.command) for client in clients]
            asker = self._askers.sighted(event.name, event.image, connected)
        if self._births is not None:
            known = asker or Asker("", "")
            birth = ContainerBirth(event.container_id, int(event.time), event.name, event.image, known.unit, known.seen)
            await in_thread("births", partial(self._births.write, [birth]))

    async def _say(self) -> bool:
        now = time.time()
        turns = turns_of(self._events)
        findings = [self._asked_for(finding, turns) for finding in judge_containers(turns, now)]
        findings += await self._inside(turns, now)
        trouble = "" if self._births is None or not self._births.trouble else f"; {self._births.trouble}"
        self._tell(
            Looked(
                says=f"{len(turns):,} turns of containers, {len(findings):,} kinds in a loop{trouble}",
                findings=tuple(findings),
                figures={"events": self._heard},
            )
        )
        return bool(findings)

    def _asked_for(self, finding: Finding, turns: list[Turn]) -> Finding:
        for turn in reversed(turns):
            if finding.fingerprint == f"container-loop/{turn.image}/{name_pattern(turn.name)}":
                asker = self._askers.of(turn.name, turn.image)
                says = "not known" if asker is None else f"{asker.unit}: {asker.seen}"
                asked = Evidence("asked for by", says, "connections to the engine's socket")
                return msgspec.structs.replace(finding, evidence=(*finding.evidence, asked))
        return finding

    async def _inside(self, turns: list[Turn], now: float) -> list[Finding]:
        """Units that stay up while what they make dies young again and again."""
        by_unit: dict[str, list[Turn]] = {}
        for turn in turns:
            asker = self._askers.of(turn.name, turn.image)
            if asker is not None and asker.unit.endswith(".service"):
                by_unit.setdefault(asker.unit, []).append(turn)
        found = []
        for unit, made in by_unit.items():
            loop = inner_loop(unit, [_life(turn) for turn in sorted(made, key=lambda t: t.started)], now)
            if loop is None or not await self._stays_up(unit, loop.since):
                continue
            what = f"containers of image {made[-1].image}"
            source = "container engine events"
            extra = [Evidence("makes", what, source), Evidence("systemd's restart counter", "0", "systemd NRestarts")]
            found.append(judge_loop(loop, now, source=source, extra=extra, what=what))
        return found

    async def _stays_up(self, unit: str, since: float) -> bool:
        """Did the unit itself run all the time, by systemd's account? When nobody can say, nothing is said."""
        try:
            async with ask_units(self._scene.root) as systemd:
                return 0 < await systemd.up_since(unit) <= since + 1
        except (HostFault, KeyError):
            return False


def _life(turn: Turn) -> Life:
    failed = turn.oom_killed or turn.exit_code not in (None, 0)
    return Life(began=turn.started, ended=turn.died, failed=failed)


def _unit(cgroup: str) -> str:
    maker = maker_of(cgroup)
    return maker.name if maker.kind is MakerKind.UNIT and not maker.id else ""


PROBE = Probe(
    name="containers",
    reads=("the container engine's buffered events (Docker keeps 256)",),
    cost="two requests and up to 256 events, however many containers there are; 2.5 s at most",
    look=look,
)

WATCHER = Watcher(
    name="container-events",
    reads=("the container engine's events", "who is connected to its socket, at each birth of a container"),
    cost="nothing while nothing happens; some 20 ms for each container made, a millisecond for each other event",
    watch=watch,
)
