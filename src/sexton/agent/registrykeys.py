"""Log-ins of registries: ECR tokens, secrets that a task names, and the operator's own table.

An ECR token is good for twelve hours and kept in memory until half an hour to an hour before its end, for each role
and registry. Secrets are asked for each time. Nothing is written anywhere.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from sexton.agent.rolekeys import RoleKeys
from sexton.cloud.services import Services
from sexton.core import injection, registryauth
from sexton.core.injection import BadReference
from sexton.core.registryauth import Auth
from sexton.core.taskroles import EXECUTION
from sexton.kit.supervise import Nursery
from sexton.kit.together import Together
from sexton.wire import acs_task

log = logging.getLogger(__name__)

MOST_TOKENS = 100
# Renewed this long before its end, and up to as long again earlier, so that not all are renewed at once.
TOKEN_MARGIN = 30 * 60.0

_ECR_HOST = re.compile(r"(?P<account>[0-9]{12})\.dkr\.ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.")


class _TokenKey(NamedTuple):
    role: str
    region: str
    registry: str
    endpoint: str


class _Login(msgspec.Struct):
    username: str
    password: str


class RegistryKeys:
    """Finds the log-in for an image."""

    def __init__(
        self,
        services: Services,
        roles: RoleKeys,
        nursery: Nursery,
        *,
        table: Mapping[str, Auth],
        region: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._services = services
        self._roles = roles
        self._table = table
        self._region = region
        self._clock = clock
        self._tokens: dict[_TokenKey, tuple[Auth, float]] = {}
        self._asking: Together[_TokenKey, Auth] = Together(nursery)

    async def find(self, task: acs_task.Task, container: acs_task.Container) -> Auth | None:
        """The log-in for a container's image; None when nobody said how to log in.

        MissingRole, BadReference, EcsError, Unreachable or NoCredentials when there is one that cannot be had.
        """
        given = container.registry_authentication
        match given.type if given else "":
            case "ecr":
                return await self._ecr(task, container, (given and given.ecr_auth_data) or acs_task.ECRAuthData())
            case "asm":
                return await self._secret(task, container, (given and given.asm_auth_data) or acs_task.ASMAuthData())
            case _:
                return self._table.get(registryauth.plain(registryauth.host_of(container.image or "")))

    async def _ecr(self, task: acs_task.Task, container: acs_task.Container, data: acs_task.ECRAuthData) -> Auth:
        host = registryauth.host_of(container.image or "")
        named = _ECR_HOST.match(host)
        region = data.region or (named["region"] if named else "") or self._region
        registry = data.registry_id or (named["account"] if named else "")
        keys = await self._roles.execution(task) if data.use_execution_role else self._roles.own
        found = self._roles.find(task.arn or "", EXECUTION)
        role = found[0] if data.use_execution_role and found else ""
        key = _TokenKey(role, region, registry, data.endpoint_override or "")
        kept = self._tokens.get(key)
        if kept is not None and kept[1] > self._clock():
            return kept[0]

        async def ask() -> Auth:
            token = await self._services.registry_token(region, registry, keys, data.endpoint_override or "")
            if len(self._tokens) >= MOST_TOKENS:
                del self._tokens[min(self._tokens, key=lambda one: self._tokens[one][1])]
            auth = registryauth.login(token.user, token.password, token.proxy or host)
            margin = TOKEN_MARGIN * (1 + random.random())  # noqa: S311 - spreads load, guards nothing
            self._tokens[key] = (auth, token.expires_at - margin)
            log.info("registry token fetched", extra={"registry": registry, "region": region})
            return auth

        return await self._asking.do(key, f"token-{registry}", ask)

    async def _secret(self, task: acs_task.Task, container: acs_task.Container, data: acs_task.ASMAuthData) -> Auth:
        ref = injection.read_reference(data.credentials_parameter or "", data.region or self._region)
        keys = await self._roles.execution(task)
        text = await self._services.secret(ref.region, ref.arn, keys, stage=ref.stage, version=ref.version)
        try:
            login = msgspec.json.decode(text or "", type=_Login)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):  # what it holds is not repeated
            raise BadReference(
                f"the secret {ref.arn} must be a JSON object with username and password, both text"
            ) from None
        return registryauth.login(login.username, login.password, registryauth.host_of(container.image or ""))
