"""What a host must know of the networks of its tasks, and when it is told anew.

Everything that hosts share of a VPC (who is where, in which groups) is put together once per change and kept until the
next; what one host is told is that, its own interfaces told apart, with the groups of its own. A connection is told
when that is not what it was told last, so a change costs messages only where it matters.
Changes that come together are one message: a host is told at most every ``PAUSE`` seconds, and hosts take turns when
there is so much to say that making messages would take more than a part of the time (``BUSY``). Whoever has no awsvpc
task costs nothing.

A connection begins with the whole. After that it is told what has changed since its last message, so that one task more
on a thousand hosts is a thousand short messages. What has changed of a VPC is remembered for a while (``REMEMBERED``);
who was told nothing for longer than that, has refused a change, or left one without an answer, is told the whole again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sexton.control.context import Context
from sexton.control.link.delivery import RESEND_AFTER
from sexton.control.networkrecords import GroupRecord, InterfaceRecord, RuleRecord, SubnetRecord
from sexton.control.records import Entry, InstanceRecord
from sexton.core import addresses, names
from sexton.wire import network as wire

# A burst of changes becomes one message; well below the second within which a change must be in force.
PAUSE = 0.05
# For so long a host that is still busy with one message is not sent the next one, unless a task waits for it.
HOLD = 0.4
# The part of the time that may go into making messages.
BUSY = 0.5
LEAST_COST = 0.0001
# Changes of a VPC that connections may be behind.
REMEMBERED = 64


class _Change(NamedTuple):
    """Ids of what made a VPC another than it was under this serial number."""

    since: int
    ids: frozenset[str]


class _Shared(NamedTuple):
    """What of a VPC all hosts are told alike, by id: its interfaces, each with the container instance that has it. The
    serial number is its alone."""

    serial: int
    subnets: Mapping[str, wire.Subnet]
    interfaces: Mapping[str, tuple[str, wire.Interface]]
    changes: deque[_Change]


class Mark(NamedTuple):
    """Tells whether two states of one container instance are the same, without the states: VPCs with their serial
    numbers, groups with their revisions."""

    vpcs: tuple[tuple[str, int], ...] = ()
    groups: tuple[tuple[str, int], ...] = ()


class NetworkNews:
    """The networks as messages need them; one for all connections."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shared: dict[str, _Shared] = {}
        self._stale: set[str] = set()  # VPCs of which it is to be made anew
        self._made = 0
        self._wakes: dict[str, dict[str, Callable[[], None]]] = {}  # of connections, by VPC and instance
        self._costs = {True: 0.0, False: 0.0}  # of making one message, in seconds: the whole, a change
        self._free_at = 0.0  # when the next message may be made
        context.network.listen(self._changed)
        context.records.groups.listen(self._on_group)
        context.records.instances.listen(self._on_instance)

    def turn(self, now: float, *, whole: bool) -> float:
        """When a connection may be told; the turn is its own."""
        begins = max(now, self._free_at)
        self._free_at = begins + self._costs[whole] / BUSY
        return begins

    def _spent(self, began: float, *, whole: bool) -> None:
        # One during which memory was collected says nothing of the next ones.
        usual = self._costs[whole]
        spent = min(time.thread_time() - began, max(4 * usual, LEAST_COST))
        self._costs[whole] += (spent - usual) / 16

    def mark(self, instance: str, wake: Callable[[], None]) -> Mark:
        """What to tell two states of a container instance apart by; ``wake`` is called when it may be another."""
        own = self._own(instance)
        self.leave(instance)
        vpcs = sorted({one.vpc for one in own})
        for vpc in vpcs:
            self._wakes.setdefault(vpc, {})[instance] = wake
        return Mark(
            tuple((vpc, self._of(vpc).serial) for vpc in vpcs),
            tuple((one.value.id, one.revision) for one in self._groups(own)),
        )

    def state(self, instance: str) -> wire.SextonNetworkMessage:
        """What a container instance should know, without the envelope."""
        began = time.thread_time()
        own = self._own(instance)
        subnets: list[wire.Subnet] = []
        interfaces: list[wire.Interface] = []
        for vpc in sorted({one.vpc for one in own}):
            shared = self._of(vpc)
            subnets += shared.subnets.values()
            interfaces += _seen_by(instance, shared.interfaces.values())
        message = wire.SextonNetworkMessage(
            subnets=tuple(subnets),
            groups=tuple(_group(one.value) for one in self._groups(own)),
            interfaces=tuple(interfaces),
        )
        self._spent(began, whole=True)
        return message

    def change(self, instance: str, told: Mark, mark: Mark) -> wire.SextonNetworkMessage | None:
        """What is different for a container instance since ``told``; None where nobody knows any more, or too much."""
        began = time.thread_time()
        if not told.vpcs or [vpc for vpc, _ in told.vpcs] != [vpc for vpc, _ in mark.vpcs]:
            return None
        subnets: list[wire.Subnet] = []
        interfaces: list[wire.Interface] = []
        gone: set[str] = set()
        for vpc, serial in told.vpcs:
            shared = self._of(vpc)
            ids = _changed_since(shared, serial)
            if ids is None:
                return None
            subnets += [shared.subnets[one] for one in ids if one in shared.subnets]
            seen = _seen_by(instance, (shared.interfaces[one] for one in ids if one in shared.interfaces))
            interfaces += seen
            gone |= ids - shared.subnets.keys() - {one.id for one in seen}
        known, now = dict(told.groups), dict(mark.groups)
        groups = [one.value for one in self._groups(self._own(instance)) if known.get(one.value.id) != one.revision]
        message = wire.SextonNetworkMessage(
            subnets=tuple(subnets),
            groups=tuple(map(_group, groups)),
            interfaces=tuple(interfaces),
            gone=tuple(sorted(gone | (known.keys() - now.keys()))),
        )
        self._spent(began, whole=False)
        return message

    def whole(self, region: str) -> wire.SextonNetworkMessage:
        """All that any host of a region is told, and of every interface the host it is on."""
        records = self._context.records
        vpcs = sorted({entry.value.vpc for _, entry in records.interfaces.under(region) if entry.value.task})
        shared = [self._of(vpc) for vpc in vpcs]
        return wire.SextonNetworkMessage(
            revision=records.revision,
            subnets=tuple(one for each in shared for one in each.subnets.values()),
            groups=tuple(_group(one.value) for _, one in records.groups.under(region) if one.value.vpc in vpcs),
            interfaces=tuple(one for each in shared for _, one in each.interfaces.values()),
        )

    def _own(self, instance: str) -> list[InterfaceRecord]:
        return [entry.value for entry in self._context.records.interfaces.group(instance)]

    def _groups(self, own: Sequence[InterfaceRecord]) -> list[Entry[GroupRecord]]:
        wanted = sorted({(one.region, group) for one in own for group in one.groups})
        return [entry for key in wanted if (entry := self._context.records.groups.get(*key))]

    def leave(self, instance: str) -> None:
        """Nobody needs to be woken for this instance any more."""
        for vpc, members in list(self._wakes.items()):
            members.pop(instance, None)
            if not members:
                del self._wakes[vpc]

    def _of(self, vpc: str) -> _Shared:
        """What hosts share of a VPC; it keeps its number for as long as nothing of it changes."""
        known = self._shared.get(vpc)
        if known is not None and vpc not in self._stale:
            return known
        self._stale.discard(vpc)
        rows = self._context.network.in_vpc(vpc)
        keys = sorted({(one.region, one.subnet) for one in rows})
        subnets = [entry.value for key in keys if (entry := self._context.records.subnets.get(*key))]
        hosts = {one: self._address(one) for one in {row.instance for row in rows}}
        fresh = _Shared(
            self._made + 1,
            {one.id: _subnet(one) for one in subnets},
            {one.id: (one.instance, _interface(one, hosts[one.instance])) for one in rows},
            known.changes if known else deque(maxlen=REMEMBERED),
        )
        if known is None:
            self._made += 1
            self._shared[vpc] = fresh
        elif ids := _differing(known.subnets, fresh.subnets) | _differing(known.interfaces, fresh.interfaces):
            self._made += 1
            fresh.changes.append(_Change(known.serial, ids))
            self._shared[vpc] = fresh
        return self._shared[vpc]

    def _address(self, instance: str) -> str:
        """Where other hosts reach a container instance for its tasks; empty while it does not say."""
        member = names.parse_instance(instance)
        entry = member and self._context.records.instances.get(names.region_of(instance), member.cluster, member.id)
        return _said(entry) if entry else ""

    def _changed(self, vpc: str) -> None:
        self._stale.add(vpc)
        self._wake(vpc)

    def _wake(self, vpc: str) -> None:
        for wake in self._wakes.get(vpc, {}).values():
            wake()

    def _on_group(self, _key: str, before: Entry[GroupRecord] | None, after: Entry[GroupRecord] | None) -> None:
        known = after or before
        if known is not None:
            self._wake(known.value.vpc)

    def _on_instance(
        self, _key: str, before: Entry[InstanceRecord] | None, after: Entry[InstanceRecord] | None
    ) -> None:
        """A host that is reached elsewhere from now on is news to all others."""
        if before is None or after is None or _said(before) == _said(after):
            return
        for vpc in {one.vpc for one in self._own(after.value.arn)}:
            self._changed(vpc)


