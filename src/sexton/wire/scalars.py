"""Number and free-form types that every wire module shares.

JSON numbers have no size, the services' integers do. Saying so in the type makes the decoder refuse a number that no
store column, peer or kernel interface could take, at the edge and with a path, instead of an overflow far inside.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

# A place where the protocol allows any JSON. Decoders give plain dicts, lists and scalars there.
JsonValue: TypeAlias = Any
