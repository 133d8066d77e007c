"""Places tasks on container instances.

A placement is decided on what the tables show plus what was decided a moment ago and is still on its way to the
store; so two requests that arrive together never promise the same memory. The promise is dropped as soon as the
task's record shows, or when its write failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from sexton.control.records import Entry, InstanceRecord, Records
from sexton.core import placement, resources
from sexton.core.placement import Host, Refusal
from sexton.core.resources import Resources


class Scheduler:
    """Chooses hosts; owns only the promises that are not yet records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._promised: dict[str, list[Resources]] = {}

    def hosts(self, region: str, cluster: str) -> list[Host]:
        """Every container instance of a cluster as placement sees it now."""
        return [self.host(entry) for entry in self._records.instances.group(f"{region}/{cluster}")]

    def host(self, entry: Entry[InstanceRecord]) -> Host:
        instance = entry.value.instance
        arn = entry.value.arn
        capacity, reserved_ports = resources.registered(instance.registered_resources or ())
        present = [one.value for one in self._records.tasks.group(arn) if not one.value.stopped]
        promised = self._promised.get(arn, [])
        return Host(
            arn=arn,
            active=instance.status == "ACTIVE",
            connected=bool(instance.agent_connected),
            attributes=frozenset(one.name or "" for one in instance.attributes or ()),
            capacity=capacity,
            used_ports=reserved_ports,
            used=resources.total([task.demand for task in present] + promised),
            tasks=len(present) + len(promised),
        )

    @contextmanager
    def place(
        self, hosts: Sequence[Host], demand: Resources, required: Collection[str], count: int
    ) -> Iterator[tuple[list[str], tuple[Refusal, ...]]]:
        """Up to ``count`` hosts by ARN (one may come several times), held until the block ends; and, when fewer
        were found, why no host took the next one."""
        candidates = {host.arn: host for host in hosts}
        chosen: list[str] = []
        refusals: tuple[Refusal, ...] = ()
        for _ in range(count):
            host, refusals = placement.choose(list(candidates.values()), demand, required)
            if host is None:
                break
            candidates[host.arn] = placement.occupy(host, demand)
            chosen.append(host.arn)
        for arn in chosen:
            self._promised.setdefault(arn, []).append(demand)
        try:
            yield chosen, refusals
        finally:
            for arn in chosen:
                held = self._promised[arn]
                held.remove(demand)
                if not held:
                    del self._promised[arn]
