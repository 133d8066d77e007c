"""The clean-up of images on a real engine: ours by age and count, those of others only when asked, never one in use."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from engine import PrivateEngine
from registry import Registry, make_image
from sexton.agent.checkpoint import Checkpoint
from sexton.agent.engine import Engine
from sexton.agent.gc import Cleanup
from sexton.agent.imagebook import ImageBook
from sexton.agent.ports import PortAllocator
from sexton.agent.rolekeys import RoleKeys
from sexton.agent.steps.context import Identity, StepContext
from sexton.agent.supplies import Supplies
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring
from sexton.cloud.services import Services
from sexton.kit.supervise import Nursery
from sexton.runtime.opening import open_runtime
from sexton.settings import Settings
from sexton.store.opening import open_store

pytestmark = [pytest.mark.docker, pytest.mark.timeout(90)]

HOUR = 3600.0
INSTANCE = "arn:aws:ecs:us-east-1:000000000000:container-instance/default/" + "c" * 32


class Host:
    """As much of an agent as cleans up, with a clock that a test sets forward."""

    def __init__(self, engine: PrivateEngine, store: Any, session: aiohttp.ClientSession, **settings: Any) -> None:
        self.ahead = 0.0
        self.runtime = open_runtime(engine.url)
        self.work = Nursery("clean-up")
        self.book = ImageBook(store)
        chosen = Settings(**({"pull_behavior": "default", "cleanup_wait": HOUR} | settings))
        roles = RoleKeys(Keyring([Static(Credentials("AKID", "secret"))]), may_use_own=True)
        supplies = Supplies(
            self.runtime, chosen, Services(session, {}), roles, self.work, book=self.book, clock=self.now
        )
        self.context = StepContext(
            self.runtime,
            chosen,
            Identity("default", INSTANCE),
            PortAllocator(None, frozenset()),
            supplies,
            None,
            clock=self.now,
        )
        self.cleanup = Cleanup(self.context, Engine(self.context, Checkpoint(store), self.work), "")

    def now(self) -> float:
        return time.time() + self.ahead

    async def pull(self, ref: str) -> None:
        await self.context.supplies.pulls.pull(ref, None)
        image = await self.runtime.image(ref)
        await self.book.pulled(ref, image.id, image.size, self.now())

    async def here(self, *refs: str) -> list[str]:
        names = {name for one in await self.runtime.images() for name in one.tags}
        return [ref for ref in refs if ref in names]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    """One of this module's own: what others left must not be other tests' things."""
    with PrivateEngine(tmp_path_factory.mktemp("cleaned")) as engine:
        yield engine


@pytest.fixture
async def make(engine: PrivateEngine, tmp_path: Any) -> AsyncIterator[Any]:
    store = await open_store(f"sqlite://{tmp_path}/state.db")
    made: list[Host] = []
    async with aiohttp.ClientSession() as session:

        def host(**settings: Any) -> Host:
            made.append(Host(engine, store, session, **settings))
            return made[-1]

        yield host
        for one in made:
            await one.work.close()
            await one.runtime.close()
    await store.close()


async def test_ours_go_by_age_and_count_and_what_is_used_stays(
    make: Any, engine: PrivateEngine, registry: Registry
) -> None:
    refs = []
    for number in range(4):
        local = make_image(engine, f"sexton/clean:{number}")
        refs.append(registry.push(engine, local, f"clean:{number}"))
        engine.cli("rmi", local)
    kept = make_image(engine, "sexton/kept:1")  # not ours
    host = make(images_per_cycle=2, excluded_images=(refs[3],))
    for ref in refs:
        await host.pull(ref)
    user = await host.runtime.create("clean-user", {"Image": refs[0], "Cmd": ["/x"]})

    await host.cleanup.cycle()
    assert await host.here(*refs, kept) == [*refs, kept]
    host.ahead = 2 * HOUR
    assert (await host.cleanup.cycle()).startswith("2 images")
    assert await host.here(*refs, kept) == [refs[0], refs[3], kept]

    again = make(excluded_images=(refs[3],))  # another process: what is ours was written down
    again.ahead = 3 * HOUR
    await again.book.load()
    await again.runtime.remove(user)
    await again.cleanup.cycle()
    assert await again.here(*refs, kept) == [refs[3], kept]
    for ref in (refs[3], kept):
        await again.runtime.remove_image(ref)


async def test_what_others_left_goes_only_when_asked(make: Any, engine: PrivateEngine) -> None:
    theirs = make_image(engine, "sexton/theirs:1")
    host = make(clean_untracked=True, images_per_cycle=100)
    body = {"Image": theirs, "Cmd": ["/x"], "Labels": {"of": "others"}}
    ended = await host.runtime.create("theirs-ended", body)
    host.ahead = HOUR / 2
    await host.cleanup.cycle()
    assert [one.id for one in await host.runtime.list({"of": "others"})] == [ended]

    host.ahead = 2 * HOUR
    polite = make()
    polite.ahead = 2 * HOUR
    await polite.cleanup.cycle()
    assert [one.id for one in await host.runtime.list({"of": "others"})] == [ended]
    await host.cleanup.cycle()
    assert await host.runtime.list({"of": "others"}) == () and await host.here(theirs) == []
