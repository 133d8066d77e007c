"""Opening what the agent remembers, whatever became of the file.

    readable                          taken as it is
    damaged, or gone                  put aside, never deleted; made anew from the plain records beside it
    and the records gone as well      from the labels of the containers that this instance made
    of a newer version, of another    refused, with what to do
    program, held by another agent

Who had to make something anew says so in the log, with where the old file is. Only an agent that has had a state here
looks at containers' labels: a fresh one beside another agent must not take that one's tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from sexton.agent.checkpoint import Checkpoint, Saved, Self
from sexton.agent.records import Records, put_aside
from sexton.core import task as core
from sexton.core.enginebody import INSTANCE_LABEL, LABEL
from sexton.core.task import DesiredTask
from sexton.runtime.contract import ContainerBrief, Runtime
from sexton.store.contract import Damaged, Durability, Store, StoreError
from sexton.store.opening import open_store
from sexton.wire import acs_task

log = logging.getLogger(__name__)

STATE_FILE = "agent.db"
# Without a checkpoint: the same for one life, and then gone.
VOLATILE_FILE = "agent-volatile.db"
RECORDS = "records"
# Where Amazon's agent keeps its own database of this name, this tells the two apart.
_BBOLT = b"\xed\xda\x0c\xed"


class State(NamedTuple):
    """An open state. ``lost``: there was one, and what it said about containers must be learnt from the engine."""

    store: Store
    checkpoint: Checkpoint
    tasks: dict[str, Saved]
    lost: bool = False


async def open_state(data_dir: Path, now: float, *, remember: bool = True) -> State:
    """Open, or make anew what cannot be opened. StoreError when neither may be done."""
    if not remember:
        return await _open_volatile(data_dir / VOLATILE_FILE)
    path = data_dir / STATE_FILE
    _refuse_amazons(path)
    gone = _is_gone(path)
    try:
        store = await open_store(f"sqlite://{path}", durability=Durability.NORMAL, history=False)
    except Damaged as error:
        aside = put_aside(path, now)
        log.error("state is damaged, put aside", extra={"file": str(path), "aside": str(aside), "reason": str(error)})
        gone = True
        store = await open_store(f"sqlite://{path}", durability=Durability.NORMAL, history=False)
    try:
        return await _load(store, Records(data_dir / RECORDS), now, gone=gone)
    except BaseException:
        await store.close()
        raise


async def of_this_machine(state: State, ec2_instance_id: str) -> State:
    """The state, unless it is another machine's: an image made of a running instance brings that one's along."""
    me = state.checkpoint.self
    if not ec2_instance_id:
        return state
    if me.ec2_instance_id in ("", ec2_instance_id):
        if me.instance_arn and not me.ec2_instance_id:
            await state.checkpoint.become(msgspec.structs.replace(me, ec2_instance_id=ec2_instance_id))
        return state
    log.warning(
        "state is of another EC2 instance and is discarded",
        extra={"was": me.ec2_instance_id, "is": ec2_instance_id, "tasks": len(state.tasks)},
    )
    await state.checkpoint.start_over(state.tasks)
    return State(state.store, state.checkpoint, {})


def _is_gone(path: Path) -> bool:
    """Whether there was a database, as its lock file says, which nobody removes, and there is none any more."""
    return Path(f"{path}.lock").exists() and (not path.exists() or path.stat().st_size == 0)


def _remove(path: Path) -> None:
    for side in ("", "-wal", "-shm"):
        Path(f"{path}{side}").unlink(missing_ok=True)


async def _open_volatile(path: Path) -> State:
    _remove(path)
    store = await open_store(f"sqlite://{path}", durability=Durability.NORMAL, history=False)
    return State(store, Checkpoint(store), {})


async def _load(store: Store, records: Records, now: float, *, gone: bool) -> State:
    checkpoint = Checkpoint(store, records)
    tasks = await checkpoint.load()
    if not gone and not checkpoint.unreadable:
        records.keep_only(set(tasks))
        return State(store, checkpoint, tasks)
    await checkpoint.discard(checkpoint.unreadable)
    me = checkpoint.self
    if not me.instance_arn:
        me = records.identity(Self) or me
        if me.instance_arn:
            await checkpoint.become(me)
    found = {one.desired.arn: one for one in records.tasks(Saved) if one.desired.arn not in tasks}
    await checkpoint.accept(found.values(), checkpoint.self.sequence)
    tasks |= found
    log.warning(
        "state made anew from records",
        extra={"instance": me.instance_arn or "unknown", "tasks": len(found), "of": len(tasks)},
    )
    return State(store, checkpoint, tasks, lost=True)


async def from_labels(state: State, runtime: Runtime, cluster: str, now: float) -> dict[str, Saved]:
    """What the engine's containers say of a state that is lost: the instance, where nothing else knew it, and tasks
    that no record has. RuntimeFault when the engine cannot be asked."""
    me = state.checkpoint.self
    listed = await runtime.list({INSTANCE_LABEL: me.instance_arn})
    if not me.instance_arn:
        owners = {one.labels[INSTANCE_LABEL] for one in listed if one.labels.get(LABEL + "cluster") == cluster}
        if len(owners) != 1:
            return {}  # nobody, or several: whose they are cannot be told
        me = Self(cluster=cluster, instance_arn=owners.pop())
        await state.checkpoint.become(me)
        log.warning("container instance known from containers' labels", extra={"instance": me.instance_arn})
    mine = [one for one in listed if one.labels.get(INSTANCE_LABEL) == me.instance_arn]
    found = [desired for desired in _tasks_of(mine) if desired.arn not in state.tasks]
    adopted = {one.arn: Saved(desired=one, known=core.accept(one, now)) for one in found}
    await state.checkpoint.accept(adopted.values(), state.checkpoint.self.sequence)
    if adopted:
        log.warning("tasks known from containers' labels", extra={"tasks": len(adopted)})
    return adopted


def _tasks_of(listed: Iterable[ContainerBrief]) -> list[DesiredTask]:
    """As much of a task as its containers' labels tell: enough to watch it, to stop it and to report its end. Which
    containers are essential they do not tell, so all are."""
    tasks: dict[str, list[ContainerBrief]] = {}
    for one in listed:
        tasks.setdefault(one.labels.get(LABEL + "task-arn", ""), []).append(one)
    tasks.pop("", None)
    return [
        DesiredTask(
            task=acs_task.Task(
                arn=arn,
                family=parts[0].labels.get(LABEL + "task-definition-family"),
                version=parts[0].labels.get(LABEL + "task-definition-version"),
                desired_status="RUNNING",
                containers=tuple(
                    acs_task.Container(name=one.labels.get(LABEL + "container-name"), image=one.image, essential=True)
                    for one in sorted(parts, key=lambda part: part.labels.get(LABEL + "container-name", ""))
                ),
            )
        )
        for arn, parts in tasks.items()
    ]


def _refuse_amazons(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return
    if head[16:20] == _BBOLT:
        raise StoreError(
            f"cannot open {path}: it is the state of Amazon's agent; give this one a directory of its own with "
            "ECS_DATADIR"
        )
