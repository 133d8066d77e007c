"""What a security group's rule allows, in one form however it was written: protocol, ports, and one peer.

Protocols that have names get them, all others are numbers, and ``-1`` is every protocol. Ports are those of TCP and
UDP, type and code of ICMP, and -1 (any) of everything else.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.core import addresses

ALL = "-1"
_NAMES = {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmpv6", "all": ALL}
WITH_PORTS = ("tcp", "udp")
WITH_TYPES = ("icmp", "icmpv6")
LAST_PORT, LAST_PROTOCOL = 65535, 255
LONGEST_DESCRIPTION = 255
_SPECIAL = frozenset("._-:/()#,@[]+=&;{}!$* ")


class Reach(NamedTuple):
    """What is allowed, without the peer."""

    protocol: str
    from_port: int
    to_port: int


class BadPermissionError(ValueError):
    """The rule cannot be; the message says why."""


def reach(protocol: str, from_port: int | None, to_port: int | None) -> Reach:
    """What a rule with these words allows; BadPermissionError for what means nothing."""
    word = protocol.lower()
    name = _NAMES.get(word, word)
    if name == ALL:
        return Reach(ALL, -1, -1)
    if name in WITH_PORTS:
        return _ports(name, from_port, to_port)
    if name in WITH_TYPES:
        return _types(name, from_port, to_port)
    if name.isascii() and name.isdecimal() and len(name) <= 3 and int(name) <= LAST_PROTOCOL:
        return Reach(str(int(name)), -1, -1)
    raise BadPermissionError(f"Invalid value '{protocol}' for IP protocol. Unknown protocol.")


def _ports(name: str, first: int | None, last: int | None) -> Reach:
    if first is None or last is None:
        raise BadPermissionError(
            f"Invalid value for portRange. Must specify both from and to ports with {name.upper()}."
        )
    if (first, last) == (-1, -1):
        first, last = 0, LAST_PORT
    if not 0 <= first <= last <= LAST_PORT:
        raise BadPermissionError(f"Invalid {name.upper()} port range ({first}-{last})")
    return Reach(name, first, last)


def _types(name: str, kind: int | None, code: int | None) -> Reach:
    kind, code = -1 if kind is None else kind, -1 if code is None else code
    if not (-1 <= kind <= 255 and -1 <= code <= 255) or (kind == -1 and code != -1):
        raise BadPermissionError(f"Invalid {name.upper()} type and code ({kind}, {code})")
    return Reach(name, kind, code)


def peer4(text: str) -> str:
    """A block of IPv4 peers in canonical form."""
    block = addresses.block4(text)
    if block is None:
        raise BadPermissionError(f"CIDR block {text} is malformed")
    return str(block)


def peer6(text: str) -> str:
    """A block of IPv6 peers in canonical form."""
    block = addresses.block6(text)
    if block is None:
        raise BadPermissionError(f"CIDR block {text} is malformed")
    return str(block)


def spelt(text: str) -> bool:
    """Whether a group's name or a description has only the characters that EC2 allows."""
    return all((one.isascii() and one.isalnum()) or one in _SPECIAL for one in text)


def bad_description(text: str) -> str:
    """Why a description cannot be one; empty when it can."""
    if len(text) <= LONGEST_DESCRIPTION and spelt(text):
        return ""
    return (
        f"Invalid rule description. Valid descriptions are strings less than {LONGEST_DESCRIPTION + 1} characters from "
        "the following set:  a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"
    )
