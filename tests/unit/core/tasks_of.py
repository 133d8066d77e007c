"""Short ways to write down tasks, and everything that can happen to them, for the tests of the state machine."""

from __future__ import annotations

from hypothesis import strategies as st

from sexton.core import task as core
from sexton.core.task import DesiredTask, Event, Happened, KnownTask, Step
from sexton.wire import acs_task

ARN = "arn:aws:ecs:eu-west-1:123456789012:task/default/0123456789abcdef0123456789abcdef"


def desired(*, stopped: bool = False, **essential: bool) -> DesiredTask:
    """A task whose containers are given by name with whether they are essential."""
    containers = tuple(acs_task.Container(name=name, image="i", essential=flag) for name, flag in essential.items())
    return DesiredTask(task=acs_task.Task(arn=ARN, containers=containers), stopped=stopped)


def happen(container: str, happened: Happened, at: float = 1.0, **fields) -> Event:
    return Event(container=container, happened=happened, time=at, **fields)


def after(wanted: DesiredTask, *events: Event, known: KnownTask | None = None) -> KnownTask:
    known = known or core.accept(wanted, 0.5)
    for event in events:
        known = core.observe(wanted, known, event)
    return known


# What a step can answer; a step that looks may find anything that is there.
ANSWERS: dict[Step, tuple[Happened, ...]] = {
    Step.RESOLVE: (Happened.RESOLVED, Happened.GAVE_UP),
    Step.PULL: (Happened.PULLED, Happened.GAVE_UP),
    Step.CREATE: (Happened.CREATED, Happened.GAVE_UP),
    Step.START: (Happened.STARTED, Happened.GAVE_UP, Happened.EXITED, Happened.VANISHED),
    Step.STOP: (Happened.EXITED, Happened.GAVE_UP, Happened.VANISHED),
}

shapes = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.booleans(), min_size=1).map(lambda made: desired(**made))
times = st.floats(min_value=1, max_value=2**31)


@st.composite
def events(draw, names=("a", "b", "c")) -> Event:
    """Anything at all, sensible or not."""
    happened = draw(st.sampled_from(Happened))
    exited = happened is Happened.EXITED
    return happen(
        draw(st.sampled_from(names)),
        happened,
        draw(times),
        exit_code=draw(st.none() | st.integers(0, 255)) if exited else None,
        error=draw(st.sampled_from(["", "SomeError: it broke", "OtherError: it broke too"])),
        fatal=draw(st.booleans()),
        runtime_id=draw(st.sampled_from(["", "r1", "r2"])),
        started_at=draw(st.just(0.0) | times),
        finished_at=draw(st.just(0.0) | times) if exited else 0.0,
    )
