"""The tags of tasks and of this host, asked of the control plane when a task wants them.

An answer is good for a moment, so that tasks which ask all the time cost the control plane little. What it refuses is
told to the task, field by field.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from sexton.cloud.client import EcsClient
from sexton.cloud.credentials import NoCredentials
from sexton.cloud.exchange import Unreachable
from sexton.wire import ecs_agent as ecs
from sexton.wire import metadata
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
ANSWER_SECONDS = 4.0
MOST_KEPT = 256


class Tags:
    """Asks with the agent's own credentials."""

    def __init__(self, client: EcsClient) -> None:
        self._client = client
        self._kept: OrderedDict[str, tuple[float, dict[str, str]]] = OrderedDict()
        self._asking = asyncio.Lock()

    async def of(self, arn: str, field: str) -> dict[str, str] | metadata.TagError:
        """The tags of a resource, or what kept them from ``field``."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            kept = self._kept.get(arn)
            if kept is not None and now - kept[0] < FRESH_SECONDS:
                return kept[1]
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    tags = await self._ask(arn)
            except EcsError as error:
                problem = metadata.TagError(
                    error_field=field,
                    error_code=error.code,
                    error_message=error.message,
                    status_code=error.status,
                    resource_arn=arn,
                )
            except (Unreachable, NoCredentials) as error:
                problem = metadata.TagError(error_field=field, error_message=str(error), resource_arn=arn)
            except TimeoutError:
                words = f"cannot list tags: no answer within {ANSWER_SECONDS:g} s"
                problem = metadata.TagError(error_field=field, error_message=words, resource_arn=arn)
            else:
                self._kept[arn] = (now, tags)
                self._kept.move_to_end(arn)
                if len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
                return tags
        log.warning("tags cannot be listed", extra={"resource": arn, "reason": problem.error_message})
        return problem

    async def _ask(self, arn: str) -> dict[str, str]:
        request = ecs.ListTagsForResourceRequest(resource_arn=arn)
        answer = await self._client.call("ListTagsForResource", request, ecs.ListTagsForResourceResponse)
        return {tag.key: tag.value or "" for tag in answer.tags or () if tag.key}
