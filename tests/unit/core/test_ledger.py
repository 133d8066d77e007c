"""A finding's life: it closes itself, a blind probe closes nothing, and whoever comes and goes is told of once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.ledger import (
    ENTRIES_FIRST,
    ENTRIES_LAST,
    FLAP_QUIET,
    KEEP_RESOLVED,
    RECORDS_KEPT,
    Kind,
    Look,
    Mute,
    Record,
    Sight,
    State,
    dropped_entries,
    file_look,
    forgotten,
    muted,
    mutes_over,
    orphans,
)


def finding(name: str = "a/x", severity: Severity = Severity.WARNING, culprit: str = "x") -> Finding:
    evidence = (Evidence("a number", "1", "a file"),)
    return Finding(
        fingerprint=name,
        severity=severity,
        title=f"{name} is wrong",
        culprit=culprit,
        evidence=evidence,
        next_step="do",
    )


def look(*found: Finding, probe: str = "p", sight: Sight = Sight.LOOKED, sure: bool = False, **more: str) -> Look:
    return Look(probe=probe, sight=sight, findings=found, sure=sure, **more)


class World:
    """A ledger in memory, and everything its histories were told."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.said: list[tuple[float, Kind, bool]] = []

    def file(self, now: float, what: Look) -> None:
        for changed in file_look(self.records, what, now):
            self.records[changed.record.fingerprint] = changed.record
            self.said += [(now, entry.kind, entry.told) for entry in changed.entries]

    @property
    def kinds(self) -> list[Kind]:
        return [kind for _, kind, _ in self.said]

    def state(self, now: float, name: str = "a/x") -> State:
        return self.records[name].state(now)


@pytest.fixture
def world() -> World:
    return World()


def test_it_opens_holds_closes_and_opens_again(world: World) -> None:
    world.file(0, look(finding()))
    assert world.state(0) is State.OPEN
    world.file(60, look(finding()))
    assert world.state(60) is State.STILL_TRUE
    world.file(120, look())
    assert world.state(120) is State.STILL_TRUE  # one look may fall between two turns
    world.file(180, look())
    assert world.state(180) is State.RESOLVED
    world.file(9000, look(finding()))

    record = world.records["a/x"]
    assert (record.state(9000), record.first_seen, record.opened, record.times) == (State.OPEN, 0, 9000, 2)
    assert world.kinds == [Kind.OPENED, Kind.RESOLVED, Kind.REOPENED]


def test_a_blind_probe_closes_nothing(world: World) -> None:
    world.file(0, look(finding()))
    for now in range(60, 6000, 60):
        world.file(now, look(sight=Sight.BLIND, reason="no permission"))

    assert world.state(6000) is State.OPEN
    assert world.records["a/x"].blind_since == 60
    world.file(6000, look(finding()))
    assert world.records["a/x"].blind_since is None
    assert world.kinds == [Kind.OPENED, Kind.BLIND, Kind.SEEN_AGAIN]


def test_looks_before_and_after_a_blind_one_do_not_make_two_in_a_row_of_different_times(world: World) -> None:
    world.file(0, look(finding()))
    world.file(60, look())
    world.file(120, look(finding()))
    world.file(180, look())

    assert world.state(180) is State.STILL_TRUE


def test_where_the_host_has_no_such_thing_any_more_it_closes_at_once(world: World) -> None:
    world.file(0, look(finding()))
    world.file(60, look(sight=Sight.NOT_PRESENT, reason="no engine"))

    assert world.state(60) is State.RESOLVED


def test_a_sure_look_closes_at_once(world: World) -> None:
    world.file(0, look(finding()))
    world.file(1, look(sure=True))

    assert world.state(1) is State.RESOLVED


def test_what_comes_and_goes_is_told_once_and_closes_late(world: World) -> None:
    now = 0.0
    for _ in range(10):
        world.file(now, look(finding()))
        world.file(now + 60, look())
        world.file(now + 120, look())
        now += 180
    told = [kind for _, kind, told in world.said if told]

    assert told.count(Kind.FLAPPING) == 1
    assert told == [Kind.OPENED, Kind.RESOLVED, Kind.REOPENED, Kind.RESOLVED, Kind.FLAPPING]
    assert world.records["a/x"].flapping
    assert world.state(now) is State.STILL_TRUE
    world.file(now + FLAP_QUIET, look())
    assert world.state(now + FLAP_QUIET) is State.RESOLVED


def test_worse_and_better_are_told_and_figures_in_a_culprit_are_no_news(world: World) -> None:
    world.file(0, look(finding(culprit="unit a (70%)")))
    world.file(1, look(finding(culprit="unit a (71%)")))
    world.file(2, look(finding(severity=Severity.CRITICAL, culprit="unit a (72%)")))
    world.file(3, look(finding(culprit="unit b (72%)")))

    assert world.kinds == [Kind.OPENED, Kind.WORSE, Kind.BETTER, Kind.CULPRIT]
    assert [told for _, _, told in world.said] == [True, True, False, False]


