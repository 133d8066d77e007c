"""Images and volumes behind the runtime contract, one suite over a real engine with a real registry and the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine import PrivateEngine
from registry import PASSWORD, USER, Registry, make_image
from sexton.runtime.contract import Conflict, NotFound, Refused, Runtime, Unavailable
from sexton.runtime.fake import FakeRuntime
from sexton.runtime.opening import open_runtime

pytestmark = pytest.mark.timeout(60)

LABELS = {"suite": "stores"}


class DockerBench:
    def __init__(self, engine: PrivateEngine, registry: Registry) -> None:
        self.runtime: Runtime = open_runtime(engine.url)
        self._engine = engine
        self._registry = registry

    def push(self, name: str) -> str:
        """A new image in the registry; its reference."""
        local = make_image(self._engine, "sexton/content:1")
        return self._registry.push(self._engine, local, name)

    def missing(self) -> str:
        return self._registry.ref("none:1")


class FakeBench:
    def __init__(self) -> None:
        self.fake = FakeRuntime()
        self.runtime: Runtime = self.fake

    def push(self, name: str) -> str:
        ref = f"registry.example/{name}"
        self.fake.push(ref)
        return ref

    def missing(self) -> str:
        return "registry.example/none:1"


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "fake"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made: DockerBench | FakeBench
    if request.param == "docker":
        made = DockerBench(request.getfixturevalue("engine_session"), request.getfixturevalue("registry"))
    else:
        made = FakeBench()
    yield made
    runtime = made.runtime
    for brief in await runtime.list(LABELS):
        await runtime.remove(brief.id, force=True)
    for volume in await runtime.volumes(LABELS):
        await runtime.remove_volume(volume.name)
    await runtime.close()


async def pull(runtime: Runtime, ref: str, auth: dict[str, str] | None = None) -> None:
    async for _ in runtime.pull(ref, auth):
        pass


async def test_a_digest_names_one_image_whatever_the_tag_becomes(bench: Any) -> None:
    runtime = bench.runtime
    ref = bench.push("pinned:1")
    first = await runtime.digest(ref)
    repository = ref.rpartition(":")[0]
    bench.push("pinned:1")

    assert first.startswith("sha256:") and await runtime.digest(ref) != first
    await pull(runtime, f"{repository}@{first}")
    image = await runtime.image(f"{repository}@{first}")
    assert f"{repository}@{first}" in image.digests and image.tags == ()
    await runtime.tag(f"{repository}@{first}", ref)
    assert (await runtime.image(ref)).id == image.id
    await runtime.remove_image(ref)
    await runtime.remove_image(image.id)
    with pytest.raises(NotFound):
        await runtime.image(image.id)


async def test_a_name_moves_to_the_image_that_is_pulled_under_it(bench: Any) -> None:
    runtime = bench.runtime
    ref = bench.push("moving:1")
    await pull(runtime, ref)
    old = (await runtime.image(ref)).id
    bench.push("moving:1")
    await pull(runtime, ref)

    assert (await runtime.image(ref)).id != old
    assert old in {one.id for one in await runtime.images()}
    assert ref not in (await runtime.image(old)).tags
    await runtime.remove_image(ref)
    await runtime.remove_image(old)


async def test_what_the_registry_lacks_is_not_found(bench: Any) -> None:
    with pytest.raises((NotFound, Refused)):
        await bench.runtime.digest(bench.missing())


async def test_removing_what_is_not_there_is_no_error(bench: Any) -> None:
    await bench.runtime.remove_image("registry.example/never-was:1")
    await bench.runtime.remove_volume("never-was")


async def test_a_volume_is_made_once_found_and_removed(bench: Any) -> None:
    runtime = bench.runtime
    made = await runtime.create_volume("stores-one", driver="local", options={}, labels=LABELS)
    again = await runtime.create_volume("stores-one", driver="local", options={}, labels=LABELS)

    assert made == again and made.driver == "local" and made.labels == LABELS and made.mountpoint
    assert await runtime.volume("stores-one") == made
    assert [one.name for one in await runtime.volumes(LABELS)] == ["stores-one"]
    assert await runtime.volumes({"suite": "another"}) == ()
    await runtime.remove_volume("stores-one")
    with pytest.raises(NotFound):
        await runtime.volume("stores-one")


async def test_the_drivers_are_told(bench: Any) -> None:
    """Engines look for one that is not there for a quarter of a minute, so it is better not to ask for it."""
    assert "local" in (await bench.runtime.describe()).volume_drivers


async def test_a_volume_in_use_stays(bench: Any, request: pytest.FixtureRequest) -> None:
    runtime = bench.runtime
    if isinstance(bench, FakeBench):
        bench.fake.add_image("sexton/busybox:latest")
    else:
        request.getfixturevalue("busybox_image")
    await runtime.create_volume("stores-used", driver="local", options={}, labels=LABELS)
    body = {
        "Image": "sexton/busybox:latest",
        "Labels": LABELS,
        "HostConfig": {"NetworkMode": "none", "Binds": ["stores-used:/data"]},
    }
    made = await runtime.create("stores-user", body)

    with pytest.raises(Conflict):
        await runtime.remove_volume("stores-used")
    image = await runtime.image("sexton/busybox:latest")
    assert [one.image_id for one in await runtime.list(LABELS)] == [image.id]
    await runtime.remove(made, force=True)
    await runtime.remove_volume("stores-used")


@pytest.mark.docker
async def test_a_locked_registry_opens_with_its_password(
    engine_session: PrivateEngine, locked_registry: Registry
) -> None:
    runtime = open_runtime(engine_session.url)
    ref = locked_registry.push(engine_session, make_image(engine_session, "sexton/content:1"), "locked:1")
    auth = {"username": USER, "password": PASSWORD, "serveraddress": locked_registry.host}
    for wrong in (None, {**auth, "password": "no"}):
        with pytest.raises(Refused):
            await runtime.digest(ref, wrong)
        with pytest.raises(Refused):
            await pull(runtime, ref, wrong)

    assert (await runtime.digest(ref, auth)).startswith("sha256:")
    await pull(runtime, ref, auth)
    assert ref in (await runtime.image(ref)).tags
    await runtime.remove_image(ref)
    await runtime.close()


@pytest.mark.docker
async def test_the_disk_is_measured(engine_session: PrivateEngine, busybox_image: str) -> None:
    runtime = open_runtime(engine_session.url)
    make_image(engine_session, "sexton/large:1", 300_000)
    image = await runtime.image("sexton/large:1")
    await runtime.create_volume("stores-measured", driver="local", options={}, labels=LABELS)
    command = ["sh", "-c", "head -c 200000 /dev/zero > /data/x; head -c 100000 /dev/zero > /tmp/x"]
    host = {"NetworkMode": "none", "Binds": ["stores-measured:/data"]}
    made = await runtime.create("stores-writer", {"Image": busybox_image, "Cmd": command, "HostConfig": host})
    async with runtime.events() as events:
        await runtime.start(made)
        async for event in events:
            if event.kind == "die":
                break
    use = await runtime.disk_use()

    assert use.images[image.id] >= 300_000
    assert use.containers[made] >= 100_000
    assert use.volumes["stores-measured"] >= 200_000
    assert (await runtime.inspect(made)).log_path.endswith("-json.log")
    await runtime.remove(made)
    await runtime.remove_volume("stores-measured")
    await runtime.remove_image("sexton/large:1")
    await runtime.close()


@pytest.mark.docker
async def test_an_image_tells_which_variables_it_sets(engine_session: PrivateEngine) -> None:
    runtime = open_runtime(engine_session.url)
    make_image(engine_session, "sexton/regional:1", changes="ENV AWS_REGION=eu-west-1")

    assert (await runtime.image("sexton/regional:1")).variables[-1] == "AWS_REGION"
    await runtime.remove_image("sexton/regional:1")
    await runtime.close()


async def test_an_engine_that_is_away_is_no_refusal() -> None:
    runtime = open_runtime("unix:///no/such/socket")
    with pytest.raises(Unavailable):
        await runtime.volume("x")
    with pytest.raises(Unavailable):
        await runtime.images()
    await runtime.close()
