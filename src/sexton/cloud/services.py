"""The few calls to other services of AWS that a task needs before it can start.

    parameters        SSM GetParameters, decrypted, in batches of ten
    secret            Secrets Manager GetSecretValue
    registry_token    ECR GetAuthorizationToken
    object            S3 GetObject

Each takes whose keys sign it. What may pass by itself is tried again, a few times within half a minute; a no is final.
Fails with ``EcsError`` (the service's own code and words), ``Unreachable`` or ``NoCredentials``. Values that come back
are handed on and kept nowhere.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from sexton.cloud import places
from sexton.cloud.client import error_of
from sexton.cloud.credentials import CredentialSource
from sexton.cloud.exchange import Reply, Request, Unreachable, exchange
from sexton.cloud.transient import RetryPolicy, retrying
from sexton.kit.retry import Backoff
from sexton.wire.errors import UNREADABLE, EcsError

# What SSM takes in one call.
BATCH = 10
# One of these calls answers within milliseconds; a task waits for it.
CALL_SECONDS = 10.0
# What an environment file may take altogether, as in Amazon's agent.
OBJECT_SECONDS = 30.0
RETRIES = RetryPolicy(Backoff(first=0.2, cap=4.0), attempts=5, patience=20.0)
# The largest secret is 64 KiB, ten advanced parameters 80 KiB.
LARGEST_ANSWER = 4 << 20
# An environment that is longer cannot be given to a process anyway.
LARGEST_OBJECT = 4 << 20

_XML_CODE = re.compile(rb"<Code>([^<]{1,200})</Code>")
_XML_MESSAGE = re.compile(rb"<Message>([^<]{1,2000})</Message>")

T = TypeVar("T", bound=msgspec.Struct)


class Parameter(msgspec.Struct, rename="pascal"):
    """``name`` comes back as it was asked for, or shortened to the name where an ARN was asked for."""

    name: str = ""
    value: str = ""
    arn: str = msgspec.field(name="ARN", default="")

    def __repr__(self) -> str:
        return f"Parameter(name={self.name!r}, value hidden)"


class Parameters(NamedTuple):
    """What was found, by name and by ARN, and which names were not."""

    values: Mapping[str, str]
    invalid: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Parameters({sorted(self.values)}, values hidden, invalid={self.invalid})"


class RegistryToken(NamedTuple):
    """A user and password of a registry, for whom, and until when."""

    user: str
    password: str
    proxy: str
    expires_at: float

    def __repr__(self) -> str:
        return f"RegistryToken({self.proxy!r}, until {self.expires_at:.0f}, hidden)"


class _ParametersAnswer(msgspec.Struct, rename="pascal"):
    parameters: tuple[Parameter, ...] = ()
    invalid_parameters: tuple[str, ...] = ()


class _SecretAnswer(msgspec.Struct, rename="pascal"):
    secret_string: str | None = None


class _Token(msgspec.Struct, rename="camel"):
    authorization_token: str = ""
    expires_at: float = 0.0
    proxy_endpoint: str = ""


class _TokenAnswer(msgspec.Struct, rename="camel"):
    authorization_data: tuple[_Token, ...] = ()


class Services:
    """Calls over one client session, which is the caller's and stays open."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
        retries: RetryPolicy = RETRIES,
    ) -> None:
        self._session = session
        self._environment = environment
        self._clock = clock
        self._retries = retries

    async def parameters(self, region: str, names: Sequence[str], keys: CredentialSource) -> Parameters:
        """The decrypted values of parameters of one region, by what they were asked for."""
        values: dict[str, str] = {}
        invalid: list[str] = []
        unique = list(dict.fromkeys(names))
        for start in range(0, len(unique), BATCH):
            body = {"Names": unique[start : start + BATCH], "WithDecryption": True}
            answer = await self._json("SSM", "ssm", region, "AmazonSSM.GetParameters", body, _ParametersAnswer, keys)
            for one in answer.parameters:
                values[one.name] = one.value
                if one.arn:
                    values[one.arn] = one.value
            invalid += answer.invalid_parameters
        return Parameters(values, tuple(invalid))

    async def secret(
        self, region: str, name: str, keys: CredentialSource, *, stage: str = "", version: str = ""
    ) -> str | None:
        """The text of a secret; None when it holds bytes."""
        body = {"SecretId": name}
        if stage:
            body["VersionStage"] = stage
        if version:
            body["VersionId"] = version
        target = "secretsmanager.GetSecretValue"
        answer = await self._json("SECRETS_MANAGER", "secretsmanager", region, target, body, _SecretAnswer, keys)
        return answer.secret_string

    async def registry_token(
        self, region: str, registry: str, keys: CredentialSource, endpoint: str = ""
    ) -> RegistryToken:
        """How to log in to an account's ECR registry."""
        body = {"registryIds": [registry]} if registry else {}
        target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
        answer = await self._json("ECR", "ecr", region, target, body, _TokenAnswer, keys, endpoint)
        for one in answer.authorization_data:
            try:
                user, colon, password = base64.b64decode(one.authorization_token, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeError):
                break
            if colon:
                return RegistryToken(user, password, one.proxy_endpoint, one.expires_at)
        raise Unreachable(f"cannot log in to ECR registry {registry} in {region}: the answer holds no token")

    async def object(self, region: str, bucket: str, key: str, keys: CredentialSource) -> bytes:
        """The bytes of one object, from wherever its bucket is."""

        async def get(where: str) -> Reply:
            credentials = await keys.current()
            request = Request("GET", self._object_url(where, bucket, key), {}, b"", "GetObject", where, "s3", True)
            reply = await exchange(
                self._session,
                request,
                credentials,
                now=self._clock(),
                limit=LARGEST_OBJECT,
                seconds=OBJECT_SECONDS,
            )
            elsewhere = reply.headers.get("x-amz-bucket-region", where)
            if reply.status != HTTPStatus.OK and elsewhere != where:
                return await get(elsewhere) if where == region else reply
            return reply

        async def attempt() -> bytes:
            reply = await get(region)
            if reply.status != HTTPStatus.OK:
                raise _object_error(reply, bucket, key)
            return reply.body

        return await retrying(attempt, self._retries, what="GetObject")

    def _object_url(self, region: str, bucket: str, key: str) -> str:
        path = quote(key, safe="/-_.~")
        chosen = places.configured("S3", self._environment)
        if chosen:
            return f"{chosen}/{bucket}/{path}"
        base = places.endpoint("S3", region, self._environment)
        if "." in bucket:  # a certificate covers one label
            return f"{base}/{bucket}/{path}"
        return f"https://{bucket}.{urlsplit(base).hostname}/{path}"

    async def _json(
        self,
        setting: str,
        service: str,
        region: str,
        target: str,
        body: Mapping[str, Any],
        shape: type[T],
        keys: CredentialSource,
        endpoint: str = "",
    ) -> T:
        base = endpoint or places.endpoint(setting, region, self._environment)
        request = Request(
            method="POST",
            url=base if "://" in base else f"https://{base}",
            headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": target},
            body=msgspec.json.encode(body),
            what=target.rpartition(".")[2],
            region=region,
            service=service,
        )

        async def attempt() -> T:
            reply = await exchange(
                self._session,
                request,
                await keys.current(),
                now=self._clock(),
                limit=LARGEST_ANSWER,
                seconds=CALL_SECONDS,
            )
            if reply.status != HTTPStatus.OK:
                raise error_of(reply.status, reply.body, reply.headers.get("x-amzn-errortype", ""))
            try:
                return msgspec.json.decode(reply.body, type=shape)
            except UNREADABLE:  # what it said is not repeated: it may hold a secret
                raise Unreachable(
                    f"cannot read the answer of {request.url} to {request.what}. Check what listens there"
                ) from None

        return await retrying(attempt, self._retries, what=request.what)


def _object_error(reply: Reply, bucket: str, key: str) -> EcsError:
    """Object stores say no in XML, or with nothing but a status."""
    code, message = _XML_CODE.search(reply.body), _XML_MESSAGE.search(reply.body)
    default = {403: "AccessDenied", 404: "NoSuchKey"}.get(reply.status, f"HTTP{reply.status}")
    text = message[1].decode("utf-8", "replace") if message else f"the answer was HTTP {reply.status}"
    return EcsError(
        f"{text} (bucket {bucket}, key {key})",
        code=code[1].decode("utf-8", "replace") if code else default,
        status=reply.status,
    )
