"""The server's side of Signature Version 4: who sent this request, or why it is refused.

In: the request as it was received (path and query still encoded, headers in order, the body's bytes), the time,
and a way to find the credentials of a key id. Out: ``Verified``, or ``SignatureRefused`` with the API's own error
code. The body is always hashed here; what the client says about its hash is not believed.

A stranger must not learn from the time an answer takes whether a key id exists: an unknown id is checked
against a decoy key through the very same steps, keys of both are derived for every scope, and signatures are
compared in constant time.

Pure: no clock, no I/O. It runs for every request, so it does no more work than the answer needs.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import (
    ALGORITHM,
    TERMINATOR,
    canonical_request,
    fold_headers,
    signature_of,
    signing_key,
    timestamp,
)
from sexton.core.sessionkey import PREFIX, Session, SessionKeys

# A client sends the same claim all day, and the same second in many requests: taken apart once. Bounded for strangers.
_CLAIMS_KEPT = 256
# How far a client's clock may be from ours, either way; what AWS allows.
SKEW_MINUTES = 15

_STAMP = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+", re.ASCII)


class SignatureFault(StrEnum):
    """Why a request is not accepted, as the API names it."""

    MISSING = "MissingAuthenticationTokenException"
    INCOMPLETE = "IncompleteSignatureException"
    INVALID = "InvalidSignatureException"
    UNRECOGNIZED = "UnrecognizedClientException"
    EXPIRED = "ExpiredTokenException"


class SignatureRefused(Exception):  # noqa: N818 - an answer to the client, not a failure of ours
    """The request is not proven to come from a known key. ``kind`` is the error code, the text the message."""

    def __init__(self, kind: SignatureFault, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Verified(NamedTuple):
    """A request whose signature is right: whose it is, and for which region and service it was made."""

    access_key: str
    region: str
    service: str
    session: Session | None = None  # whose keys they are, of keys that came with a token


Sessions = Callable[[str], SessionKeys | None]
"""The keys that belong to a security token; None for a token that nobody here made."""


class Claim(NamedTuple):
    """What an Authorization header says before its signature."""

    access_key: str
    day: str
    region: str
    service: str
    scope: str
    signed: tuple[str, ...]


class Verifier:
    """Checks requests made for the given services, and regions unless any is welcome (None)."""

    def __init__(
        self,
        find: Callable[[str], Credentials | None],
        *,
        services: Collection[str],
        regions: Collection[str] | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self._find = find
        self._sessions = sessions
        self._services = services
        self._regions = regions
        self._decoy = Credentials("decoy", secrets.token_urlsafe(30), secrets.token_urlsafe(30))

    def verify(
        self, method: str, path: str, query: str, headers: Iterable[tuple[str, str]], body: bytes, now: float
    ) -> Verified:
        """Return whose request this is, or raise SignatureRefused."""
        values = fold_headers(headers)
        claim, signature = read_authorization(values.get("authorization", ""))
        stamp = values.get("x-amz-date", "")
        self._check_scope(claim)
        _check_coverage(claim.signed, values)
        _check_time(claim.day, stamp, now)

        session = self._session(claim.access_key, values.get("x-amz-security-token", ""))
        found = _credentials(session) if session else self._find(claim.access_key)
        known = self._decoy if found is None else found
        key = signing_key(known.secret_access_key, claim.day, claim.region, claim.service)
        # Also for known ids, so that the decoy's key is never the only one that has yet to be derived.
        signing_key(self._decoy.secret_access_key, claim.day, claim.region, claim.service)
        canonical = canonical_request(method, path, query, values, claim.signed, body)
        genuine = hmac.compare_digest(signature_of(canonical, stamp, claim.scope, key), signature)
        # A token must be there exactly when the key has one: long-lived keys have none.
        token = values.get("x-amz-security-token", "").encode("utf-8", "surrogateescape")
        current = hmac.compare_digest((known.session_token or "").encode(), token)
        ended = known.expired(now)

        if genuine and current and ended and session is not None:
            raise SignatureRefused(SignatureFault.EXPIRED, "The security token included in the request is expired")
        if found is None or (genuine and (ended or not current)):
            raise SignatureRefused(
                SignatureFault.UNRECOGNIZED, "The security token included in the request is invalid."
            )
        if not genuine:
            raise SignatureRefused(
                SignatureFault.INVALID,
                "The request signature we calculated does not match the signature you provided."
                " Check your AWS Secret Access Key and signing method.",
            )
        return Verified(claim.access_key, claim.region, claim.service, session.session if session else None)

    def _session(self, access_key: str, token: str) -> SessionKeys | None:
        """The keys of a token, if they are the ones that the claim names."""
        if self._sessions is None or not token or not access_key.startswith(PREFIX):
            return None
        found = self._sessions(token)
        return found if found is not None and found.access_key_id == access_key else None

    def _check_scope(self, claim: Claim) -> None:
        if self._regions is not None and claim.region not in self._regions:
            wanted = ", ".join(sorted(self._regions))
            raise SignatureRefused(SignatureFault.INVALID, f"Credential should be scoped to a valid region: {wanted}.")
        if claim.service not in self._services:
            wanted = ", ".join(f"'{service}'" for service in sorted(self._services))
            raise SignatureRefused(SignatureFault.INVALID, f"Credential should be scoped to correct service: {wanted}.")


def _credentials(keys: SessionKeys) -> Credentials:
    ends = float(keys.session.expires_at)
    return Credentials(keys.access_key_id, keys.secret_access_key, keys.token, ends)


def read_authorization(value: str) -> tuple[Claim, str]:
    """Take an Authorization header apart into its claim and its signature, which comes last."""
    if not value:
        raise SignatureRefused(SignatureFault.MISSING, "Request is missing Authentication Token")
    head, found, signature = value.rpartition("Signature=")
    claim = _claim(head)
    if not found:
        raise SignatureRefused(SignatureFault.INCOMPLETE, "Authorization header requires 'Signature' parameter.")
    if not _SIGNATURE.fullmatch(signature):
        raise SignatureRefused(
            SignatureFault.INCOMPLETE, "Signature must be 64 hexadecimal digits in lower case, and last."
        )
    return claim, signature


@lru_cache(maxsize=_CLAIMS_KEPT)
def _claim(head: str) -> Claim:
    scheme, _, rest = head.partition(" ")
    if scheme != ALGORITHM:
        raise SignatureRefused(SignatureFault.INCOMPLETE, f"Authorization header must begin with '{ALGORITHM}'.")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    absent = [name for name in ("Credential", "SignedHeaders") if not parts.get(name)]
    if absent:
        wanted = " ".join(f"Authorization header requires '{name}' parameter." for name in absent)
        raise SignatureRefused(SignatureFault.INCOMPLETE, wanted)
    credential = parts["Credential"].rsplit("/", 4)
    if len(credential) != 5 or not all(credential):
        raise SignatureRefused(
            SignatureFault.INCOMPLETE, "Credential must have five elements: key-id/date/region/service/aws4_request."
        )
    access_key, day, region, service, term = credential
    if term != TERMINATOR:
        raise SignatureRefused(
            SignatureFault.INVALID, f"Credential should be scoped with a valid terminator: '{TERMINATOR}'."
        )
    names = parts["SignedHeaders"].split(";")
    if names != sorted(set(names)) or not all(_NAME.fullmatch(name) for name in names):
        raise SignatureRefused(
            SignatureFault.INCOMPLETE,
            "SignedHeaders must be header names in lower case, in order, separated by semicolons.",
        )
    return Claim(access_key, day, region, service, f"{day}/{region}/{service}/{term}", tuple(names))


def _check_coverage(signed: tuple[str, ...], values: dict[str, str]) -> None:
    """Whatever decides what a request means must be under the signature; AWS asks for host and x-amz-*."""
    if "host" not in signed:
        raise SignatureRefused(
            SignatureFault.INVALID, "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
        )
    for name in values:
        if name.startswith("x-amz-") and name not in signed:
            raise SignatureRefused(
                SignatureFault.INVALID, f"'{name}' must be a 'SignedHeader' in the AWS Authorization."
            )
    for name in signed:
        if name not in values:
            raise SignatureRefused(SignatureFault.INVALID, f"'{name}' is a 'SignedHeader' but is not in the request.")


def _check_time(day: str, stamp: str, now: float) -> None:
    sent = _moment(stamp)
    if sent is None:
        raise SignatureRefused(
            SignatureFault.INCOMPLETE, "The request needs an 'X-Amz-Date' header in ISO-8601 'basic format', in UTC."
        )
    if day != stamp[:8]:
        raise SignatureRefused(
            SignatureFault.INVALID,
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP:"
            f" '{day}' != '{stamp[:8]}', from '{stamp}'.",
        )
    skew = SKEW_MINUTES * 60
    if sent < now - skew:
        raise SignatureRefused(
            SignatureFault.INVALID,
            f"Signature expired: {stamp} is now earlier than {timestamp(now - skew)}"
            f" ({timestamp(now)} - {SKEW_MINUTES} min.)",
        )
    if sent > now + skew:
        raise SignatureRefused(
            SignatureFault.INVALID,
            f"Signature not yet current: {stamp} is still later than {timestamp(now + skew)}"
            f" ({timestamp(now)} + {SKEW_MINUTES} min.)",
        )


@lru_cache(maxsize=_CLAIMS_KEPT)
def _moment(stamp: str) -> float | None:
    if not _STAMP.fullmatch(stamp):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
