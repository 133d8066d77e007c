"""What etcd's JSON gateway is told and answers, and nothing it does with it.

The gateway speaks protobuf's JSON: bytes are base64, 64-bit numbers are text, and whatever has its default value is
left out. msgspec reads and writes all three natively. Only the fields that are used are named here.

One transaction of etcd takes 128 operations unless its operator allows more. Larger ones are folded: an outer
transaction of inner ones is still a single change with a single revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

import msgspec

from sexton.store.contract import Compare, Put, StoreError, Write

T = TypeVar("T")

OPERATIONS = 128
"""etcd's --max-txn-ops as it comes. An inner transaction may use what the widest list of its outer one leaves."""

FOLD = OPERATIONS // 2
"""Inner transactions at most, and operations in each: the two together are what etcd takes."""


class Header(msgspec.Struct, frozen=True):
    cluster_id: str = ""
    revision: int = 0


class Record(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    keys_only: bool = False


class RangeAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()
    kvs: list[Record] = []
    more: bool = False


class Condition(msgspec.Struct, frozen=True):
    key: bytes
    mod_revision: int
    target: str = "MOD"
    result: str = "EQUAL"


class PutRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    key: bytes
    value: bytes = b""
    lease: int = 0


class DeleteRequest(msgspec.Struct, frozen=True):
    key: bytes


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one of these."""

    request_put: PutRequest | None = None
    request_delete_range: DeleteRequest | None = None
    request_range: RangeRequest | None = None
    request_txn: TxnRequest | None = None


class TxnRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    compare: list[Condition] = []
    success: list[Operation] = []
    failure: list[Operation] = []


class Removed(msgspec.Struct, frozen=True):
    deleted: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What one operation of a transaction did."""

    response_put: dict[str, msgspec.Raw] | None = None
    response_delete_range: Removed | None = None
    response_range: RangeAnswer | None = None
    response_txn: TxnAnswer | None = None


class TxnAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()
    succeeded: bool = False
    responses: list[Outcome] = []

    @property
    def changed(self) -> bool:
        """Whether anything was written: a transaction that changes nothing has no revision of its own."""
        return any(
            one.response_put is not None
            or (one.response_delete_range is not None and one.response_delete_range.deleted > 0)
            or (one.response_txn is not None and one.response_txn.changed)
            for one in self.responses
        )

    def found(self) -> Iterator[Record]:
        """The keys a failed transaction looked at, as they are in etcd."""
        for one in self.responses:
            if one.response_range is not None:
                yield from one.response_range.kvs


class LeaseGrantRequest(msgspec.Struct, frozen=True):
    ttl: int = msgspec.field(name="TTL")


class LeaseRequest(msgspec.Struct, frozen=True):
    id: int = msgspec.field(name="ID")


class LeaseAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()
    id: int = msgspec.field(name="ID", default=0)
    ttl: int = msgspec.field(name="TTL", default=0)


class KeepAliveAnswer(msgspec.Struct, frozen=True):
    """The first line of a stream that ends behind it."""

    result: LeaseAnswer | None = None
    error: StreamError | None = None


class WatchCreate(msgspec.Struct, frozen=True):
    key: bytes
    range_end: bytes
    start_revision: int
    fragment: bool = True
    """Large batches come in parts, or they would not fit into one message inside etcd."""


class WatchRequest(msgspec.Struct, frozen=True):
    create_request: WatchCreate


class Event(msgspec.Struct, frozen=True):
    kv: Record
    type: str = "PUT"


class WatchAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    fragment: bool = False
    events: list[Event] = []


class StreamError(msgspec.Struct, frozen=True):
    message: str = ""


class WatchLine(msgspec.Struct, frozen=True):
    result: WatchAnswer | None = None
    error: StreamError | None = None


class LoginRequest(msgspec.Struct, frozen=True):
    name: str
    password: str


class LoginAnswer(msgspec.Struct, frozen=True):
    token: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """The body of an answer that is not a success; ``code`` is gRPC's."""

    code: int = 0
    message: str = ""
    error: str = ""


class Empty(msgspec.Struct, frozen=True):
    """A request or an answer of which nothing is used."""

    header: Header = Header()


_encode = msgspec.json.Encoder().encode
_decoders: dict[type, msgspec.json.Decoder[msgspec.Struct]] = {}


def encode(request: msgspec.Struct) -> bytes:
    return _encode(request)


def decode(body: bytes, kind: type[T]) -> T:
    """Raises msgspec.MsgspecError for what is not etcd's."""
    decoder = _decoders.get(kind)
    if decoder is None:
        # Not strict: etcd writes 64-bit numbers as text, and newer versions may not.
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    return cast("T", decoder.decode(body))


def transaction(prefix: bytes, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnRequest:
    """All writes when the conditions hold; else a look at the keys they name, to know what was in the way."""
    try:
        conditions = [Condition(prefix + compare.key.encode(), compare.mod_revision) for compare in compares]
    except UnicodeEncodeError as error:
        raise StoreError("cannot compare a key that is not valid Unicode; replace the surrogates") from error
    looks = [Operation(request_range=RangeRequest(condition.key, keys_only=True)) for condition in conditions]
    operations = [_operation(prefix, write) for write in writes]
    if len(operations) > OPERATIONS:
        operations = [
            Operation(request_txn=TxnRequest(success=operations[first : first + FOLD]))
            for first in range(0, len(operations), FOLD)
        ]
        if len(conditions) > FOLD or len(operations) > FOLD:
            raise _too_large(compares, writes)
    if len(conditions) > OPERATIONS:
        raise _too_large(compares, writes)
    return TxnRequest(conditions, operations, looks)


def _operation(prefix: bytes, write: Write) -> Operation:
    key = prefix + write.key.encode()
    if isinstance(write, Put):
        return Operation(request_put=PutRequest(key, write.value, write.lease))
    return Operation(request_delete_range=DeleteRequest(key))


def _too_large(compares: Sequence[Compare], writes: Sequence[Write]) -> StoreError:
    return StoreError(
        f"cannot write {len(writes)} keys under {len(compares)} conditions in one transaction: etcd takes "
        f"{FOLD * FOLD} under {FOLD}; split it"
    )
