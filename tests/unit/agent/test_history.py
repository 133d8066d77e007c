"""What is remembered of tasks and of their host: each thing once, within bounds, whatever the log itself shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sexton.agent.history import MOST_TASKS, NOTES_PER_TASK, History
from unit.agent.rig import arn

log = logging.getLogger("sexton.agent.somewhere")


@pytest.fixture
def history() -> Iterator[History]:
    made = History()
    made.attach()
    yield made
    made.close()


def texts(history: History, number: int = 1) -> list[str]:
    return [one.text for one in history.of(arn(number))]


def test_events_of_a_task_become_sentences(history: History) -> None:
    log.info("task accepted", extra={"task": arn(), "stopped": False})
    log.warning("step waits for the engine", extra={"task": arn(), "container": "a", "step": "pull", "reason": "no"})
    facts = {"task": arn(), "container": "a", "was": "RUNNING", "is": "STOPPED", "exit_code": "3", "reason": ""}
    log.info("container changed", extra=facts)
    log.info("something new", extra={"task": arn(), "x": 1})
    assert texts(history) == [
        "this host took it in",
        "'pull' of container a got no answer and is tried again: no",
        "container a became STOPPED with exit code 3",
        "something new (x 1)",
    ]


def test_the_same_again_is_counted(history: History) -> None:
    for _ in range(5):
        log.warning("stop failed", extra={"task": arn(), "container": "a", "reason": "no"})
    (note,) = history.of(arn())
    assert note.times == 5


def test_events_of_the_host_are_kept_apart(history: History) -> None:
    log.warning("engine events broke off", extra={"reason": "gone"})
    log.info("engine events arrive again")
    log.info("of no interest")
    log.warning("disk is short", extra={"path": "/"})
    assert [one.text for one in history.host(0)] == [
        "the container engine went away: gone",
        "the container engine is back",
        "disk is short (path /)",
    ]
    assert history.host(2**40) == ()


def test_memory_has_bounds(history: History) -> None:
    for number in range(2 * MOST_TASKS):
        for count in range(2 * NOTES_PER_TASK):
            log.info("event", extra={"task": arn(number), "count": count})
    assert texts(history, 0) == []
    assert len(texts(history, 2 * MOST_TASKS - 1)) == NOTES_PER_TASK


def test_facts_that_are_missing_fail_nobody(history: History) -> None:
    log.warning("step waits for the engine", extra={"task": arn(), "container": "{x}"})
    assert texts(history) == ["step waits for the engine (container {x})"]


def test_what_is_remembered_does_not_depend_on_what_is_written(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    history = History()
    try:
        history.attach()
        log.info("task accepted", extra={"task": arn()})
        assert texts(history) == ["this host took it in"]
    finally:
        history.close()
        root.setLevel(before)
        logging.getLogger("sexton.agent").setLevel(logging.NOTSET)
