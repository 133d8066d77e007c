"""The service scheduler: keeps every service at what its owner asked for.

    a task, instance or service changed, or a time has come -> view of one service -> core.service.decide -> apply

Applying is, in this order: what is to be remembered, with the first stops, in one transaction; more stops; then each
start in one of its own. Every transaction holds only if the service is what was read, so a decision that somebody's
update, or another control plane, overtook changes nothing and is made again. Nothing here survives a restart and
nothing needs to: what a crash cut off is missing from the records, and is decided again from them.

Only the control plane that may schedule does so: ``fence`` says whether this is the one, with the conditions that
make each of its writes fail once it no longer is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from sexton.control import servicestart, serviceview, tasksetview
from sexton.control.agenda import Agenda
from sexton.control.context import Context
from sexton.control.fence import Fence, alone
from sexton.control.records import Entry, InstanceRecord, ServiceRecord, TaskRecord
from sexton.control.serviceevents import with_events
from sexton.control.servicetasks import service_key
from sexton.core import lifecycle, names
from sexton.core import service as services
from sexton.core.deployment import primary_first
from sexton.core.lifecycle import StopCode
from sexton.core.pace import ECS, Pace
from sexton.core.serviceview import Decision, Rollback
from sexton.store.contract import Compare, StoreError, Write
from sexton.wire import ecs

log = logging.getLogger(__name__)

# Tasks told to stop in one transaction: a store bounds how large one may be.
MOST_STOPPED = 25
# Until a service whose reconciling failed is looked at again: the store needs a moment, and the log room for others.
RETRY_SECONDS = 5.0


class Reconciler:
    """One loop over all services of all regions."""

    def __init__(self, context: Context, fence: Fence = alone, pace: Pace = ECS) -> None:
        self._context = context
        self._records = context.records
        self._fence = fence
        self._pace = pace
        self._agenda = Agenda()
        self._changed = asyncio.Event()
        self._acting = False
        self._room: dict[str, float] = {}  # when each cluster last gained room
        self._why: dict[str, tuple[str, ...]] = {}  # what each service is waiting for
        self._records.services.listen(self._on_service)
        self._records.service_deployments.listen(self._on_rollout)
        self._records.tasks.listen(self._on_task)
        self._records.instances.listen(self._on_instance)

    def why(self, service: str) -> tuple[str, ...]:
        """What the service with this key is waiting for, in sentences."""
        return self._why.get(service, ())

    def wake(self) -> None:
        """Look whether this control plane may schedule: to be called when that has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            await self.reconcile_due()
            at = self._agenda.next_at() if self._acting else None
            try:
                async with asyncio.timeout(None if at is None else max(0.0, at - self._context.clock())):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def reconcile_due(self) -> None:
        """Look at every service that is due, until none is."""
        while (fence := self._may_act()) is not None:
            key = self._agenda.take(self._context.clock())
            if key is None:
                return
            try:
                await self._reconcile(key, fence)
            except StoreError as error:
                log.warning("service not reconciled", extra={"service": key, "reason": str(error)})
                self._agenda.put(key, self._context.clock() + RETRY_SECONDS)
            except Exception:
                # The edge between services: a defect that one of them meets must not stop all the others.
                log.exception("service not reconciled", extra={"service": key})
                self._agenda.put(key, self._context.clock() + RETRY_SECONDS)

    def _may_act(self) -> Sequence[Compare] | None:
        fence = self._fence()
        if fence is not None and not self._acting:
            now = self._context.clock()
            for entry in self._records.services.all():
                self._agenda.put(serviceview.key_of(entry.value), now)
        self._acting = fence is not None
        return fence

    def _look(self, key: str) -> None:
        self._agenda.put(key, self._context.clock())
        self._changed.set()

    def _on_service(self, key: str, before: Entry[ServiceRecord] | None, after: Entry[ServiceRecord] | None) -> None:
        if after is not None and not after.value.ended_at:
            self._look(key)
        else:
            self._why.pop(key, None)

    def _on_rollout(
        self, key: str, before: Entry[ecs.ServiceDeployment] | None, after: Entry[ecs.ServiceDeployment] | None
    ) -> None:
        if after is not None:
            self._look(key.rpartition("/")[0])

    def _on_task(self, key: str, before: Entry[TaskRecord] | None, after: Entry[TaskRecord] | None) -> None:
        known = after or before
        if known is None:
            return
        record = known.value
        if record.service:
            self._look(service_key(record))
        if before is not None and not before.value.stopped and (after is None or after.value.stopped):
            self._gained_room(f"{record.region}/{record.cluster}")

    def _on_instance(self, key: str, before: Entry[InstanceRecord] | None, after: Entry[InstanceRecord] | None) -> None:
        known = after or before
        if known is None or (before and after and _standing(before.value) == _standing(after.value)):
            return
        cluster = f"{known.value.region}/{known.value.cluster}"
        if after is not None:
            self._gained_room(cluster)
        for service, _ in self._records.services.under(cluster):
            self._look(service)

    def _gained_room(self, cluster: str) -> None:
        self._room[cluster] = self._context.clock()
        for key, entry in self._records.services.under(cluster):
            daemon = entry.value.service.scheduling_strategy == ecs.SchedulingStrategy.DAEMON
            states = (*entry.value.deployments, *(one.scaled.state for one in entry.value.task_sets))
            if daemon or any(one.unplaced_at for one in states):
                self._look(key)

    async def _reconcile(self, key: str, fence: Sequence[Compare]) -> None:
        """One service: decide, and apply as far as nothing has changed meanwhile; the change itself looks again."""
        entry = self._records.services.get(key)
        if entry is None or entry.value.ended_at:
            return
        now = self._context.clock()
        room = self._room.get(f"{entry.value.region}/{entry.value.cluster}", 0.0)
        decision = services.decide(serviceview.view(self._context, entry, self._pace, room), now)
        if decision.next_look_at is not None:
            self._agenda.put(key, decision.next_look_at)
        self._tell(key, decision)
        applied = await self._apply(entry, decision, fence, now)
        if not applied:
            # Somebody else was faster. Their change may be of a record that is not this service's own.
            self._look(key)

    async def _apply(
        self, entry: Entry[ServiceRecord], decision: Decision, fence: Sequence[Compare], now: float
    ) -> bool:
        stops = [(task, one.reason) for one in decision.stops for task in one.tasks]
        if decision.stores or stops:
            remembered = await self._store(entry, decision, stops[:MOST_STOPPED], fence, now)
            if remembered is None:
                return False
            entry = remembered
        for first in range(MOST_STOPPED, len(stops), MOST_STOPPED):
            compares, writes = self._stopping(entry.value, stops[first : first + MOST_STOPPED], now)
            if not (await self._records.commit([*compares, *fence], writes)).succeeded:
                return False
        for start in decision.starts:
            if not await servicestart.begin(self._context, entry, start, fence, self._pace, now):
                return False
            current = self._current(entry.value)
            if current is None:
                return False
            entry = current
        return True

    def _current(self, record: ServiceRecord) -> Entry[ServiceRecord] | None:
        return self._records.services.get(serviceview.key_of(record))

    async def _store(
        self,
        entry: Entry[ServiceRecord],
        decision: Decision,
        stops: Sequence[tuple[str, str]],
        fence: Sequence[Compare],
        now: float,
    ) -> Entry[ServiceRecord] | None:
        """Write what is to be remembered, and stop these tasks; the service as it is then, or None in a conflict."""
        records, record = self._records, entry.value
        where = (record.region, record.cluster, record.name)
        after = self._remembered(record, decision, now)
        compares, writes = self._stopping(record, stops, now)
        counted_compares, counted = self._accounted(record, decision.accounted)
        compares += [*fence, records.unchanged(records.services, entry, *where), *counted_compares]
        writes += counted
        if after != record:
            writes.append(records.put(records.services, after, *where))
        if decision.rollout is not None:
            rollout = serviceview.rollout_of(self._context, record)
            place = (*where, record.rollout)
            compares.append(records.unchanged(records.service_deployments, rollout, *place))
            writes.append(records.put(records.service_deployments, decision.rollout, *place))
        result = await records.commit(compares, writes)
        current = self._current(record)
        if not result.succeeded or current is None or current.value != after:
            return None
        return current

    def _remembered(self, record: ServiceRecord, decision: Decision, now: float) -> ServiceRecord:
        deployments = {one.id: one for one in record.deployments} | {one.id: one for one in decision.deployments}
        kept = tuple(one for name, one in deployments.items() if name not in decision.inactive)
        service = record.service
        if decision.rollback is not None:
            service = self._gone_back(record, decision.rollback)
        if decision.ended:
            service = msgspec.structs.replace(service, status="INACTIVE", desired_count=0)
        after = msgspec.structs.replace(
            record,
            service=service,
            deployments=() if decision.ended else primary_first(kept),
            task_sets=tasksetview.decided(record, decision, now),
            memory=decision.memory if decision.memory is not None else record.memory,
            ended_at=now if decision.ended else 0.0,
        )
        return with_events(self._context, after, decision.events, now)

    def _gone_back(self, record: ServiceRecord, rollback: Rollback) -> ecs.Service:
        """The service with what the revision it goes back to says."""
        revision = serviceview.revision_of(self._context, record, rollback.revision)
        if revision is None:
            return record.service
        return msgspec.structs.replace(
            record.service,
            task_definition=revision.task_definition,
            network_configuration=revision.network_configuration,
            launch_type=revision.launch_type,
            capacity_provider_strategy=revision.capacity_provider_strategy,
        )

    def _stopping(
        self, record: ServiceRecord, stops: Sequence[tuple[str, str]], now: float
    ) -> tuple[list[Compare], list[Write]]:
        records = self._records
        compares: list[Compare] = []
        writes: list[Write] = []
        for task_id, reason in stops:
            where = (record.region, record.cluster, task_id)
            entry = records.tasks.get(*where)
            if entry is None:
                continue
            task = lifecycle.stop(entry.value.task, StopCode.SERVICE, reason, now)
            host = names.last_part(task.container_instance_arn or "")
            if records.instances.get(record.region, record.cluster, host) is None:
                task = lifecycle.never_started(task, now)  # its host is gone: nobody is left to report its end
            compares.append(records.unchanged(records.tasks, entry, *where))
            writes.append(records.put(records.tasks, msgspec.structs.replace(entry.value, task=task), *where))
        return compares, writes

    def _accounted(self, record: ServiceRecord, tasks: Sequence[str]) -> tuple[list[Compare], list[Write]]:
        records = self._records
        compares: list[Compare] = []
        writes: list[Write] = []
        for task_id in tasks:
            where = (record.region, record.cluster, task_id)
            entry = records.tasks.get(*where)
            if entry is not None:
                compares.append(records.unchanged(records.tasks, entry, *where))
                done = msgspec.structs.replace(entry.value, accounted=True)
                writes.append(records.put(records.tasks, done, *where))
        return compares, writes

    def _tell(self, key: str, decision: Decision) -> None:
        """One line when a service does something, or when it begins or ceases to wait."""
        if decision.acts or bool(decision.why) != bool(self._why.get(key)):
            starts = sum(one.count for one in decision.starts)
            stops = sum(len(one.tasks) for one in decision.stops)
            log.info(
                "service decided",
                extra={"service": key, "starts": starts, "stops": stops, "waits": " ".join(decision.why)},
            )
        self._why[key] = decision.why


def _standing(record: InstanceRecord) -> tuple[object, ...]:
    """What of an instance can matter to a service."""
    instance = record.instance
    return instance.status, instance.agent_connected, instance.attributes, instance.registered_resources