def test_two_probes_that_see_the_same_are_one_finding_that_closes_with_the_last(world: World) -> None:
    world.file(0, look(finding(), probe="p"))
    world.file(1, look(finding(severity=Severity.CRITICAL), probe="q"))
    assert world.records["a/x"].finding.severity is Severity.CRITICAL
    world.file(2, look(probe="q", sure=True))
    assert world.state(2) is State.STILL_TRUE
    assert world.records["a/x"].finding.severity is Severity.WARNING
    world.file(3, look(probe="p"))
    world.file(4, look(probe="p"))

    assert world.state(4) is State.RESOLVED
    assert world.kinds == [Kind.OPENED, Kind.WORSE, Kind.RESOLVED]


def test_it_is_out_of_sight_only_when_no_probe_can_look(world: World) -> None:
    world.file(0, look(finding(), probe="p"))
    world.file(1, look(finding(), probe="q"))
    world.file(2, look(probe="p", sight=Sight.BLIND, reason="dark"))
    assert world.records["a/x"].blind_since is None
    world.file(3, look(probe="q", sight=Sight.BLIND, reason="dark"))

    assert world.records["a/x"].blind_since == 3


def test_a_muted_finding_is_kept_but_not_told(world: World) -> None:
    world.file(0, look(finding()))
    silent = muted(world.records["a/x"], Mute(since=1, until=1000, who="me", reason="known"))
    world.records["a/x"] = silent.record
    world.file(2, look(finding(severity=Severity.CRITICAL)))

    assert world.state(2) is State.MUTED
    assert world.said[-1] == (2, Kind.WORSE, False)
    assert world.state(1000) is State.STILL_TRUE
    (heard,) = mutes_over(world.records.values(), 1000)
    assert heard.record.mute is None
    assert mutes_over(world.records.values(), 999) == ()


def test_findings_of_probes_that_are_gone_close_and_say_that_nobody_knows(world: World) -> None:
    world.file(0, look(finding(), probe="old"))
    (closed,) = orphans(world.records.values(), frozenset({"new"}), 5)

    assert not closed.record.open
    assert "not known" in closed.entries[0].says
    assert orphans(world.records.values(), frozenset({"old"}), 5) == ()


def test_closed_findings_are_forgotten_in_time_and_open_ones_only_when_there_are_too_many(world: World) -> None:
    world.file(0, look(finding("a/old")))
    world.file(1, look(sure=True))
    for number in range(RECORDS_KEPT + 3):
        world.file(100 + number, look(finding(f"b/{number:04}"), probe=f"p{number}"))

    gone = forgotten(world.records.values(), 200)
    assert gone == ("a/old", "b/0000", "b/0001", "b/0002")
    few = {name: record for name, record in world.records.items() if name == "a/old"}
    assert forgotten(few.values(), KEEP_RESOLVED) == ()
    assert forgotten(few.values(), KEEP_RESOLVED + 2) == ("a/old",)


@given(st.lists(st.integers(min_value=1, max_value=5), max_size=80))
def test_a_history_keeps_its_beginning_and_its_end(steps: list[int]) -> None:
    kept: set[int] = set()
    written = 0
    for many in steps:
        kept |= set(range(written, written + many))
        kept -= set(dropped_entries(written, written + many))
        written += many

    assert len(kept) <= ENTRIES_FIRST + ENTRIES_LAST
    assert set(range(min(written, ENTRIES_FIRST))) <= kept
    assert set(range(max(0, written - ENTRIES_LAST), written)) <= kept


SIGHTS = st.sampled_from(["seen", "missed", "blind", "absent"])


@given(st.lists(st.tuples(SIGHTS, st.sampled_from("pq"), st.integers(min_value=1, max_value=2000)), max_size=60))
def test_whatever_happens_the_ledger_is_sound(days: list[tuple[str, str, int]]) -> None:
    world, now = World(), 0
    last_seen = None
    for sight, probe, later in days:
        now += later
        match sight:
            case "seen":
                world.file(now, look(finding(), probe=probe))
                last_seen = now
            case "missed":
                world.file(now, look(probe=probe))
            case "blind":
                world.file(now, look(probe=probe, sight=Sight.BLIND, reason="dark"))
            case _:
                world.file(now, look(probe=probe, sight=Sight.NOT_PRESENT, reason="gone"))
        for record in world.records.values():
            assert record.open == bool(record.views)
            assert record.open == (record.resolved is None)
            assert record.last_seen == last_seen
            assert record.times >= len([1 for kind in world.kinds if kind is Kind.REOPENED])
            assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record
    opens = [kind for kind in world.kinds if kind in (Kind.OPENED, Kind.REOPENED, Kind.RESOLVED)]
    assert all((kind is Kind.RESOLVED) == (number % 2 == 1) for number, kind in enumerate(opens))
