"""Opens the store a URL names, loading only the code of that one.

Nothing outside this package imports a concrete store: roles are handed a ``Store``, and whoever wires them
calls ``open_store`` with what the operator configured. A new store is a module with the same ``open_store``
and one row in the table.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from sexton.store.contract import Durability, Store, StoreError

STORES = {
    "sqlite": "sexton.store.sqlite.store",
}
"""URL scheme -> the module that opens it."""


class _StoreModule(Protocol):
    async def open_store(self, location: str, durability: Durability) -> Store: ...


async def open_store(url: str, *, durability: Durability = Durability.FULL) -> Store:
    """Open the store at a URL such as ``sqlite:///var/lib/sexton/control.db``; the path is taken as it stands."""
    scheme, separator, location = url.partition("://")
    module = STORES.get(scheme)
    if not separator or module is None:
        known = ", ".join(f"{name}://" for name in STORES)
        # Only the scheme is repeated: the rest of a store's URL may hold a password.
        kind = scheme if separator else ""
        raise StoreError(f"cannot open a store of kind {kind!r}: it is unknown; begin its URL with one of: {known}")
    stores = cast("_StoreModule", importlib.import_module(module))
    return await stores.open_store(location, durability)
