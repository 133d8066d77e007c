"""Places tasks on container instances.

Reads how each instance stands (its record, and the sums that ``usage`` keeps, promises of a moment ago included) and
lets ``core.placement`` choose. It decides without waiting for anything, so whoever calls it and promises the result
in the same breath gets what nobody else was given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sexton.control.records import Entry, InstanceRecord, Records
from sexton.control.usage import Usage
from sexton.core import placement, resources
from sexton.core.placement import Host, Refusal
from sexton.core.resources import Resources


class Scheduler:
    """Chooses hosts; owns nothing."""

    def __init__(self, records: Records, usage: Usage) -> None:
        self._records = records
        self._usage = usage

    def hosts(self, region: str, cluster: str) -> list[Host]:
        """Every container instance of a cluster as placement sees it now."""
        return [self.host(entry) for entry in self._records.instances.group(f"{region}/{cluster}")]

    def host(self, entry: Entry[InstanceRecord]) -> Host:
        instance = entry.value.instance
        capacity, reserved_ports = resources.registered(instance.registered_resources or ())
        used = self._usage.of(entry.value.arn)
        return Host(
            arn=entry.value.arn,
            active=instance.status == "ACTIVE",
            connected=bool(instance.agent_connected),
            attributes=frozenset(one.name or "" for one in instance.attributes or ()),
            capacity=capacity,
            used_ports=reserved_ports,
            used=used.resources,
            tasks=used.tasks,
        )


def choose(
    hosts: Sequence[Host], demand: Resources, required: Collection[str], count: int
) -> tuple[list[str], tuple[Refusal, ...]]:
    """Up to ``count`` hosts by ARN (one may come several times); and, when fewer were found, why no host took the
    next one."""
    candidates = {host.arn: host for host in hosts}
    chosen: list[str] = []
    for _ in range(count):
        host, refusals = placement.choose(list(candidates.values()), demand, required)
        if host is None:
            return chosen, refusals
        candidates[host.arn] = placement.occupy(host, demand)
        chosen.append(host.arn)
    return chosen, ()
