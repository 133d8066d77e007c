"""AWS Signature Version 4: the canonical form of a request, the key chain, and signing with them.

A request becomes one text that both ends can write down alike (method, path, query, chosen headers, hash of the
body); its hash, the time and the scope are signed with a key derived from the secret, the day, the region and
the service. This module writes that text and signs; ``sigv4_verify`` writes the same text and compares.

Pure: no clock, no I/O. What is kept is a bounded memory of derived keys, because deriving one costs four times
what using it does.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sexton.cloud.credentials import Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
TERMINATOR = "aws4_request"

# Day x region x service x key: a handful are in use at any time; the bound is for strangers who invent scopes.
_KEYS_KEPT = 256
_UNRESERVED = "-_.~"


def sign(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    credentials: Credentials,
    *,
    region: str,
    service: str,
    now: float,
    plain_path: bool = False,
) -> dict[str, str]:
    """Return the headers to add to a request; all of ``headers`` and of these (but Authorization) are signed.

    ``path`` and ``query`` are as they go on the wire, percent-encoded; ``headers`` has the Host that will be sent.
    With ``plain_path``, as object stores have it, the path is signed as it is and the body's hash is a header.
    """
    stamp = timestamp(now)
    added = {"X-Amz-Date": stamp}
    if credentials.session_token:
        added["X-Amz-Security-Token"] = credentials.session_token
    if plain_path:
        added["X-Amz-Content-Sha256"] = sha256(body).hexdigest()
    values = fold_headers((*headers.items(), *added.items()))
    if "host" not in values:
        raise ValueError("cannot sign a request without its Host header: put the one that will be sent into headers")
    names = sorted(values)
    scope = f"{stamp[:8]}/{region}/{service}/{TERMINATOR}"
    key = signing_key(credentials.secret_access_key, stamp[:8], region, service)
    canonical = canonical_request(method, path, query, values, names, body, plain_path=plain_path)
    signature = signature_of(canonical, stamp, scope, key)
    added["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key_id}/{scope}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return added


def timestamp(now: float) -> str:
    """Write Unix seconds the way X-Amz-Date does."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


def fold_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Lower the names and join the values of a repeated one with commas, in their order."""
    folded: dict[str, str] = {}
    for name, value in headers:
        lowered = name.lower()
        folded[lowered] = f"{folded[lowered]},{value.strip()}" if lowered in folded else value
    return folded


def canonical_request(
    method: str,
    path: str,
    query: str,
    values: Mapping[str, str],
    names: Iterable[str],
    body: bytes,
    *,
    plain_path: bool = False,
) -> bytes:
    """Write the request down in the one way both ends agree on. ``names`` are the signed headers, all in ``values``."""
    listed = ";".join(names)
    signed_path = (path or "/") if plain_path else canonical_path(path)
    lines = [f"{name}:{' '.join(values[name].split())}" for name in listed.split(";")]
    text = "\n".join((method, signed_path, canonical_query(query), *lines, "", listed, sha256(body).hexdigest()))
    # What the HTTP parser could not read as UTF-8 it kept as lone surrogates: back to the bytes that were sent.
    return text.encode("utf-8", "surrogateescape")


def canonical_path(path: str) -> str:
    """Resolve dots and doubled slashes and encode once more: only object stores take the path as it is."""
    if path in ("", "/"):
        return "/"
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    tail = "/" if kept and path.endswith("/") else ""
    return quote_from_bytes(f"/{'/'.join(kept)}{tail}".encode("utf-8", "surrogateescape"), "/~")


def canonical_query(query: str) -> str:
    """Decode, encode in the strictest way, and sort; a ``+`` is a space, as form encoding means it."""
    if not query:
        return ""
    pairs = []
    for item in query.replace("+", "%20").encode("utf-8", "surrogateescape").split(b"&"):
        if item:
            name, _, value = item.partition(b"=")
            pairs.append((_strict(name), _strict(value)))
    pairs.sort()
    return "&".join(f"{name}={value}" for name, value in pairs)


def _strict(encoded: bytes) -> str:
    return quote_from_bytes(unquote_to_bytes(encoded), _UNRESERVED)


@lru_cache(maxsize=_KEYS_KEPT)
def signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    """Derive the key of one day, region and service from the secret."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, TERMINATOR):
        key = hmac.digest(key, part.encode("utf-8", "surrogateescape"), "sha256")
    return key


def signature_of(canonical: bytes, stamp: str, scope: str, key: bytes) -> str:
    """Sign the canonical request, at a time, in a scope."""
    text = f"{ALGORITHM}\n{stamp}\n{scope}\n{sha256(canonical).hexdigest()}"
    return hmac.digest(key, text.encode("utf-8", "surrogateescape"), "sha256").hex()
