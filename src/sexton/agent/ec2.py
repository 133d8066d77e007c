"""What an agent on EC2 does because of EC2: waits out a warm pool, knows its instance, drains before its end.

    before it registers    an instance in a warm pool waits until it is to go into service
    at registration        the signed identity, and the instance's tags where they are wanted
    while it runs          a Spot notice drains this container instance, once, and as often as it takes

A host that is no EC2 instance is never asked anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice

import aiohttp

from sexton.agent.standdown import StandDown
from sexton.agent.steps.context import Identity as Membership
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.instance import Identity, InstanceService, tags_of
from sexton.kit.retry import Backoff
from sexton.settings import Settings
from sexton.wire import ecs_agent as ecs
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

# As Amazon's agent does it: a notice is two minutes ahead, and each second of them counts.
SPOT_SECONDS = 1.0
# The metadata service that does not answer is not asked that often.
SPOT_BACKOFF = Backoff(first=1.0, cap=30.0)
WARM_POOL_SECONDS = 60.0
WARM_POOL_ASKS = 120
IN_SERVICE = "InService"
IDENTITY_BACKOFF = Backoff(first=0.1, cap=5.0)
IDENTITY_TRIES = 4
# What makes a drain worth it; other words, such as rebalance recommendations, do not end an instance.
_ENDS = frozenset({"hibernate", "stop", "terminate"})


async def identity(service: InstanceService) -> Identity:
    """Who this instance is; nobody where that cannot be learnt, which keeps no host from joining."""
    for delay in islice(IDENTITY_BACKOFF.delays(), IDENTITY_TRIES):
        try:
            return await service.identity()
        except Unreachable as error:
            reason = str(error)
        await asyncio.sleep(delay)
    log.warning("instance identity cannot be learnt", extra={"reason": reason})
    return Identity()


async def leave_warm_pool(service: InstanceService) -> None:
    """Return once this instance is to go into service; StandDown when it is in no Auto Scaling group after all."""
    said = ""
    absent = 0
    while True:
        try:
            state = await service.lifecycle_state()
        except Unreachable as error:
            state = f"unknown: {error}"
        else:
            if state == IN_SERVICE:
                return
            absent = absent + 1 if state is None else 0
        if absent >= WARM_POOL_ASKS:
            raise StandDown(
                "this instance has no Auto Scaling lifecycle state", "Unset ECS_WARM_POOLS_CHECK, or add it to a group"
            )
        shown = state or "not there yet"
        if shown != said:
            log.info("waiting until the instance leaves its warm pool", extra={"state": shown})
            said = shown
        await asyncio.sleep(WARM_POOL_SECONDS)


async def drain_at_notice(service: InstanceService, client: EcsClient, member: Membership) -> None:
    """Watch for the notice that EC2 takes this instance back, and set it to draining; ends when that is done."""
    delays = SPOT_BACKOFF.delays()
    while True:
        try:
            notice = await service.spot_notice()
            delays = SPOT_BACKOFF.delays()
        except Unreachable as error:
            log.debug("spot notice cannot be asked for", extra={"reason": str(error)})
            await asyncio.sleep(next(delays))
            continue
        if notice is not None and notice.action in _ENDS:
            log.warning("EC2 takes this instance back", extra={"action": notice.action, "at": notice.at})
            if await drain(client, member):
                return
        await asyncio.sleep(SPOT_SECONDS)


async def drain(client: EcsClient, member: Membership) -> bool:
    """Ask for this container instance to be drained; False when it has to be asked for again."""
    request = ecs.UpdateContainerInstancesStateRequest(
        cluster=member.cluster, container_instances=(member.instance_arn,), status="DRAINING"
    )
    try:
        answer = await client.call("UpdateContainerInstancesState", request, ecs.UpdateContainerInstancesStateResponse)
    except (EcsError, Unreachable, NoCredentials) as error:
        log.warning("cannot drain this container instance", extra={"reason": str(error)})
        return False
    for failure in answer.failures or ():
        log.warning("cannot drain this container instance", extra={"reason": failure.reason})
        return False
    log.warning("this container instance is draining", extra={"instance": member.instance_arn})
    return True


async def tags(
    http: aiohttp.ClientSession,
    environment: Mapping[str, str],
    who: Identity,
    settings: Settings,
    credentials: CredentialSource,
) -> dict[str, str]:
    """The instance's own tags, where they are to be the container instance's as well."""
    if settings.propagate_tags != "ec2_instance":
        return {}
    if not who.instance_id:
        raise StandDown(
            "ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM is ec2_instance and this is no EC2 instance that can be asked",
            "Unset it, or see to it that instance metadata can be reached",
        )
    try:
        return await tags_of(http, environment, who.instance_id, who.region or settings.region, credentials)
    except (EcsError, Unreachable) as error:
        raise StandDown(
            f"cannot get this instance's tags: {error}",
            "Allow ec2:DescribeTags, or unset ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM",
        ) from None
