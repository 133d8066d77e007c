"""Opens the store a URL names, loading only the code of that one.

Nothing outside this package imports a concrete store: roles are handed a ``Store``, and whoever wires them
calls ``open_store`` with what the operator configured. A new store is a module with such a function and one row
in the table.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import cast

from sexton.store.contract import Durability, Store, StoreError

STORES = {
    "sqlite": "sexton.store.sqlite.store:open_store",
    "etcd": "sexton.store.etcd.store:open_store",
    "etcds": "sexton.store.etcd.store:open_store_by_tls",
}
"""URL scheme -> the module and the function that opens it."""

Opener = Callable[[str, Durability, bool], Awaitable[Store]]


async def open_store(url: str, *, durability: Durability = Durability.FULL, history: bool = True) -> Store:
    """Open the store at a URL: ``sqlite:///var/lib/sexton/control.db`` (the path is taken as it stands),
    ``etcd://host:2379,other:2379/prefix``, or the same with ``etcds://`` by TLS. Without
    ``history`` a store in this process remembers no changes for those who begin to watch later: it costs megabytes, and
    where nobody watches it is for nothing."""
    scheme, separator, location = url.partition("://")
    target = STORES.get(scheme)
    if not separator or target is None:
        known = ", ".join(f"{name}://" for name in STORES)
        # Only the scheme is repeated: the rest of a store's URL may hold a password.
        kind = scheme if separator else ""
        raise StoreError(f"cannot open a store of kind {kind!r}: it is unknown; begin its URL with one of: {known}")
    module, _, function = target.partition(":")
    opener = cast("Opener", getattr(importlib.import_module(module), function))
    return await opener(location, durability, history)
