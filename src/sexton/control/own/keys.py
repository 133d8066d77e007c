"""Keys over HTTP: for administrators alone. A secret is in one answer only, that to its making."""

from __future__ import annotations

import msgspec

from sexton.control import authority
from sexton.control.context import Context
from sexton.control.keystore import GRACE_SECONDS, Keystore
from sexton.control.own.door import Asked, answer, nothing_here
from sexton.control.records import KeyRecord
from sexton.kit import web
from sexton.wire.ownkeys import CreateKey, KeyShown, KeysShown, RotateKey


class KeysPath:
    """``/sexton/keys``."""

    def __init__(self, context: Context, keystore: Keystore) -> None:
        self._context = context
        self._keystore = keystore

    async def serve(self, asked: Asked) -> web.StreamResponse:
        match asked.http.method, asked.parts:
            case "GET", ():
                authority.require(self._context, asked.call, "sexton:ListKeys")
                return answer(KeysShown(keys=tuple(_shown(one) for one in self._keystore.listing())))
            case "POST", ():
                authority.require(self._context, asked.call, "sexton:CreateKey")
                return await self._create(asked)
            case "POST", (key, "rotate"):
                authority.require(self._context, asked.call, "sexton:RotateKey")
                wish = asked.read(RotateKey)
                grace = GRACE_SECONDS if wish.grace_seconds is None else wish.grace_seconds
                made = await self._keystore.rotate(key, grace, asked.call.access_key)
                return answer(_shown(made, secret=True), 201)
            case "POST", (key, "disable" | "enable" as word):
                authority.require(self._context, asked.call, f"sexton:{word.title()}Key")
                disabled = word == "disable"
                return answer(_shown(await self._keystore.switch(key, disabled=disabled, by=asked.call.access_key)))
            case "DELETE", (key,):
                authority.require(self._context, asked.call, "sexton:DeleteKey")
                return answer(_shown(await self._keystore.delete(key, asked.call.access_key)))
        raise nothing_here()

    async def _create(self, asked: Asked) -> web.StreamResponse:
        wish = asked.read(CreateKey)
        made = await self._keystore.create(wish.role, wish.name, wish.instance, asked.call.access_key)
        return answer(_shown(made, secret=True), 201)


def _shown(key: KeyRecord, *, secret: bool = False) -> KeyShown:
    status = "DISABLED" if key.disabled else "ENDING" if key.ends_at else "ACTIVE"
    shown = KeyShown(
        access_key_id=key.access_key_id,
        role=key.role,
        name=key.name,
        status=status,
        instance=key.instance,
        created_at=key.created_at,
        created_by=key.created_by,
        ends_at=key.ends_at,
        successor=key.successor,
        own=key.own,
    )
    return msgspec.structs.replace(shown, secret_access_key=key.secret_access_key) if secret else shown
