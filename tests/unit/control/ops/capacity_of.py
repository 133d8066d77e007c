"""Capacity providers of a test's world: made, given to the default cluster, with hosts that belong to them."""

from __future__ import annotations

from sexton.core.capacity import PROVIDER_ATTRIBUTE

GROUP = {"autoScalingGroupArn": "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:u:autoScalingGroupName/g"}


async def make(world, name="edge", **fields):
    answer = await world.do("CreateCapacityProvider", name=name, autoScalingGroupProvider=GROUP | fields)
    return answer["capacityProvider"]


async def put(world, names, strategy=()):
    return await world.do(
        "PutClusterCapacityProviders",
        cluster="default",
        capacityProviders=list(names),
        defaultCapacityProviderStrategy=list(strategy),
    )


def share(provider, weight=1, base=0):
    return {"capacityProvider": provider, "weight": weight, "base": base}


async def member(world, provider):
    """A container instance that belongs to a provider."""
    arn = await world.join()
    attribute = {"name": PROVIDER_ATTRIBUTE, "value": provider, "targetId": arn}
    await world.do("PutAttributes", attributes=[attribute])
    return arn
