"""Secrets and files reach the container they are for, end the task when they cannot be had, and rest nowhere."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sexton.agent.payload import without_keys
from sexton.agent.rolekeys import Sent
from sexton.cloud.exchange import Unreachable
from sexton.core.task import ContainerStatus
from sexton.core.taskroles import EXECUTION
from sexton.runtime.contract import Unavailable
from sexton.wire import acs_task
from unit.agent.rig import Host, arn, container, now, task, until

pytestmark = pytest.mark.looptime

ASM = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
NO_FILE = "Unable to download environment file"
ROLE = acs_task.IAMRoleCredentials(
    credentials_id="c-1", role_arn="arn:role", access_key_id="ASIAEXEC", secret_access_key="hunter3", session_token="t"
)


def secret(name: str, source: str, **fields: Any) -> acs_task.Secret:
    return acs_task.Secret(name=name, value_from=source, **fields)


def file(key: str) -> acs_task.EnvironmentFile:
    return acs_task.EnvironmentFile(value=f"arn:aws:s3:::files/{key}", type="s3")


def environment(host: Host) -> dict[str, str]:
    body = host.runtime.body(host.only().id)
    return dict(one.split("=", 1) for one in body["Env"])


def saved(host: Host) -> bytes:
    return b"".join(host.store.rows.values())


async def test_everything_arrives_and_rests_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asked = container(
        environment={"OWN": "1", "FILE": "own"},
        secrets=(
            secret("PARAMETER", "/p"),
            secret("WHOLE", ASM),
            secret("KEY", f"{ASM}:user::"),
            secret("token", "/t", target="LOG_DRIVER"),
        ),
        environment_files=(file("a.env"), file("b.env")),
        docker_config=acs_task.DockerConfig(host_config='{"LogConfig":{"Type":"splunk"}}'),
    )
    async with Host() as host:
        host.services.known = {"/p": "hunter2-p", "/t": "hunter2-t", ASM: '{"user":"hunter2-u"}'}
        host.services.objects = {("files", "a.env"): b"A=hunter2-a\nFILE=x", ("files", "b.env"): b"A=b\nB=hunter2-b"}
        await host.engine.take([task(1, asked)], 1)
        await host.until_running()

        assert environment(host) == {
            "OWN": "1",
            "FILE": "own",
            "A": "hunter2-a",
            "B": "hunter2-b",
            "PARAMETER": "hunter2-p",
            "WHOLE": '{"user":"hunter2-u"}',
            "KEY": "hunter2-u",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        assert host.runtime.body(host.only().id)["HostConfig"]["LogConfig"]["Config"] == {"token": "hunter2-t"}
        assert [what for what, _ in host.services.asked].count(ASM) == 1  # once, however many keys of it
        await host.checkpoint.flush()
        assert b"hunter2" not in saved(host)
        assert "hunter2" not in caplog.text + str([vars(one) for one in caplog.records])
        assert host.context.supplies.values(arn(), "app") is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"secrets": (secret("A", "/none"), secret("B", "/p"))},
            "Fetching secret data from SSM Parameter Store in us-east-1: invalid parameters: /none",
        ),
        (
            {"secrets": (secret("A", ASM),)},
            f"ResourceNotFoundException: The task can't retrieve the secret with ARN '{ASM}' from AWS Secrets Manager.",
        ),
        (
            {"environment_files": (file("none"),)},
            "Unable to download environment file arn:aws:s3:::files/none: NoSuchKey",
        ),
        (
            {"environment_files": (acs_task.EnvironmentFile(value="s3://x/y"),)},
            "Unable to download environment file s3:",
        ),
        (
            {"secrets": (secret("A", "/none"),), "environment_files": (file("none"),)},
            "Fetching secret data from SSM Parameter Store in us-east-1: invalid parameters: /none;Unable to download",
        ),
    ],
)
async def test_what_cannot_be_had_ends_the_task_by_name(given: Any, reason: str) -> None:
    async with Host() as host:
        host.services.known = {"/p": "v"}
        await host.engine.take([task(1, container(**given, essential=False), container("other"))], 1)
        end = await host.until_stopped()
        await host.until_gone()
    assert (end.reason or "").startswith(reason)


async def test_a_service_that_is_away_ends_the_task_with_its_words() -> None:
    async with Host() as host:
        host.services.failures = [Unreachable("cannot reach http://ssm for GetParameters: refused")]
        await host.engine.take([task(1, container(secrets=(secret("A", "/p"),)))], 1)
        end = await host.until_stopped()
    assert end.reason == (
        "Fetching secret data from SSM Parameter Store in us-east-1: cannot reach http://ssm for GetParameters: refused"
    )


async def test_calls_are_made_by_the_execution_role_that_the_task_has(caplog: pytest.LogCaptureFixture) -> None:
    async with Host() as host:
        host.services.known = {"/p": "v"}
        wanted = task(1, container(secrets=(secret("A", "/p"),)), execution_role_credentials=ROLE)
        host.context.supplies.roles.take(Sent(arn(), EXECUTION, ROLE))
        await host.engine.take([without_keys(wanted)], 1)
        await host.until_running()

        assert host.services.asked == [("/p", "ASIAEXEC")]
        assert b"hunter3" not in saved(host) and b"c-1" in saved(host)
        host.runtime.exit(host.only().id)
        await host.until_gone()
        assert host.context.supplies.roles.find(arn(), EXECUTION) is None


async def test_without_keys_the_task_waits_a_minute_and_ends() -> None:
    async with Host() as host:
        began = now()
        wanted = task(1, container(secrets=(secret("A", ASM),)), execution_role_credentials=ROLE)
        await host.engine.take([without_keys(wanted)], 1)
        end = await host.until_stopped()
        assert 60 <= now() - began < 90
    assert end.reason == "ASM secret resource: unable to find execution role credentials"


async def test_keys_that_come_late_are_in_time() -> None:
    async with Host() as host:
        host.services.known = {"/p": "v"}
        wanted = task(1, container(secrets=(secret("A", "/p"),)), execution_role_credentials=ROLE)
        await host.engine.take([without_keys(wanted)], 1)
        await until(lambda: host.known().status is ContainerStatus.MANIFEST_PULLED)
        assert host.context.supplies.roles.take(Sent(arn(), EXECUTION, ROLE))
        await host.until_running()
    assert host.services.asked == [("/p", "ASIAEXEC")]


async def test_a_stop_while_keys_are_waited_for_is_no_wait() -> None:
    async with Host() as host:
        wanted = task(1, container(secrets=(secret("A", "/p"),)), execution_role_credentials=ROLE)
        await host.engine.take([without_keys(wanted)], 1)
        await until(lambda: host.known().status is ContainerStatus.MANIFEST_PULLED)
        began = now()
        host.engine.stop([arn()], "changed my mind")
        await host.until_stopped()
        assert now() - began < 5


async def test_values_are_fetched_again_by_a_process_that_took_over() -> None:
    async with Host() as host:
        host.services.known = {"/p": "v"}
        gate = host.runtime.hold("create")
        await host.engine.take([task(1, container(secrets=(secret("A", "/p"),)))], 1)
        await gate.reached.wait()
        await host.checkpoint.flush()
        await host.restart()
        gate.open()
        await host.until_running()
        assert environment(host)["A"] == "v"
    assert len(host.services.asked) == 2


async def test_an_engine_that_is_away_meanwhile_costs_nothing() -> None:
    async with Host() as host:
        host.services.known = {"/p": "v"}
        host.runtime.fail("image", Unavailable, 3)
        await host.engine.take([task(1, container(secrets=(secret("A", "/p"),)))], 1)
        await host.until_running()
        assert environment(host)["A"] == "v"
