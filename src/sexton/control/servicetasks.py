"""Which tasks belong to which service, so that a service's decision looks at its own tasks and no others.

Fed by the table of tasks. A task is here from its start until it has ended *and* its service has taken that into
account; what is kept longer only to be shown is in the table alone. Nothing survives a restart: the table's first
loading finds everything again.
"""

from __future__ import annotations

from sexton.control.records import Entry, Table, TaskRecord


def service_key(record: TaskRecord) -> str:
    """The key of the task's service in its table; empty for a task of none."""
    return f"{record.region}/{record.cluster}/{record.service}" if record.service else ""


class ServiceTasks:
    """Follows the task table."""

    def __init__(self, tasks: Table[TaskRecord]) -> None:
        self._by_service: dict[str, dict[str, Entry[TaskRecord]]] = {}
        tasks.listen(self._changed)

    def of(self, service: str) -> list[Entry[TaskRecord]]:
        """The tasks of the service with this key."""
        return list(self._by_service.get(service, {}).values())

    def _changed(self, key: str, before: Entry[TaskRecord] | None, after: Entry[TaskRecord] | None) -> None:
        known = after or before
        service = service_key(known.value) if known else ""
        if not service:
            return
        if after is not None and not (after.value.stopped and after.value.accounted):
            self._by_service.setdefault(service, {})[key] = after
            return
        members = self._by_service.get(service, {})
        members.pop(key, None)
        if not members:
            self._by_service.pop(service, None)
