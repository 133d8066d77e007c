"""How to log in to the registry of an image: the operator's own table, and the shape engines want.

``ECS_ENGINE_AUTH_TYPE=docker`` comes with ``{"host": {"username", "password", "email"}}``, ``dockercfg`` with what a
client's old configuration file holds, ``{"host": {"auth": base64 of user:password}}``, and the newer file's ``auths``
around it is understood as well. Hosts are compared without scheme and path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

HUB = "docker.io"
# What an engine calls that registry.
HUB_ADDRESS = "https://index.docker.io/v1/"
_HUB_NAMES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})

Auth = Mapping[str, str]


class BadAuthData(ValueError):  # noqa: N818 - becomes a warning
    """The operator's table cannot be used; the message never quotes it."""


class Hidden(dict[str, str]):
    """A log-in that does not print itself."""

    def __repr__(self) -> str:
        return f"Hidden({self.get('serveraddress', '')!r})"


def login(user: str, password: str, address: str) -> Auth:
    return Hidden(username=user, password=password, serveraddress=address)


def host_of(ref: str) -> str:
    """The registry of an image reference, as the reference spells it."""
    first, slash, _ = ref.partition("/")
    if slash and (any(mark in first for mark in ".:") or first == "localhost"):
        return first
    return HUB


def read(kind: str, data: str) -> dict[str, Auth]:
    """The operator's log-ins by host."""
    if not kind or not data:
        return {}
    try:
        table = msgspec.json.decode(data.encode(), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadAuthData("ECS_ENGINE_AUTH_DATA is no JSON object") from None
    if kind == "dockercfg" and isinstance(table.get("auths"), dict):
        table = table["auths"]
    found: dict[str, Auth] = {}
    for host, given in table.items():
        entry = given if isinstance(given, dict) else {}
        user, password = entry.get("username"), entry.get("password")
        if kind == "dockercfg" and isinstance(entry.get("auth"), str):
            try:
                user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
            except (binascii.Error, UnicodeError):
                user = None
        if not isinstance(user, str) or not isinstance(password, str):
            raise BadAuthData(f"ECS_ENGINE_AUTH_DATA has no user and password of {host}")
        name = plain(host)
        found[name] = login(user, password, HUB_ADDRESS if name == HUB else host)
    return found


def plain(host: str) -> str:
    """A registry's host without scheme and path; the public registry has one name."""
    bare = host.partition("://")[2] or host
    bare = bare.partition("/")[0].lower()
    return HUB if bare in _HUB_NAMES else bare
