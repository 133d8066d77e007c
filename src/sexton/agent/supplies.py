"""What tasks of this host are given from elsewhere: images, log-ins, role keys, values. All in memory.

One place for what the steps share, so that fifty tasks of one image make one pull and one log-in. Values that were
fetched for a container wait here between the step that fetches them and the one that hands them to the engine; they
leave with that, and at the latest with the task. Only the book of pulled images is durable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sexton.agent.imagebook import ImageBook
from sexton.agent.pulls import Pulls
from sexton.agent.registrykeys import RegistryKeys
from sexton.agent.rolekeys import RoleKeys
from sexton.cloud.services import Services
from sexton.core import registryauth
from sexton.core.injection import Values
from sexton.core.registryauth import BadAuthData
from sexton.core.taskroles import EXECUTION, TASK
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import Runtime
from sexton.settings import Settings
from sexton.wire import acs_task

log = logging.getLogger(__name__)

MOST_IMAGES = 500


class Supplies:
    """Shared by all steps of all tasks."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        services: Services,
        roles: RoleKeys,
        nursery: Nursery,
        *,
        book: ImageBook,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.services = services
        self.roles = roles
        self.book = book
        self.pulls = Pulls(runtime, nursery, limit=settings.pull_limit, clock=clock)
        self.registries = RegistryKeys(
            services, roles, nursery, table=_table(settings), region=settings.region, clock=clock
        )
        self._values: dict[tuple[str, str], Values] = {}
        self._variables: dict[str, tuple[str, ...]] = {}

    def expect_keys(self, task: acs_task.Task, *, stopped: bool) -> None:
        """Know under which ids a task asks for keys, as it was saved: they themselves never are."""
        for role, keys in ((TASK, task.role_credentials), (EXECUTION, task.execution_role_credentials)):
            if keys is not None and keys.credentials_id and not (stopped and role == TASK):
                self.roles.expect(task.arn or "", role, keys.credentials_id)

    def put_values(self, task: str, container: str, values: Values) -> None:
        self._values[task, container] = values

    def values(self, task: str, container: str) -> Values | None:
        """What was fetched for a container, unless it was handed over already or this process is new."""
        return self._values.get((task, container))

    def handed_over(self, task: str, container: str) -> None:
        """The engine has them now."""
        self._values.pop((task, container), None)

    def image_seen(self, ref: str, variables: tuple[str, ...]) -> None:
        """Remember which variables the image under this reference sets."""
        if len(self._variables) >= MOST_IMAGES:
            del self._variables[next(iter(self._variables))]
        self._variables[ref] = variables

    def variables(self, ref: str) -> tuple[str, ...] | None:
        """Names of the variables that an image sets; None when it was not seen."""
        return self._variables.get(ref)

    def forget(self, task: str) -> None:
        """The task has stopped."""
        self.roles.forget(task)
        for key in [key for key in self._values if key[0] == task]:
            del self._values[key]


def _table(settings: Settings) -> dict[str, registryauth.Auth]:
    try:
        return registryauth.read(settings.engine_auth_type, settings.engine_auth_data)
    except BadAuthData as error:
        log.warning("setting is not usable", extra={"setting": "ECS_ENGINE_AUTH_DATA", "reason": str(error)})
        return {}
