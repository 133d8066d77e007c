"""The instance metadata service, closed to what this host forwards for: tasks in network mode bridge and the like.

Off unless asked for. One rule in a table of this agent's own; what an earlier process left is made anew, or removed
when it is not wanted any more. Tasks with a network of their own have a setting of their own.
"""

from __future__ import annotations

import logging

from sexton.core import wiring
from sexton.host import packetfilter
from sexton.host.packetfilter import FilterError
from sexton.settings import Settings

log = logging.getLogger(__name__)


async def set_block(settings: Settings, tag: str) -> None:
    """Have the rule, or not, as the settings say; when that fails it is said."""
    table = wiring.metadata_table(tag)
    try:
        if settings.bridge_block_imds:
            await packetfilter.change(wiring.metadata_rules(tag))
            log.info("instance metadata service is closed to what is forwarded", extra={"table": table})
        elif table in await packetfilter.listing("tables", "inet"):
            await packetfilter.change(wiring.removal(table))
    except FilterError as error:
        if settings.bridge_block_imds:
            log.error("instance metadata service is open to tasks", extra={"reason": str(error)})


async def lift_block(settings: Settings, tag: str) -> None:
    """Take the rule away at the end."""
    if settings.bridge_block_imds:
        try:
            await packetfilter.change(wiring.removal(wiring.metadata_table(tag)))
        except FilterError as error:
            log.warning("rule is left behind", extra={"reason": str(error)})