class Told:
    """What one connection was told last."""

    def __init__(self, *, changes: bool = False) -> None:
        self._changes = changes  # it takes changes
        self._mark: Mark | None = None
        self._message = ""
        self._at = 0.0
        self._acknowledged = True
        self._turn: float | None = None
        self._waits = False  # more is to be told, later

    def due(self, mark: Mark, now: float) -> bool:
        """Whether the other side does not have this: never told, or told and not acknowledged for too long."""
        return mark != self._mark or (not self._acknowledged and now - self._at >= RESEND_AFTER)

    def tell(self, mark: Mark, message: str, now: float) -> None:
        self._mark, self._message, self._at, self._acknowledged = mark, message, now, False
        self._turn, self._waits = None, False

    def acknowledge(self, message: str) -> bool:
        """It has what it was told; whether more has waited for that."""
        if self._acknowledged or message != self._message:
            return False
        self._acknowledged = True
        return self._waits

    def refuse(self, message: str) -> None:
        """It cannot follow what it was told last."""
        if message == self._message:
            self._mark = None

    def base(self, now: float) -> tuple[str, Mark] | None:
        """What it has, if it can be told only what has changed of that: the message's id, and its mark."""
        lost = not self._acknowledged and now - self._at >= RESEND_AFTER
        return (self._message, self._mark) if self._changes and self._mark is not None and not lost else None

    def wait(self, news: NetworkNews, now: float) -> float:
        """How long until its turn to be told."""
        earliest = self._at + (PAUSE if self._acknowledged else HOLD)
        if now < earliest:
            self._waits = True
            return earliest - now
        if self._turn is None:
            self._turn = news.turn(now, whole=self.base(now) is None)
        return max(0.0, self._turn - now)

    def unanswered(self) -> bool:
        return not self._acknowledged


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> frozenset[str]:
    """Ids of what is in one only, or is not the same in both."""
    return frozenset(
        [one for one in after if before.get(one) != after[one]] + [one for one in before if one not in after]
    )


