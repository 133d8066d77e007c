"""Places tasks on container instances.

Reads how each instance stands (its record, and the sums that ``usage`` keeps, promises of a moment ago included) and
lets ``core.board`` choose among the hosts that ``boards`` keeps ready. It decides without waiting for anything, so
whoever calls it and promises the result in the same breath gets what nobody else was given.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from sexton.control.boards import Boards
from sexton.control.records import Entry, InstanceRecord, Records
from sexton.control.usage import Usage
from sexton.core import resources
from sexton.core.board import Board
from sexton.core.placement import Host, Refusal, Wanted
from sexton.core.resources import NOTHING


class Scheduler:
    """Chooses hosts."""

    def __init__(self, records: Records, usage: Usage) -> None:
        self._records = records
        self._usage = usage
        self._boards = Boards(records, usage, self.host)
        # What the instance's record says of a host, and the revision that said it: tasks come and go far more often.
        self._empty: dict[str, tuple[int, Host]] = {}
        records.instances.listen(self._on_instance)

    def board(self, region: str, cluster: str, provider: str = "") -> Board:
        """The hosts of a cluster, or of one of its capacity providers, ready for placing; to be read only."""
        return self._boards.of(region, cluster, provider)

    def place(
        self, region: str, cluster: str, provider: str, wanted: Wanted, count: int
    ) -> tuple[list[str], tuple[Refusal, ...]]:
        """Up to ``count`` hosts by ARN (one may come several times); and, when fewer were found, why no host took
        the next one."""
        return self._boards.place(region, cluster, provider, wanted, _draws(count))

    def hosts(self, region: str, cluster: str) -> list[Host]:
        """Every container instance of a cluster as placement sees it now."""
        return [self.host(entry) for entry in self._records.instances.group(f"{region}/{cluster}")]

    def host(self, entry: Entry[InstanceRecord]) -> Host:
        arn = entry.value.arn
        kept = self._empty.get(arn)
        if kept is None or kept[0] != entry.revision:
            kept = self._empty[arn] = entry.revision, _empty(entry.value)
        used = self._usage.of(arn)
        return msgspec.structs.replace(
            kept[1], groups=used.groups, running=used.running, used=used.resources, tasks=used.tasks
        )

    def _on_instance(
        self, _key: str, before: Entry[InstanceRecord] | None, after: Entry[InstanceRecord] | None
    ) -> None:
        if after is None and before is not None:
            self._empty.pop(before.value.arn, None)


def _empty(record: InstanceRecord) -> Host:
    """The host as if it had no tasks."""
    instance = record.instance
    capacity, reserved_ports = resources.registered(instance.registered_resources or ())
    attributes = instance.attributes or ()
    return Host(
        arn=record.arn,
        active=instance.status == "ACTIVE",
        connected=bool(instance.agent_connected),
        attributes=frozenset(one.name or "" for one in attributes),
        values={one.name: one.value for one in attributes if one.name and one.value is not None},
        agent_version=(instance.version_info.agent_version if instance.version_info else None) or "",
        ec2_instance_id=instance.ec2_instance_id or "",
        registered_at=instance.registered_at,
        capacity=capacity,
        used_ports=reserved_ports,
        used=NOTHING,
        tasks=0,
    )


def choose(hosts: Iterable[Host], wanted: Wanted, count: int) -> tuple[list[str], tuple[Refusal, ...]]:
    """As ``Scheduler.place``, among these hosts only."""
    board = Board()
    for host in hosts:
        board.put(host)
    placed = board.place(wanted, _draws(count))
    return list(placed.arns), placed.refusals


def _draws(count: int) -> list[float]:
    return [random.random() for _ in range(count)]  # noqa: S311 - for the strategy of that name, guards nothing
