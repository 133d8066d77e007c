"""What becomes of the fields of a request: honoured, accepted without effect, or refused by name.

An operation's module declares what is not honoured in a table of its own, ``FIELDS``, beside the code that honours
the rest. The dispatcher refuses from that table before the operation is called, and the documentation is made from
it, so neither can say anything else than what is done. A path names a field as clients do, ``a.b``, through lists
as well; ``a.b=VALUE`` means that value alone, and a path without one means anything but absence, false, nothing and 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from sexton.wire.errors import UnsupportedFeatureException


class Fields(NamedTuple):
    """An operation's fields that are not honoured, each with the reason."""

    accepted: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}


def refuse(request: msgspec.Struct, fields: Fields) -> None:
    """The API's error for a field that is refused, by its name and with the reason."""
    for path, why in fields.refused.items():
        names, wanted = _parts(path)
        if _says(request, names, wanted):
            raise UnsupportedFeatureException(f"{path} is not supported by this control plane: {why}")


@cache
def _parts(path: str) -> tuple[tuple[str, ...], str]:
    """The names in a path, and the value that is meant."""
    names, _, wanted = path.partition("=")
    return tuple(names.split(".")), wanted


def _says(value: object, names: tuple[str, ...], wanted: str) -> bool:
    """Whether a request, or a part of one, says what the rest of a path means."""
    if value is None:
        return False
    if not names:
        return value == wanted if wanted else bool(value)
    if isinstance(value, tuple):
        return any(_says(one, names, wanted) for one in value)
    if not isinstance(value, msgspec.Struct):
        return False
    field = _attributes(type(value)).get(names[0])
    return field is not None and _says(getattr(value, field), names[1:], wanted)


@cache
def _attributes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The attribute behind each name on the wire."""
    return {one.encode_name: one.name for one in msgspec.structs.fields(kind)}
