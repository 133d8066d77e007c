"""Families of operations that stand for AWS's own infrastructure, and that no control plane elsewhere can serve.

Their operations are known by name in the service model, and each answers with the API's error for a feature that is
not supported, saying which. An operation that a newer model adds to such a family is refused without a change here.
"""

from __future__ import annotations

import msgspec

from sexton.control.context import Call, Context, Operation, unsupported
from sexton.wire import ecs

# A word in an operation's name, and what all operations with it are about; the first that fits is meant.
FAMILIES = {
    "ExpressGateway": "Express Gateway services",
    "Gateway": "Gateways",
    "Daemon": "Daemons of managed instances",
}


def _refusing(name: str, what: str) -> Operation:
    async def refuse(context: Context, call: Call, request: msgspec.Struct) -> msgspec.Struct:
        raise unsupported(f"{name} is not supported: this control plane has no {what}.")

    return refuse


OPERATIONS: dict[str, Operation] = {
    name: _refusing(name, FAMILIES[word])
    for name in ecs.OPERATIONS
    if (word := next((word for word in FAMILIES if word in name), ""))
}
