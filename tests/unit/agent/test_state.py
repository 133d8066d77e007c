"""Opening the state: whatever became of the file, this agent is who it was and knows its tasks, or says why not."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sexton.agent.checkpoint import Saved, Self
from sexton.agent.state import RECORDS, STATE_FILE, State, from_labels, open_state
from sexton.core import enginebody
from sexton.core import task as core
from sexton.core.task import SHARE, ContainerStatus, DesiredTask, Event, Happened, TaskStatus
from sexton.runtime.fake import FakeRuntime
from sexton.store.contract import StoreError
from unit.agent.rig import CLUSTER, IMAGE, INSTANCE, arn, container, task

NOW = 1_800_000_000.0
ME = Self(cluster=CLUSTER, region="r", instance_arn=INSTANCE, sequence=5)


def saved(number: int, *, running: bool = False) -> Saved:
    desired = DesiredTask(task=task(number), sequence=3)
    known = core.accept(desired, NOW)
    if running:
        happened = Event(container="app", happened=Happened.STARTED, time=NOW, runtime_id="c1", started_at=NOW)
        known = core.observe(desired, known, happened)
    return Saved(desired=desired, known=known)


async def lived(place: Path) -> None:
    """An earlier process of this agent: two tasks, one of which runs."""
    state = await open_state(place, NOW)
    await state.checkpoint.become(ME)
    await state.checkpoint.accept([saved(1), saved(2)], 5)
    running = saved(2, running=True)
    state.checkpoint.changed(running.desired, running.known)
    await state.checkpoint.flush()
    await state.store.close()


async def opened(place: Path) -> State:
    state = await open_state(place, NOW + 60)
    await state.store.close()
    return state


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()


def scrambled(path: Path) -> None:
    path.write_bytes(random.Random(4).randbytes(path.stat().st_size))


def scrambled_inside(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = random.Random(4).randbytes(len(data) - 4096)
    path.write_bytes(bytes(data))


def without_its_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE records")
    connection.close()


DAMAGES = [truncated, emptied, removed, scrambled, scrambled_inside, without_its_table]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
async def test_whatever_became_of_the_file_nothing_is_forgotten(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    await lived(tmp_path)
    damage(tmp_path / STATE_FILE)
    state = await opened(tmp_path)
    assert state.lost and state.checkpoint.self.instance_arn == INSTANCE
    assert state.checkpoint.self.cluster == CLUSTER
    assert set(state.tasks) == {arn(1), arn(2)}
    # How far it had come is known too: a task that ran is looked for, never run a second time.
    assert state.tasks[arn(2)].known.container("app").status is ContainerStatus.RUNNING
    assert state.tasks[arn(1)].known.status is TaskStatus.NONE
    assert "state made anew from records" in caplog.text
    again = await opened(tmp_path)
    assert not again.lost and set(again.tasks) == {arn(1), arn(2)}


async def test_a_damaged_file_is_kept_aside(tmp_path: Path) -> None:
    for _ in range(2):
        await lived(tmp_path)
        scrambled(tmp_path / STATE_FILE)
        damaged = (tmp_path / STATE_FILE).read_bytes()
        await opened(tmp_path)
        assert damaged in [path.read_bytes() for path in tmp_path.glob("agent.db.damaged-*")]


async def test_a_row_that_cannot_be_read_is_made_anew_from_its_record(tmp_path: Path) -> None:
    await lived(tmp_path)
    with sqlite3.connect(tmp_path / STATE_FILE) as connection:
        connection.execute("UPDATE records SET value = x'00' WHERE key IN ('self', 'tasks/' || printf('%032x', 2))")
    connection.close()
    state = await opened(tmp_path)
    assert state.checkpoint.self.instance_arn == INSTANCE and set(state.tasks) == {arn(1), arn(2)}


async def test_a_record_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    await lived(tmp_path)
    (tmp_path / RECORDS / "tasks" / f"{1:032x}.json").write_text("{")
    removed(tmp_path / STATE_FILE)
    assert set((await opened(tmp_path)).tasks) == {arn(2)}


async def test_what_is_over_leaves_no_record(tmp_path: Path) -> None:
    await lived(tmp_path)
    state = await open_state(tmp_path, NOW)
    await state.checkpoint.forget(arn(1))
    await state.checkpoint.flush()
    await state.store.close()
    assert [path.stem for path in (tmp_path / RECORDS / "tasks").iterdir()] == [f"{2:032x}"]
    removed(tmp_path / STATE_FILE)
    assert set((await opened(tmp_path)).tasks) == {arn(2)}


async def test_records_are_for_their_owner_alone_and_hold_no_more_than_the_state(tmp_path: Path) -> None:
    await lived(tmp_path)
    files = [path for path in (tmp_path / RECORDS).rglob("*") if path.is_file()]
    assert files and all(path.stat().st_mode & 0o077 == 0 for path in files)
    (one,) = [path for path in files if path.stem == f"{2:032x}"]
    assert msgspec.json.decode(one.read_bytes(), type=Saved).desired.arn == arn(2)


async def test_a_fresh_agent_has_lost_nothing(tmp_path: Path) -> None:
    state = await opened(tmp_path)
    assert not state.lost and state.tasks == {} and state.checkpoint.self == Self()


async def test_without_a_checkpoint_every_start_is_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        state = await open_state(tmp_path, NOW, remember=False)
        assert state.checkpoint.self == Self() and not state.lost
        await state.checkpoint.become(ME)
        await state.store.close()
    assert not (tmp_path / RECORDS).exists() and not (tmp_path / STATE_FILE).exists()


async def test_amazons_own_file_is_left_alone(tmp_path: Path) -> None:
    theirs = bytes(16) + b"\xed\xda\x0c\xed" + bytes(4076)
    (tmp_path / STATE_FILE).write_bytes(theirs)
    with pytest.raises(StoreError, match="it is the state of Amazon's agent; give this one a directory of its own"):
        await opened(tmp_path)
    assert (tmp_path / STATE_FILE).read_bytes() == theirs and len(list(tmp_path.iterdir())) == 1


async def test_another_programs_database_and_another_agents_are_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / STATE_FILE) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreError, match="another program's database"):
        await opened(tmp_path)
    state = await open_state(tmp_path / "mine", NOW)
    with pytest.raises(StoreError, match="is using it"):
        await opened(tmp_path / "mine")
    await state.store.close()


async def made(runtime: FakeRuntime, instance: str, number: int, *names: str) -> None:
    one = task(number, *(container(name) for name in names))
    for name in names:
        labels = enginebody.labels(one, name, CLUSTER, instance)
        ref = await runtime.create(enginebody.engine_name(one, name), {"Image": IMAGE, "Labels": labels})
        await runtime.start(ref)


async def lost_all(place: Path) -> State:
    """Both the database and the records are gone; only that there was something here is known."""
    await lived(place)
    removed(place / STATE_FILE)
    for path in (place / RECORDS).rglob("*.json"):
        path.unlink()
    return await open_state(place, NOW)


async def test_labels_tell_who_it_was_and_what_ran(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=[IMAGE])
    await made(runtime, INSTANCE, 1, "a", "b")
    await made(runtime, INSTANCE, 2, "app")
    state = await lost_all(tmp_path)
    adopted = await from_labels(state, runtime, CLUSTER, NOW)
    assert state.checkpoint.self.instance_arn == INSTANCE
    assert {one: [c.name for c in adopted[one].known.containers] for one in adopted} == {
        arn(1): ["a", "b"],
        arn(2): ["app"],
    }
    assert adopted[arn(1)].desired.task.family == "web"
    # The names in the engine follow from what was found, so each container is found again.
    assert enginebody.engine_name(adopted[arn(1)].desired.task, "a") == enginebody.engine_name(task(1), "a")
    await state.store.close()
    assert set((await opened(tmp_path)).tasks) == {arn(1), arn(2)}


async def test_labels_of_several_instances_tell_nobody(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=[IMAGE])
    await made(runtime, INSTANCE, 1, "a")
    await made(runtime, INSTANCE + "2", 2, "a")
    state = await lost_all(tmp_path)
    assert await from_labels(state, runtime, CLUSTER, NOW) == {}
    assert state.checkpoint.self.instance_arn == ""
    await state.store.close()


async def test_labels_add_only_what_no_record_has_and_only_of_this_instance(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=[IMAGE])
    for number, instance in ((1, INSTANCE), (3, INSTANCE), (4, INSTANCE + "2")):
        await made(runtime, instance, number, "app")
    await lived(tmp_path)
    removed(tmp_path / STATE_FILE)
    state = await open_state(tmp_path, NOW)
    assert set(await from_labels(state, runtime, CLUSTER, NOW)) == {arn(3)}
    await state.store.close()


async def test_a_record_is_written_when_a_container_begins_or_ends_and_for_nothing_else(tmp_path: Path) -> None:
    """Each is a file: fifty tasks at once must not write one for every turn of their lives."""
    state = await open_state(tmp_path, NOW)
    desired = DesiredTask(task=task(1))
    known = core.accept(desired, NOW)
    await state.checkpoint.accept([Saved(desired=desired, known=known)], 1)
    record = tmp_path / RECORDS / "tasks" / f"{1:032x}.json"
    written = []
    for status in ContainerStatus:
        before = record.stat().st_ino
        known = known.change("app", status=status)
        state.checkpoint.changed(desired, msgspec.structs.replace(known, status=SHARE[status]))
        state.checkpoint.changed(desired, msgspec.structs.replace(known, status=SHARE[status], pull_started_at=2.0))
        if record.stat().st_ino != before:
            written.append(str(status))
    assert written == ["RUNNING", "STOPPED"]
    await state.store.close()
