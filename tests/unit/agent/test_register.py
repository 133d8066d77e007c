"""Registering: what passes is waited for, what does not ends with cause and cure, and an identity is kept."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.agent import register
from sexton.agent.checkpoint import Checkpoint, Self
from sexton.agent.standdown import StandDown
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Attempt, NoCredentials
from sexton.runtime.contract import EngineInfo
from sexton.settings import Settings
from sexton.wire import ecs
from sexton.wire.errors import ClientException, ClusterNotFoundException, EcsError, ServerException
from unit.agent.rig import INSTANCE, Memory

pytestmark = pytest.mark.looptime

ENGINE = EngineInfo(
    name="docker",
    version="20.10",
    api_version="1.41",
    api_versions=("1.12", "1.17", "1.26", "1.32", "1.41"),
    log_drivers=("json-file",),
)


class Office:
    """The control plane's answers to a registration, as scripted; it echoes attributes as the real one does."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls: list[str] = []
        self.requests: list[ecs.RegisterContainerInstanceRequest] = []
        self.drops: set[str] = set()

    async def call(self, operation: str, request: Any, answer: Any = None) -> Any:
        self.calls.append(operation)
        if self.failures:
            failure = self.failures.pop(0)
            if failure is not None:
                raise failure
        if operation == "CreateCluster":
            return ecs.CreateClusterResponse()
        self.requests.append(request)
        kept = tuple(one for one in request.attributes or () if one.name not in self.drops)
        arn = request.container_instance_arn or INSTANCE
        return ecs.RegisterContainerInstanceResponse(
            container_instance=ecs.ContainerInstance(container_instance_arn=arn, attributes=kept)
        )


async def join(office: Office, store: Memory | None = None, **settings: Any) -> str:
    chosen = Settings(**settings)
    checkpoint = Checkpoint(store or Memory())  # type: ignore[arg-type]
    await checkpoint.load()
    return await register.register(
        office,  # type: ignore[arg-type]
        checkpoint,
        chosen,
        register.attributes(chosen, ENGINE, task_limits=True),
        register.resources(chosen, 4096),
    )


async def test_identity_is_kept_and_custom_attributes_are_sent_once() -> None:
    store, office = Memory(), Office()
    for _ in range(2):
        assert await join(office, store, instance_attributes={"rack": "7"}) == INSTANCE
    first, second = office.requests
    assert first.container_instance_arn is None and second.container_instance_arn == INSTANCE
    assert "rack" in {one.name for one in first.attributes or ()}
    assert "rack" not in {one.name for one in second.attributes or ()}


async def test_only_what_is_served_is_advertised() -> None:
    office = Office()
    await join(office, disable_privileged=True, logging_drivers=("json-file", "syslog", "none"))
    offered = {one.name for one in office.requests[0].attributes or ()}
    assert "com.amazonaws.ecs.capability.docker-remote-api.1.17" in offered
    assert "com.amazonaws.ecs.capability.docker-remote-api.1.12" not in offered
    assert "com.amazonaws.ecs.capability.docker-remote-api.1.26" not in offered
    assert "com.amazonaws.ecs.capability.docker-remote-api.1.41" not in offered
    assert "com.amazonaws.ecs.capability.logging-driver.json-file" in offered
    assert "com.amazonaws.ecs.capability.logging-driver.none" in offered
    assert "com.amazonaws.ecs.capability.logging-driver.syslog" not in offered
    assert "com.amazonaws.ecs.capability.privileged-container" not in offered


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("away"),
        ServerException("busy"),
        EcsError("slow down", code="ThrottlingException", status=400),
        EcsError("full", code="LimitExceededException", status=400),
        NoCredentials([Attempt("instance role", "no answer", True)]),
    ],
)
async def test_what_passes_is_waited_for(failure: Exception) -> None:
    office = Office(*[failure] * 12)
    assert await join(office) == INSTANCE


@pytest.mark.parametrize(
    "failure",
    [
        ClusterNotFoundException("Cluster not found."),
        EcsError("no", code="UnrecognizedClientException", status=400),
        EcsError("no", code="InvalidSignatureException", status=403),
        EcsError("no", code="AccessDeniedException", status=400),
        NoCredentials([Attempt("environment", "not set", False)]),
    ],
)
async def test_what_does_not_pass_is_final(failure: Exception) -> None:
    office = Office(failure)
    with pytest.raises(StandDown) as caught:
        await join(office, cluster="prod")
    assert caught.value.cause and caught.value.cure and len(office.calls) == 1


async def test_default_cluster_is_made_when_it_is_missing_however_long_that_takes() -> None:
    gone = ClientException("Cluster not found.")
    office = Office(gone, Unreachable("restarting"), ServerException("busy"))
    assert await join(office) == INSTANCE
    assert office.calls == ["RegisterContainerInstance", *["CreateCluster"] * 3, "RegisterContainerInstance"]


async def test_attribute_that_is_not_echoed_is_final() -> None:
    office = Office()
    office.drops = {"ecs.os-type"}
    with pytest.raises(StandDown, match=r"ecs\.os-type"):
        await join(office)


async def test_other_cluster_than_before_is_final() -> None:
    store = Memory()
    await Checkpoint(store).become(Self(cluster="a", instance_arn=INSTANCE))  # type: ignore[arg-type]
    office = Office()
    with pytest.raises(StandDown, match="saved cluster 'a'"):
        await join(office, store, cluster="b")
    assert not office.calls


def test_more_reserved_memory_than_there_is() -> None:
    with pytest.raises(StandDown, match="ECS_RESERVED_MEMORY"):
        register.resources(Settings(reserved_memory=4096), 4096)
