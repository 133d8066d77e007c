"""The networks at this moment, indexed: which addresses are taken, whose an interface is, who uses a group.

Follows the tables. An address that was chosen a moment ago and is on its way to the store counts as taken here
(``promised``), so that requests which arrive together do not choose the same; what another control plane chose is told
by the store, which takes each address once. Nothing survives a restart: the tables' first loading finds all of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sexton.control.networkrecords import InterfaceRecord, SubnetRecord, UseRecord
from sexton.control.records import Entry, Records, TaskRecord
from sexton.core import addresses
from sexton.store.contract import Compare, Delete, Put, Write

InVpc = TypeVar("InVpc", InterfaceRecord, SubnetRecord)
Listener = Callable[[str], None]


class Network:
    """Follows the tables of networks."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._keys: dict[str, str] = {}  # of interfaces, by id
        self._tasks: dict[str, dict[str, None]] = {}  # keys of interfaces, by task
        self._taken: dict[str, set[str]] = {}  # addresses, by subnet
        self._macs: set[str] = set()
        self._groups: Counter[str] = Counter()  # interfaces, by group
        self._vpcs: dict[str, dict[str, None]] = {}  # keys of tasks' interfaces, by VPC
        self._promised: dict[str, set[str]] = {}
        self._listeners: list[Listener] = []
        records.interfaces.listen(self._changed)
        records.subnets.listen(self._of_vpc)
        records.carry(self._with_ends_of_tasks, {})

    def listen(self, listener: Listener) -> None:
        """Call ``listener(vpc)`` whenever something has changed about who is where in a VPC."""
        self._listeners.append(listener)

    def interface(self, interface_id: str) -> Entry[InterfaceRecord] | None:
        key = self._keys.get(interface_id)
        return self._records.interfaces.get(key) if key else None

    def of_task(self, task_arn: str) -> list[InterfaceRecord]:
        """The interfaces of a task."""
        entries = (self._records.interfaces.get(key) for key in self._tasks.get(task_arn, ()))
        return [entry.value for entry in entries if entry]

    def in_vpc(self, vpc: str) -> list[InterfaceRecord]:
        """The interfaces of all tasks in a VPC, in the order in which they were made."""
        entries = (self._records.interfaces.get(key) for key in self._vpcs.get(vpc, ()))
        return [entry.value for entry in entries if entry]

    def in_subnet(self, subnet: str) -> int:
        """How many addresses of a subnet are taken."""
        return len(self._taken.get(subnet, ()))

    def uses_group(self, group: str) -> bool:
        """Whether an interface is in this group."""
        return bool(self._groups[group])

    def free(self, subnet: SubnetRecord, draw: float) -> str | None:
        """An address of the subnet that nobody has or was promised."""
        block = addresses.block4(subnet.cidr)
        taken = self._taken.get(subnet.id, set())
        promised = self._promised.get(subnet.id)
        return addresses.free(block, taken | promised if promised else taken, draw) if block else None

    def left(self, subnet: SubnetRecord) -> int:
        """How many addresses of a subnet can still be given."""
        block = addresses.block4(subnet.cidr)
        promised = len(self._promised.get(subnet.id, ()))
        return addresses.capacity(block) - self.in_subnet(subnet.id) - promised if block else 0

    def is_taken(self, subnet: str, address: str) -> bool:
        return address in self._taken.get(subnet, ()) or address in self._promised.get(subnet, ())

    def mac(self, seed: str) -> str:
        """A hardware address that no interface has."""
        for turn in range(1000):
            found = addresses.mac(hashlib.sha256(f"{seed}/{turn}".encode()).digest())
            if found not in self._macs:
                return found
        raise RuntimeError("cannot find a free hardware address")

    @contextmanager
    def promised(self, interfaces: Iterable[InterfaceRecord]) -> Iterator[None]:
        """Count addresses as taken that are about to be written."""
        chosen = [(one.subnet, one.ipv4) for one in interfaces]
        for subnet, address in chosen:
            self._promised.setdefault(subnet, set()).add(address)
        try:
            yield
        finally:
            for subnet, address in chosen:
                self._promised[subnet].discard(address)
                if not self._promised[subnet]:
                    del self._promised[subnet]

    def _changed(self, key: str, before: Entry[InterfaceRecord] | None, after: Entry[InterfaceRecord] | None) -> None:
        if before is not None:
            self._remove(key, before.value)
        if after is not None:
            self._add(key, after.value)
        self._of_vpc(key, before, after)

    def _add(self, key: str, one: InterfaceRecord) -> None:
        self._keys[one.id] = key
        self._taken.setdefault(one.subnet, set()).add(one.ipv4)
        self._macs.add(one.mac)
        self._groups.update(one.groups)
        if one.task:
            self._tasks.setdefault(one.task, {})[key] = None
            self._vpcs.setdefault(one.vpc, {})[key] = None

    def _remove(self, key: str, one: InterfaceRecord) -> None:
        if self._keys.get(one.id) == key:
            del self._keys[one.id]
        taken = self._taken.get(one.subnet, set())
        taken.discard(one.ipv4)
        if not taken:
            self._taken.pop(one.subnet, None)
        self._macs.discard(one.mac)
        for group in one.groups:
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]
        for index, name in ((self._tasks, one.task), (self._vpcs, one.vpc)):
            members = index.get(name, {})
            members.pop(key, None)
            if not members:
                index.pop(name, None)

    def _of_vpc(self, _key: str, before: Entry[InVpc] | None, after: Entry[InVpc] | None) -> None:
        known = after or before
        if known is not None:
            for listener in self._listeners:
                listener(known.value.vpc)

    def _with_ends_of_tasks(self, writes: Collection[Write]) -> list[Write]:
        """A task's interfaces go in the transaction that ends the task, so exactly once."""
        ended: list[Write] = []
        for write in writes:
            if not write.key.startswith(self._records.tasks.prefix):
                continue
            if isinstance(write, Put):
                record = self._records.written(write)
                task = record.arn if isinstance(record, TaskRecord) and record.stopped else ""
            else:
                entry = self._records.tasks.get(write.key.removeprefix(self._records.tasks.prefix))
                task = entry.value.arn if entry else ""
            ended += [Delete(self._records.interfaces.key(key)) for key in self._tasks.get(task, ())]
        return ended


def key_of(interface: InterfaceRecord) -> tuple[str, str, str]:
    return interface.region, interface.subnet, interface.ipv4


def new_use(records: Records, used: Iterable[str], region: str, by: str) -> list[Write]:
    """What is written when something begins to use these resources."""
    return [records.put(records.uses, UseRecord(by=by), region, one) for one in dict.fromkeys(used)]


def unused_since(records: Records, region: str, used: str) -> Compare:
    """The condition that nothing has begun to use a resource since this process looked at its users."""
    return records.unchanged(records.uses, records.uses.get(region, used), region, used)
