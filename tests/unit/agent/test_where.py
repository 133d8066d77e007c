"""Where a host is: what an instance's metadata says, what settings say elsewhere, what is kept quiet."""

from __future__ import annotations

import asyncio

import pytest

from sexton.agent.metadata import where as module
from sexton.agent.metadata.where import Where
from sexton.cloud.exchange import Unreachable
from sexton.core.sight import Place
from sexton.kit.retry import Backoff
from sexton.settings import Settings

MAC = "0e:9a:5b:00:00:01"
FACTS = {
    "mac": MAC + "\n",
    "placement/availability-zone": "eu-west-1b",
    "placement/availability-zone-id": "euw1-az2",
    f"network/interfaces/macs/{MAC}/vpc-id": "vpc-0123",
    "local-ipv4": "10.0.0.7",
    "public-ipv4": "203.0.113.7",
}
ATTRIBUTE = {"ecs.availability-zone": "rack-4"}


class Instance:
    """An instance's metadata service, which may be away at first."""

    def __init__(self, facts: dict[str, str], away: int = 0) -> None:
        self._facts = facts
        self.away = away

    async def get(self, path: str) -> str | None:
        if self.away:
            self.away -= 1
            raise Unreachable("cannot reach http://169.254.169.254")
        return self._facts.get(path.removeprefix("meta-data/"))


async def learnt(instance: Instance, **settings: object) -> Place:
    where = Where("default", Settings(**settings))  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        await where.learn(instance)  # type: ignore[arg-type]
    return where.place


async def test_an_instance_says_where_it_is():
    place = await learnt(Instance(FACTS), instance_attributes=ATTRIBUTE)

    assert place == Place("default", "eu-west-1b", "euw1-az2", "vpc-0123", "10.0.0.7", "203.0.113.7")


async def test_a_zone_that_is_to_be_hidden_is_told_in_neither_form():
    place = await learnt(Instance(FACTS), hide_zone=True, instance_attributes=ATTRIBUTE)

    assert (place.zone, place.zone_id, place.vpc) == ("", "", "vpc-0123")


async def test_what_an_instance_does_not_say_is_left_out():
    place = await learnt(Instance({"local-ipv4": "10.0.0.7"}), instance_attributes=ATTRIBUTE)

    assert place == Place("default", zone="rack-4", private_ipv4="10.0.0.7")


def test_elsewhere_the_zone_is_the_attribute_that_placement_spreads_by():
    assert Where("default", Settings(instance_attributes=ATTRIBUTE)).place == Place("default", zone="rack-4")
    assert Where("default", Settings(instance_attributes=ATTRIBUTE, hide_zone=True)).place == Place("default")


async def test_it_is_asked_again_until_it_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ASK_BACKOFF", Backoff(first=0.001, cap=0.001))
    instance = Instance(FACTS, away=3)

    assert (await learnt(instance)).vpc == "vpc-0123"
    assert instance.away == 0
