"""Bringing images to this host: one pull of an image however many tasks want it, so many of a registry at once.

The limit counts per registry, so that a slow one holds nobody else back. A pull says how far it is, to the log every
few seconds and to whoever asks. What may pass by itself is tried again; an engine that is away is no fault of the
image and is told apart (``EngineAway``), since then the step is repeated and not failed. When the disk is full, room
is asked for before the next try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from sexton.core import registryauth
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.kit.together import CalledOff, Together
from sexton.runtime.contract import NotFound, Progress, Refused, Runtime, TimedOut, Unavailable

log = logging.getLogger(__name__)

PULL_TRIES = 5
PULL_BACKOFF = Backoff(first=1.1, cap=5.0)
# A registry that said nothing for the whole deadline is asked once more, not four times.
SILENT_TRIES = 2
DIGEST_TRIES = 9
DIGEST_BACKOFF = Backoff(first=0.01, cap=5.0, factor=3.0)
# With an image on the host that will do, a registry that stays away for a few seconds is not waited for any longer.
DIGEST_TRIES_WITH_IMAGE = 7
SAY_SECONDS = 10.0
TAG_TRIES = 5
TAG_PAUSE = 0.1
_DISK_FULL = "no space left on device"


class EngineAway(Unavailable):
    """The engine itself does not answer: nothing is known of the image."""


class PullState(msgspec.Struct, kw_only=True):
    """How far a pull is. Bytes are of the layers that are known by now."""

    ref: str
    since: float
    waiting: bool = True  # for its turn at the registry
    attempt: int = 0
    done: int = 0
    total: int = 0
    layers: int = 0
    ready: int = 0
    tasks: int = 0


class _Layers:
    """Adds up what an engine says of single layers."""

    def __init__(self, state: PullState) -> None:
        self._state = state
        self._seen: dict[str, tuple[int, int, bool]] = {}

    def feed(self, one: Progress) -> None:
        if not one.layer:
            return
        done, total, ready = self._seen.get(one.layer, (0, 0, False))
        if one.status == "Downloading":
            done, total = one.current, max(one.total, total)
        elif one.status in ("Download complete", "Pull complete", "Already exists"):
            done, ready = total, ready or one.status != "Download complete"
        self._seen[one.layer] = (done, total, ready)
        self._state.done = sum(done for done, _, _ in self._seen.values())
        self._state.total = sum(total for _, total, _ in self._seen.values())
        self._state.layers = len(self._seen)
        self._state.ready = sum(ready for _, _, ready in self._seen.values())


class Pulls:
    """The pulls of this host."""

    def __init__(
        self,
        runtime: Runtime,
        nursery: Nursery,
        *,
        limit: int,
        clock: Callable[[], float],
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._limit = limit
        self._clock = clock
        self.make_room = make_room
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._pulls: Together[tuple[str, str], None] = Together(nursery)
        self._digests: Together[tuple[str, str], str] = Together(nursery)
        self._states: dict[tuple[str, str], PullState] = {}
        self._held: dict[str, int] = {}
        self._leaving: dict[str, asyncio.Event] = {}

    def states(self) -> tuple[PullState, ...]:
        """Every pull under way or waiting for its turn."""
        return tuple(self._states.values())

    def held(self) -> frozenset[str]:
        """References that somebody is about to use or is pulling: nothing of them may be removed."""
        return frozenset(self._held)

    @contextmanager
    def hold(self, *refs: str) -> Iterator[None]:
        for ref in refs:
            self._held[ref] = self._held.get(ref, 0) + 1
        try:
            yield
        finally:
            for ref in refs:
                self._held[ref] -= 1
                if not self._held[ref]:
                    del self._held[ref]

    @contextmanager
    def removing(self, names: Iterable[str]) -> Iterator[bool]:
        """Nobody begins to use an image by any of these names meanwhile; False when somebody has begun already."""
        names = tuple(names)
        if any(name in self._held for name in names):
            yield False
            return
        over = asyncio.Event()
        for name in names:
            self._leaving[name] = over
        try:
            yield True
        finally:
            for name in names:
                self._leaving.pop(name, None)
            over.set()

    async def settled(self, *refs: str) -> None:
        """Wait until nothing of these is being removed."""
        while any(ref in self._leaving for ref in refs):
            await next(self._leaving[ref] for ref in refs if ref in self._leaving).wait()

    async def digest(self, ref: str, auth: registryauth.Auth | None, tries: int = DIGEST_TRIES) -> str:
        """What the registry has under a reference now; "" when it cannot be asked for that."""
        try:
            return await self._digests.do((ref, _who(auth)), f"digest-{ref}", lambda: self._digest(ref, auth, tries))
        except CalledOff as error:
            raise EngineAway(str(error)) from None

    async def pull(
        self, ref: str, auth: registryauth.Auth | None, tries: int = PULL_TRIES, *, unless_here: bool = False
    ) -> None:
        """Have the image here. EngineAway, Unavailable (after all tries), NotFound or Refused when that fails.

        ``unless_here``: the reference is a digest that the registry has just named to this asker, so that the image is
        the right one if it came meanwhile. That is looked up once no pull of it is under way, or it could still come
        between the look and the pull.
        """
        key = (ref, _who(auth))
        state = self._states.setdefault(key, PullState(ref=ref, since=self._clock()))
        state.tasks += 1
        try:
            with self.hold(ref):
                await self._pulls.do(key, f"pull-{ref}", lambda: self._pull(ref, auth, state, tries, unless_here))
        except CalledOff as error:
            raise EngineAway(str(error)) from None
        finally:
            state.tasks -= 1
            if not state.tasks and self._states.get(key) is state:
                del self._states[key]

    async def tag(self, ref: str, name: str) -> None:
        """Give an image that was pulled by its digest the name that the task calls it."""
        for attempt in range(1, TAG_TRIES + 1):
            try:
                await self._runtime.tag(ref, name)
            except Refused:
                if attempt == TAG_TRIES:
                    raise
                await asyncio.sleep(TAG_PAUSE)
            else:
                return

    async def _digest(self, ref: str, auth: registryauth.Auth | None, tries: int) -> str:
        delays = DIGEST_BACKOFF.delays()
        for attempt in range(1, tries + 1):
            try:
                return await self._runtime.digest(ref, auth)
            except Unavailable as error:
                await self._engine_answers()
                if attempt == tries or (isinstance(error, TimedOut) and attempt >= SILENT_TRIES):
                    raise
                await asyncio.sleep(next(delays))
        raise AssertionError("the last try ends in an answer or a fault")

    async def _pull(
        self, ref: str, auth: registryauth.Auth | None, state: PullState, tries: int, unless_here: bool
    ) -> None:
        if unless_here and await self._is_here(ref):
            return
        host = registryauth.host_of(ref)
        turn = self._turns.setdefault(host, asyncio.Semaphore(self._limit))
        if turn.locked():
            log.info("pull waits for its turn", extra={"image": ref, "registry": host, "limit": self._limit})
        async with turn:
            state.waiting = False
            delays = PULL_BACKOFF.delays()
            for attempt in range(1, tries + 1):
                state.attempt = attempt
                try:
                    await self._once(ref, auth, state)
                except NotFound:
                    raise
                except Unavailable as error:
                    await self._engine_answers()
                    last = attempt == tries or (isinstance(error, TimedOut) and attempt >= SILENT_TRIES)
                    self._say_failed(ref, attempt, error)
                    if last:
                        raise
                except Refused as error:
                    if _DISK_FULL not in str(error) or attempt == tries:
                        raise
                    self._say_failed(ref, attempt, error)
                    self.make_room()
                else:
                    return
                await asyncio.sleep(next(delays))

    async def _is_here(self, ref: str) -> bool:
        try:
            await self._runtime.image(ref)
        except Unavailable as error:
            raise EngineAway(str(error)) from None
        except Refused:  # not here
            return False
        return True

    async def _once(self, ref: str, auth: registryauth.Auth | None, state: PullState) -> None:
        layers = _Layers(state)
        began = said = self._clock()
        log.info("pull began", extra={"image": ref, "attempt": state.attempt})
        async for one in self._runtime.pull(ref, auth):
            layers.feed(one)
            if self._clock() - said >= SAY_SECONDS:
                said = self._clock()
                log.info(
                    "pull goes on",
                    extra={
                        "image": ref,
                        "bytes": state.done,
                        "of": state.total,
                        "layers_ready": state.ready,
                        "layers": state.layers,
                        "seconds": round(said - began),
                    },
                )
        log.info("pull ended", extra={"image": ref, "bytes": state.total, "seconds": round(self._clock() - began, 1)})

    async def _engine_answers(self) -> None:
        """EngineAway unless the engine is there: then what failed was between it and the registry."""
        try:
            await self._runtime.describe()
        except Unavailable as error:
            raise EngineAway(str(error)) from None

    def _say_failed(self, ref: str, attempt: int, error: Exception) -> None:
        log.warning("pull failed", extra={"image": ref, "attempt": attempt, "reason": str(error)})


def _who(auth: registryauth.Auth | None) -> str:
    """Tells log-ins apart: nobody gets an image by somebody else's."""
    return "" if auth is None else f"{auth.get('username', '')}\n{auth.get('password', '')}"
