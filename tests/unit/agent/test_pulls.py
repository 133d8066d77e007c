"""Images: the four behaviours, digests that pin, one pull for many, logins that are used and tokens that are kept."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sexton.agent.pulls import EngineAway
from sexton.agent.rolekeys import Sent
from sexton.agent.steps.resolve import local_image
from sexton.core.task import ContainerStatus
from sexton.core.taskroles import EXECUTION
from sexton.runtime.contract import NotFound, Progress, Refused, TimedOut, Unavailable
from sexton.runtime.fake import FakeRuntime
from sexton.settings.tree import Hidden
from sexton.wire import acs_task
from sexton.wire.errors import EcsError
from unit.agent.rig import IMAGE, Host, arn, container, now, task, until

pytestmark = pytest.mark.looptime

BEHAVIOURS = ("default", "always", "once", "prefer-cached")
PINNED = "ConnectionRefused: connection refused"


def engine(*images: str, registry: tuple[str, ...] = ()) -> FakeRuntime:
    return FakeRuntime(images=images, registry=registry, clock=now)


def reason(end: Any) -> str:
    return end.containers[0].reason or ""


def digests(host: Host) -> list[str | None]:
    return [one.image_digest for change in host.desk.taken for one in change.containers or ()]


# The matrix of what a failing registry means, as the reference has it.


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("cached", [True, False])
async def test_what_a_registry_without_the_image_means(behaviour: str, cached: bool) -> None:
    async with Host(engine(*([IMAGE] if cached else [])), pull_behavior=behaviour) as host:
        await host.engine.take([task()], 1)
        if cached and behaviour in ("default", "prefer-cached"):
            await host.until_running()
            said = host.known().reason
            assert said.startswith("CannotPullImageManifestError: ") if behaviour == "default" else said == ""
        else:
            end = await host.until_stopped()
            assert reason(end).startswith("CannotPullImageManifestError: manifest for app:1 not found")
            assert bool(end.reason) is (behaviour in ("always", "once"))


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_reference_with_a_digest_fails_in_its_pull(behaviour: str) -> None:
    ref = "app@sha256:" + "a" * 64
    async with Host(engine(), pull_behavior=behaviour) as host:
        await host.engine.take([task(1, container(image=ref))], 1)
        end = await host.until_stopped()
    assert reason(end).startswith("CannotPullContainerError: manifest for")
    assert host.runtime.count("digest") == 0


async def test_once_means_once_in_the_life_of_a_host() -> None:
    async with Host(engine(IMAGE, registry=(IMAGE,)), pull_behavior="once") as host:
        await host.engine.take([task(1)], 1)
        await host.until_running(1)
        assert host.runtime.count("digest") == 1  # it was here, but not by us
        await host.restart()
        await host.engine.take([task(2)], 2)
        await host.until_running(2)
        assert host.runtime.count("digest") == 1


async def test_a_task_that_comes_when_the_pull_has_just_ended_makes_no_second_one() -> None:
    """The image is here, but does not have its name yet."""
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        gate = host.runtime.hold("tag")
        await host.engine.take([task(1)], 1)
        await gate.reached.wait()
        await host.engine.take([task(2)], 2)
        await until(lambda: host.runtime.count("tag") == 2)
        gate.open()
        await host.until_running(1)
        await host.until_running(2)
        assert host.runtime.count("pull") == 1


async def test_a_tag_that_moves_meanwhile_moves_nothing() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        first = await host.runtime.digest(IMAGE)
        gate = host.runtime.hold("pull")
        await host.engine.take([task()], 1)
        await gate.reached.wait()
        moved = host.runtime.push(IMAGE)
        gate.open()
        await host.until_running()
        assert host.known().image_digest == first != moved
        assert (await host.runtime.image(IMAGE)).id == first == host.only().image_id
        assert host.runtime.body(host.only().id)["Image"] == IMAGE
        host.runtime.exit(host.only().id)
        await host.until_stopped()
    assert first in digests(host)


async def test_an_image_of_the_right_digest_is_not_pulled_again() -> None:
    async with Host(engine(IMAGE, registry=(IMAGE,)), pull_behavior="always") as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        assert (host.runtime.count("digest"), host.runtime.count("pull")) == (1, 0)
        assert host.book.was_pulled(IMAGE)


async def test_an_engine_that_cannot_ask_for_digests_pulls_by_name() -> None:
    class Old(FakeRuntime):
        async def digest(self, ref: str, auth: Any = None) -> str:
            return ""

    async with Host(Old(registry=[IMAGE], clock=now), pull_behavior="always") as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        assert [call.ref for call in host.runtime.calls if call.method == "pull"] == [IMAGE]
        assert host.known().image_digest == (await host.runtime.image(IMAGE)).id


async def test_fifty_tasks_make_one_pull() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.runtime.delay("pull", 1.0)
        host.runtime.delay("digest", 0.1)
        await host.engine.take([task(number) for number in range(1, 51)], 1)
        for number in range(1, 51):
            await host.until_running(number)
        assert (host.runtime.count("digest"), host.runtime.count("pull")) == (1, 1)


async def test_a_pull_goes_on_while_one_task_wants_it() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.runtime.delay("pull", 10.0)
        await host.engine.take([task(1), task(2)], 1)
        await until(lambda: host.runtime.count("pull") == 1)
        host.engine.stop([arn(1)], "enough")
        await host.until_stopped(1)
        await host.until_running(2)
        assert host.runtime.count("pull") == 1


async def test_a_registry_that_is_slow_holds_back_nobody_else() -> None:
    refs = [f"slow.example/app:{number}" for number in range(5)]
    async with Host(engine(registry=(*refs, "fast.example/app:1")), pull_behavior="always", pull_limit=2) as host:
        gate = host.runtime.hold("pull")
        wanted = [task(number, container(image=ref)) for number, ref in enumerate(refs, start=1)]
        await host.engine.take(wanted, 1)
        await until(lambda: host.runtime.count("pull") == 2)
        await host.engine.take([task(9, container(image="fast.example/app:1"))], 2)
        await until(lambda: host.runtime.count("pull") == 3)
        states = host.context.supplies.pulls.states()
        assert sorted(one.waiting for one in states) == [False, False, False, True, True, True]
        gate.open()
        for number in (1, 2, 3, 4, 5, 9):
            await host.until_running(number)
        assert host.context.supplies.pulls.states() == () and host.context.supplies.pulls.held() == frozenset()


async def test_what_passes_is_tried_again_and_a_no_is_not() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.runtime.fail("digest", Unavailable("503"), 2)
        host.runtime.fail("pull", Unavailable("connection reset by peer"), 4)
        await host.engine.take([task()], 1)
        await host.until_running()
        assert (host.runtime.count("digest"), host.runtime.count("pull")) == (3, 5)

    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.runtime.fail("pull", Refused("pull access denied"))
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
        assert end.reason == "CannotPullContainerError: pull access denied" and host.runtime.count("pull") == 1


async def test_a_registry_that_stays_away_is_given_up() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.runtime.fail("pull", Unavailable("connection reset by peer"), 99)
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
        assert end.reason == "CannotPullContainerError: connection reset by peer" and host.runtime.count("pull") == 5


async def test_a_registry_that_hangs_is_given_up_by_the_clock() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.runtime.fail("pull", TimedOut("no answer", 60.0), 99)
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
    assert end.reason == "DockerTimeoutError: Could not transition to pulled; timed out after waiting 1m0s"
    assert host.runtime.count("pull") == 2


async def test_an_engine_that_dies_in_a_pull_fails_no_task() -> None:
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        gate = host.runtime.hold("pull")
        await host.engine.take([task()], 1)
        await gate.reached.wait()
        host.runtime.down()
        gate.open()
        await asyncio.sleep(30)
        assert host.known().status is ContainerStatus.MANIFEST_PULLED
        host.runtime.up()
        await host.until_running()


async def test_a_full_disk_asks_for_room_before_the_next_try() -> None:
    asked = []
    async with Host(engine(registry=(IMAGE,)), pull_behavior="always") as host:
        host.context.supplies.pulls.make_room = lambda: asked.append(now())
        host.runtime.fail("pull", Refused("write /var/lib/docker/tmp/x: no space left on device"), 2)
        await host.engine.take([task()], 1)
        await host.until_running()
    assert len(asked) == 2


async def test_a_pull_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Slow(FakeRuntime):
        async def pull(self, ref: str, auth: Any = None) -> Any:
            for done in range(1, 4):
                yield Progress(layer="a", status="Downloading", current=done * 10, total=30)
                yield Progress(layer="b", status="Already exists")
                await asyncio.sleep(8)
            yield Progress(layer="a", status="Pull complete")
            self.add_image(IMAGE)

    async with Host(Slow(registry=[IMAGE], clock=now), pull_behavior="always") as host:
        host.runtime._digests[IMAGE] = ""
        await host.engine.take([task()], 1)
        await until(lambda: any(one.done == 20 for one in host.context.supplies.pulls.states()))
        (state,) = host.context.supplies.pulls.states()
        assert (state.total, state.layers, state.ready, state.tasks) == (30, 2, 1, 1)
        await host.until_running()
    said = [vars(one) for one in caplog.records if one.msg == "pull goes on"]
    assert said and said[0]["image"] == IMAGE and said[0]["of"] == 30


# Logins.


def ecr(**data: Any) -> acs_task.RegistryAuthentication:
    return acs_task.RegistryAuthentication(type="ecr", ecr_auth_data=acs_task.ECRAuthData(**data))


def asm(secret: str) -> acs_task.RegistryAuthentication:
    return acs_task.RegistryAuthentication(
        type="asm", asm_auth_data=acs_task.ASMAuthData(credentials_parameter=secret, region="us-east-1")
    )


ECR_IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/app:1"


async def test_a_token_serves_many_pulls_and_is_renewed_before_its_end() -> None:
    async with Host(engine(registry=(ECR_IMAGE,)), pull_behavior="always") as host:
        one = container(image=ECR_IMAGE, registry_authentication=ecr())
        await host.engine.take([task(number, one) for number in range(1, 6)], 1)
        for number in range(1, 6):
            await host.until_running(number)
        assert host.services.asked == [("token 123456789012", "AKID")]
        assert {one["password"] for one in host.runtime.auths if one} == {"pw1"}

        await asyncio.sleep(11.6 * 3600)
        await host.engine.take([task(7, one)], 2)
        await host.until_running(7)
        assert len(host.services.asked) == 2


async def test_the_execution_role_logs_in_where_the_task_has_one() -> None:
    keys = acs_task.IAMRoleCredentials(credentials_id="c", access_key_id="ASIAEXEC", secret_access_key="s")
    async with Host(engine(registry=(ECR_IMAGE,)), pull_behavior="always") as host:
        host.context.supplies.roles.take(Sent(arn(), EXECUTION, keys))
        one = container(image=ECR_IMAGE, registry_authentication=ecr(use_execution_role=True, region="eu-north-1"))
        await host.engine.take([task(1, one)], 1)
        await host.until_running()
    assert host.services.asked == [("token 123456789012", "ASIAEXEC")]


async def test_a_token_that_cannot_be_had_is_named() -> None:
    async with Host(engine(registry=(ECR_IMAGE,)), pull_behavior="always") as host:
        host.services.failures = [EcsError("not authorized", code="AccessDeniedException")]
        await host.engine.take([task(1, container(image=ECR_IMAGE, registry_authentication=ecr()))], 1)
        end = await host.until_stopped()
    assert end.reason == "CannotPullECRContainerError: AccessDeniedException: not authorized"


async def test_a_login_from_a_secret() -> None:
    async with Host(engine(registry=("r.example/app:1",)), pull_behavior="default") as host:
        host.services.known = {"arn:aws:secretsmanager:us-east-1:1:secret:r": '{"username":"u","password":"hunter2"}'}
        one = container(
            image="r.example/app:1", registry_authentication=asm("arn:aws:secretsmanager:us-east-1:1:secret:r")
        )
        await host.engine.take([task(1, one)], 1)
        await host.until_running()
        assert {(auth["username"], auth["password"]) for auth in host.runtime.auths if auth} == {("u", "hunter2")}


@pytest.mark.parametrize("held", [None, '{"username":"u"}', "hunter2"])
async def test_a_secret_that_is_no_login_ends_the_task(held: str | None) -> None:
    name = "arn:aws:secretsmanager:us-east-1:1:secret:r"
    async with Host(engine("r.example/app:1"), pull_behavior="default") as host:
        host.services.known = {name: held} if held else {}
        one = container(image="r.example/app:1", registry_authentication=asm(name))
        await host.engine.take([task(1, one)], 1)
        end = await host.until_stopped()
    assert (end.reason or "").startswith("Fetching secret data from AWS Secrets Manager in region us-east-1: ")
    assert "hunter2" not in str(end)


async def test_the_operator_s_table_logs_in_by_host() -> None:
    table = '{"r.example":{"username":"u","password":"p"}}'
    chosen: dict[str, Any] = {"engine_auth_type": "docker", "engine_auth_data": Hidden(table)}
    async with Host(engine(registry=("r.example/app:1", IMAGE)), pull_behavior="always", **chosen) as host:
        await host.engine.take([task(1, container(image="r.example/app:1")), task(2)], 1)
        await host.until_running(1)
        await host.until_running(2)
        users = {call.ref.partition("@")[0]: auth and auth["username"] for call, auth in _asked(host)}
    assert users["r.example/app:1"] == "u" and users[IMAGE] is None


def _asked(host: Host) -> Any:
    return zip([one for one in host.runtime.calls if one.method in ("digest", "pull")], host.runtime.auths, strict=True)


async def test_a_reference_that_is_none_is_no_crash() -> None:
    async with Host(engine(), pull_behavior="default") as host:
        host.runtime.fail("image", Refused("invalid reference format", 400))
        assert await local_image(host.context, "::") is None
        with pytest.raises(NotFound):
            await host.context.supplies.pulls.digest("none", None)
        host.runtime.down()
        with pytest.raises(EngineAway):
            await host.context.supplies.pulls.digest("none", None)


async def test_a_host_that_is_offline_starts_what_it_has_within_seconds() -> None:
    async with Host(engine(IMAGE), pull_behavior="default") as host:
        host.runtime.fail("digest", Unavailable("lookup registry: no such host"), 99)
        host.runtime.fail("pull", Unavailable("lookup registry: no such host"), 99)
        began = now()
        await host.engine.take([task()], 1)
        await host.until_running()
        assert now() - began < 6 and (host.runtime.count("digest"), host.runtime.count("pull")) == (7, 1)
        assert host.known().reason == "CannotPullImageManifestError: lookup registry: no such host"
