"""UpdateContainerAgent: there never is anything newer to send, and an agent without a version cannot even be asked."""

from __future__ import annotations

import pytest

from sexton.wire.errors import (
    ClusterNotFoundException,
    InvalidParameterException,
    MissingVersionException,
    NoUpdateAvailableException,
)


async def test_nothing_newer_is_here(world):
    silent = await world.join()
    telling = await world.join(versionInfo={"agentVersion": "1.0.0"})

    with pytest.raises(MissingVersionException):
        await world.do("UpdateContainerAgent", containerInstance=silent)
    with pytest.raises(NoUpdateAvailableException, match="no update available"):
        await world.do("UpdateContainerAgent", containerInstance=telling)


async def test_unknown_instances_and_clusters(world):
    with pytest.raises(InvalidParameterException, match="not found"):
        await world.do("UpdateContainerAgent", containerInstance="f" * 32)
    with pytest.raises(ClusterNotFoundException):
        await world.do("UpdateContainerAgent", cluster="nowhere", containerInstance="f" * 32)
