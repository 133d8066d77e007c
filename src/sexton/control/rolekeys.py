"""The keys of tasks' roles: made here, or fetched from where the roles file says.

    a role and a session's name -> the entry of the roles file -> keys, and until when they are good
    a token that comes back with a request -> the local keys that belong to it

Local keys are made from a seal that is in the store, so that every control plane over it accepts them, also after a
restart; nothing else of them is kept, and nobody can list them. Keys that come from elsewhere are not kept either:
they go into one message to one agent. No key is ever logged.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import aiohttp

from sexton.cloud.credential_endpoints import ContainerEndpoint, InstanceMetadata
from sexton.cloud.credential_files import Environment, SharedFile
from sexton.cloud.credentials import Attempt, Credentials, Keyring, NoCredentials, Unavailable
from sexton.cloud.exchange import Unreachable
from sexton.cloud.sts import Sts
from sexton.control.records import Records, SealRecord
from sexton.control.rolebook import Rolebook
from sexton.core import names, sessionkey
from sexton.core.rolesfile import DURATION_SECONDS, RoleEntry, Source
from sexton.core.sessionkey import Session, SessionKeys
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

SEAL = "1"
SEAL_BYTES = 32
# A role that gave keys is believed to give some again for so long.
PROVEN_SECONDS = 300.0
MOST_PROVEN = 1000
PROOF_NAME = "sexton-run-task"
DEFAULT_REGION = "us-east-1"


class NoRole(Exception):  # noqa: N818 - becomes an answer, or a task's reason
    """There are no keys of a role; the message says why and what to do. ``passing``: later there may be some."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Issued(NamedTuple):
    """Keys of a role, and from when until when they are good."""

    credentials: Credentials
    issued_at: float
    expires_at: float

    @property
    def expiration(self) -> str:
        """The end as it goes onto the wire."""
        return datetime.fromtimestamp(self.expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class RoleKeys:
    """Where tasks' keys come from."""

    def __init__(
        self,
        records: Records,
        book: Rolebook,
        http: aiohttp.ClientSession,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records = records
        self.book = book
        self._http = http
        self._environment = environment
        self._clock = clock
        places = (
            Environment(environment),
            SharedFile.from_environment(environment),
            ContainerEndpoint(environment, http),
            InstanceMetadata(environment, http),
        )
        self._own = Keyring(places, clock)
        self._proven: dict[str, tuple[RoleEntry, float]] = {}

    async def open(self) -> None:
        """Make the seal if there is none; of several control planes that start at once, one makes it."""
        table = self._records.seals
        if table.get(SEAL) is None:
            made = SealRecord(secret=secrets.token_bytes(SEAL_BYTES), made_at=self._clock())
            await self._records.commit(
                [self._records.unchanged(table, None, SEAL)], [self._records.put(table, made, SEAL)]
            )

    @property
    def _seal(self) -> bytes:
        entry = self._records.seals.get(SEAL)
        assert entry is not None, "the seal has been made"
        return entry.value.secret

    def session(self, token: str) -> SessionKeys | None:
        """The local keys that belong to a token."""
        return sessionkey.read(self._seal, token)

    def credentials_id(self, task_arn: str, role_type: str) -> str:
        """What a task asks its endpoint with, for as long as it lives."""
        return sessionkey.credentials_id(self._seal, task_arn, role_type)

    async def issue(self, role_arn: str, name: str) -> Issued:
        """Keys of a role for a session of this name; NoRole when there are none."""
        entry = self.entry(role_arn)
        try:
            issued = await self._issue(entry, role_arn, name)
        except EcsError as error:
            said = f"STS answered {error.code}: {error.message}"
            raise NoRole(self._cannot(role_arn, entry, said), passing=error.status >= 500) from None
        except Unreachable as error:
            raise NoRole(self._cannot(role_arn, entry, str(error)), passing=True) from None
        except NoCredentials as error:
            raise NoRole(self._cannot(role_arn, entry, str(error)), passing=error.may_heal) from None
        if len(self._proven) >= MOST_PROVEN:
            self._proven.clear()
        self._proven[role_arn] = (entry, self._clock())
        return issued

    async def prove(self, role_arn: str) -> None:
        """NoRole when there are no keys of a role to be had; whoever gave some lately is not asked again."""
        entry = self.entry(role_arn)
        before = self._proven.get(role_arn)
        lately = before is not None and before[0] == entry and self._clock() - before[1] < PROVEN_SECONDS
        if entry.source is not Source.LOCAL and not lately:
            await self.issue(role_arn, PROOF_NAME)

    def entry(self, role_arn: str) -> RoleEntry:
        """The roles file's entry; NoRole when there is none."""
        found = self.book.find(role_arn)
        if found is not None:
            return found
        path = self.book.path
        if not self.book.present:
            raise NoRole(f"There are no keys for the role {role_arn}: there is no roles file {path}; make one with it.")
        raise NoRole(f"There are no keys for the role {role_arn}: no role in {path} fits it; add it there.")

    def _cannot(self, role_arn: str, entry: RoleEntry, why: str) -> str:
        return (
            f"There are no keys for the role {role_arn}, which {self.book.path} has from {entry.source} on line "
            f"{entry.line}: {why}"
        )

    async def _issue(self, entry: RoleEntry, role_arn: str, name: str) -> Issued:
        now = self._clock()
        match entry.source:
            case Source.LOCAL:
                session = Session(role_arn, name, int(now), int(now + entry.duration), secrets.token_urlsafe(9))
                made = sessionkey.make(self._seal, session)
                found = Credentials(made.access_key_id, made.secret_access_key, made.token, float(session.expires_at))
            case Source.ASSUME_ROLE:
                found = await self._assume(entry, role_arn, name)
            case Source.PROFILE:
                found = await self._source(entry.profile)
            case Source.STATIC:
                found = Credentials(entry.access_key_id, entry.secret_access_key, entry.session_token or None)
        # Keys without an end are looked at again now and then: the file may hold others by then.
        return Issued(found, now, found.expires_at or now + DURATION_SECONDS)

    def _region(self, entry: RoleEntry) -> str:
        asked = (entry.region, self._environment.get("AWS_REGION"), self._environment.get("AWS_DEFAULT_REGION"))
        return next((one for one in asked if one), DEFAULT_REGION)

    async def _source(self, profile: str) -> Credentials:
        """Of a profile what its file says at this moment, since people change it; else what the chain finds."""
        if not profile:
            return await self._own.current()
        shared = SharedFile.from_environment({**self._environment, "AWS_PROFILE": profile})
        try:
            return (await shared.fetch()).credentials
        except Unavailable as unavailable:
            raise NoCredentials([Attempt(shared.name, unavailable.reason, unavailable.may_heal)]) from None

    async def _assume(self, entry: RoleEntry, role_arn: str, name: str) -> Credentials:
        sts = Sts(self._http, self._environment, self._region(entry), clock=self._clock)
        keys = await self._source(entry.profile)
        try:
            return await sts.assume_role(entry.role_arn or role_arn, name, entry.duration, keys, entry.external_id)
        except EcsError:
            self._own.forget(keys)  # whatever it did not like: the next try asks for others
            raise

    async def caller(self, role_arn: str, issued: Issued) -> str:
        """Who the keys make somebody, as whoever they are for says."""
        entry = self.entry(role_arn)
        found = self.session(issued.credentials.session_token or "")
        if found is not None:
            return found.session.arn
        return await Sts(self._http, self._environment, self._region(entry), clock=self._clock).caller(
            issued.credentials
        )


def session_name(task_arn: str) -> str:
    """The name under which a task takes on its role: its id."""
    return names.last_part(task_arn)