def _changed_since(shared: _Shared, serial: int) -> set[str] | None:
    """Ids of what has changed since a VPC had this number; None when that was too long ago."""
    ids: set[str] = set()
    if serial == shared.serial:
        return ids
    for change in reversed(shared.changes):
        ids |= change.ids
        if change.since == serial:
            return ids
    return None


def _seen_by(instance: str, interfaces: Iterable[tuple[str, wire.Interface]]) -> list[wire.Interface]:
    """Interfaces as one container instance is told of them: its own, and those of hosts that can be reached."""
    return [
        msgspec.structs.replace(one, host="") if holder == instance else one
        for holder, one in interfaces
        if holder == instance or one.host
    ]


def _said(entry: Entry[InstanceRecord]) -> str:
    attributes = entry.value.instance.attributes or ()
    return next((one.value or "" for one in attributes if one.name == wire.ADDRESS), "")


def _subnet(one: SubnetRecord) -> wire.Subnet:
    block, block6 = addresses.block4(one.cidr), addresses.block6(one.cidr6.cidr) if one.cidr6 else None
    return wire.Subnet(
        id=one.id,
        vpc=one.vpc,
        cidr=one.cidr,
        gateway=addresses.gateway(block) if block else "",
        vni=one.vni,
        ipv6_cidr=str(block6) if block6 else "",
        ipv6_gateway=addresses.gateway(block6) if block6 else "",
    )


def _interface(one: InterfaceRecord, host: str) -> wire.Interface:
    return wire.Interface(
        id=one.id,
        subnet=one.subnet,
        mac=one.mac,
        ipv4=one.ipv4,
        ipv6=one.ipv6,
        groups=one.groups,
        task_arn=one.task,
        host=host,
    )


def _group(one: GroupRecord) -> wire.Group:
    return wire.Group(
        id=one.id,
        name=one.name,
        vpc=one.vpc,
        ingress=tuple(map(_rule, one.ingress)),
        egress=tuple(map(_rule, one.egress)),
    )


def _rule(one: RuleRecord) -> wire.Rule:
    return wire.Rule(
        id=one.id,
        protocol=one.protocol,
        from_port=one.from_port,
        to_port=one.to_port,
        cidr=one.cidr or one.cidr6,
        group=one.group,
    )
