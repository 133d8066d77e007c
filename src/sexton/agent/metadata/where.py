"""Where this host is: its zone, its VPC, its addresses, as far as anything says so.

An instance's metadata service knows, and is asked in the background, since nobody's start may wait for it. On any other
host the zone is what ``ECS_INSTANCE_ATTRIBUTES`` calls ``ecs.availability-zone``, which placement spreads by as well.
"""

from __future__ import annotations

import asyncio
import logging

from sexton.cloud.exchange import Unreachable
from sexton.cloud.instance import InstanceService
from sexton.core.sight import Place
from sexton.kit.retry import Backoff
from sexton.settings import Settings

log = logging.getLogger(__name__)

ZONE_ATTRIBUTE = "ecs.availability-zone"
ASK_BACKOFF = Backoff(first=1.0, cap=300.0)


class Where:
    """The place as it is known so far."""

    def __init__(self, cluster: str, settings: Settings) -> None:
        self._settings = settings
        zone = "" if settings.hide_zone else settings.instance_attributes.get(ZONE_ATTRIBUTE, "")
        self.place = Place(cluster, zone=zone)

    async def learn(self, instance: InstanceService) -> None:
        """Ask until it is known."""
        for delay in ASK_BACKOFF.delays():
            try:
                await self._ask(instance)
            except Unreachable as error:
                log.info("place of this instance cannot be asked for", extra={"reason": str(error)})
            else:
                return
            await asyncio.sleep(delay)

    async def _ask(self, instance: InstanceService) -> None:
        async def fact(path: str) -> str:
            return (await instance.get(f"meta-data/{path}") or "").strip()

        mac = await fact("mac")
        shown = not self._settings.hide_zone
        self.place = self.place._replace(
            zone=(await fact("placement/availability-zone") or self.place.zone) if shown else "",
            zone_id=await fact("placement/availability-zone-id") if shown else "",
            vpc=await fact(f"network/interfaces/macs/{mac}/vpc-id") if mac else "",
            private_ipv4=await fact("local-ipv4"),
            public_ipv4=await fact("public-ipv4"),
        )
