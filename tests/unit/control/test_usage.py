"""The sums per instance always equal what adding up all tasks would give."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from sexton.control.records import Table, TaskRecord
from sexton.control.usage import Usage
from sexton.core import resources
from sexton.core.resources import Resources
from sexton.store.contract import Change
from sexton.wire import ecs

INSTANCES = ("i1", "i2")
amounts = st.integers(0, 500)
ports = st.frozensets(st.integers(1, 4), max_size=3)
demands = st.builds(Resources, cpu=amounts, memory=amounts, tcp=ports, udp=ports)


class Changes(RuleBasedStateMachine):
    """Tasks are promised, written or not, change their status, and are forgotten, in any order."""

    promised = Bundle("promised")
    written = Bundle("written")

    def __init__(self) -> None:
        super().__init__()
        self.table = Table("tasks/", TaskRecord)
        self.usage = Usage(self.table)
        self.held: dict[str, tuple[TaskRecord, object]] = {}
        self.number = 0

    def apply(self, key: str, record: TaskRecord | None) -> None:
        tell = self.table.apply(Change(f"tasks/{key}", b"" if record else None, 1), record)
        assert tell is not None
        tell()

    @rule(target=promised, demand=demands, instance=st.sampled_from(INSTANCES))
    def promise(self, demand, instance):
        self.number += 1
        key = f"t{self.number}"
        task = ecs.Task(container_instance_arn=instance, last_status="PENDING")
        record = TaskRecord(region="r", cluster="c", id=key, task=task, demand=demand)
        manager = self.usage.promised([(key, record)])
        manager.__enter__()
        self.held[key] = (record, manager)
        return key

    @rule(target=written, key=promised)
    def write(self, key):
        if key in self.held and self.table.get(key) is None:
            self.apply(key, self.held[key][0])
        return key

    @rule(key=promised)
    def let_go(self, key):
        if key in self.held:
            self.held.pop(key)[1].__exit__(None, None, None)

    @rule(key=written, status=st.sampled_from(["PENDING", "RUNNING", "STOPPED"]))
    def change(self, key, status):
        entry = self.table.get(key)
        if entry is not None:
            task = ecs.Task(container_instance_arn=entry.value.task.container_instance_arn, last_status=status)
            self.apply(key, TaskRecord(region="r", cluster="c", id=key, task=task, demand=entry.value.demand))

    @rule(key=written)
    def forget(self, key):
        if self.table.get(key) is not None:
            self.let_go(key)
            self.apply(key, None)

    @invariant()
    def adds_up(self):
        for instance in INSTANCES:
            live = [one.value for one in self.table.all() if not one.value.stopped]
            unseen = [record for key, (record, _) in self.held.items() if self.table.get(key) is None]
            mine = [one for one in live + unseen if one.task.container_instance_arn == instance]
            shown = [one.task.last_status for one in live if one.task.container_instance_arn == instance]
            used = self.usage.of(instance)
            assert used.resources == resources.total(one.demand for one in mine)
            assert used.tasks == len(mine)
            assert (used.running, used.pending) == (shown.count("RUNNING"), shown.count("PENDING"))

    def teardown(self):
        for key in list(self.held):
            self.let_go(key)
        for key, _ in self.table.items():
            self.apply(key, None)
        assert not self.usage._tallies, "what is empty must not be kept"


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
