"""The board: every placement is the best there is, never beyond what a host has, and never by history."""

from __future__ import annotations

import random
import time
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.core import board as boards
from sexton.core import resources
from sexton.core.board import Board
from sexton.core.constraint import Rules
from sexton.core.placement import Host, Wanted, Why, occupy, refuse
from sexton.core.query import read
from sexton.core.resources import Resources
from sexton.core.strategy import INSTANCE, ZONE, Strategy
from sexton.wire.ecs import PlacementStrategyType

BINPACK_MEMORY = Strategy(PlacementStrategyType.BINPACK, "memory")
BINPACK_CPU = Strategy(PlacementStrategyType.BINPACK, "cpu")
SPREAD_HOSTS = Strategy(PlacementStrategyType.SPREAD, INSTANCE)
SPREAD_ZONES = Strategy(PlacementStrategyType.SPREAD, ZONE)
SPREAD_RACKS = Strategy(PlacementStrategyType.SPREAD, "attribute:rack")
RANDOM = Strategy(PlacementStrategyType.RANDOM)
SMALL = Resources(cpu=10, memory=10)


def host(arn, *, zone="a", cpu=1000, memory=1000, **fields):
    values = {"ecs.availability-zone": zone}
    usual = {
        "active": True,
        "connected": True,
        "attributes": frozenset(values),
        "values": values,
        "capacity": Resources(cpu=cpu, memory=memory),
        "used_ports": resources.NOTHING,
        "used": resources.NOTHING,
        "tasks": 0,
    }
    return Host(arn=arn, **(usual | fields))


def board_of(*hosts):
    board = Board()
    for one in hosts:
        board.put(one)
    return board


def placed(board, count, draw=0.0, **wanted):
    return list(board.place(Wanted(demand=SMALL, group="g", **wanted), [draw] * count).arns)


def test_spread_over_zones_evens_them_out_and_then_the_hosts_inside():
    board = board_of(
        *(host(f"{zone}{number}", zone=zone) for zone, many in (("a", 3), ("b", 1)) for number in range(many))
    )

    arns = placed(board, 6, strategies=(SPREAD_ZONES, SPREAD_HOSTS))

    assert Counter(arn[0] for arn in arns) == {"a": 3, "b": 3}
    assert Counter(arns) == {"a0": 1, "a1": 1, "a2": 1, "b0": 3}


def test_spread_counts_the_tasks_of_the_group_alone():
    busy = host("busy", groups={"others": 9}, tasks=9)
    ours = host("ours", groups={"g": 1}, tasks=1)

    assert placed(board_of(busy, ours), 1, strategies=(SPREAD_HOSTS,)) == ["busy"]


def test_spread_counts_tasks_on_hosts_that_take_no_more():
    leaving = host("leaving", zone="a", active=False, groups={"g": 2}, tasks=2)

    assert placed(board_of(leaving, host("a", zone="a"), host("b", zone="b")), 2, strategies=(SPREAD_ZONES,)) == [
        "b",
        "b",
    ]


def test_spread_goes_on_where_there_is_room_when_the_best_zone_is_full():
    board = board_of(host("a", zone="a", cpu=10), host("b", zone="b"))

    assert placed(board, 5, strategies=(SPREAD_ZONES,)) == ["a", "b", "b", "b", "b"]


def test_hosts_without_the_attribute_are_one_group_of_their_own():
    bare = host("bare", attributes=frozenset(), values={})

    assert Counter(placed(board_of(bare, host("a"), host("b")), 4, strategies=(SPREAD_ZONES,)))["bare"] == 2


def test_binpack_fills_the_fullest_host_first_and_opens_no_fresh_one_without_need():
    board = board_of(host("big", memory=100), host("small", memory=30), host("mid", memory=50))

    assert placed(board, 9, strategies=(BINPACK_MEMORY,)) == ["small"] * 3 + ["mid"] * 5 + ["big"]
    twins = board_of(host("fresh", memory=50), host("used", memory=60, used=Resources(memory=10), tasks=1))
    assert placed(twins, 1, strategies=(BINPACK_MEMORY,)) == ["used"]


def test_spread_then_binpack_packs_inside_the_zone_whose_turn_it_is():
    board = board_of(
        host("a1", memory=90), host("a2", memory=40), host("b1", zone="b", memory=30), host("b2", zone="b")
    )

    assert placed(board, 4, strategies=(SPREAD_ZONES, BINPACK_MEMORY)) == ["b1", "a2", "b1", "a2"]


def test_random_gives_every_host_its_share_of_the_draws():
    board = board_of(*(host(name) for name in "dacb"), host("full", cpu=5))
    wanted = Wanted(demand=SMALL, strategies=(RANDOM,))

    assert [board.choose(wanted, draw) for draw in (0.0, 0.26, 0.5, 0.99, 1.0)] == ["a", "b", "c", "d", "d"]


def test_random_after_a_spread_chooses_among_the_best_only():
    board = board_of(host("a", groups={"g": 1}), host("b"), host("c"))
    wanted = Wanted(demand=SMALL, group="g", strategies=(SPREAD_HOSTS, RANDOM))

    assert {board.choose(wanted, number / 10) for number in range(10)} == {"b", "c"}


def test_distinct_instance_takes_each_host_once_and_says_so_afterwards():
    board = board_of(host("a"), host("b", groups={"other": 1}, tasks=1))
    wanted = Wanted(demand=SMALL, group="g", rules=Rules(distinct=True))

    placement = board.place(wanted, [0.0] * 3)

    assert sorted(placement.arns) == ["a", "b"]
    assert [(one.why, one.detail) for one in placement.refusals] == [
        (Why.DISTINCT, "a task of group g is on it already"),
        (Why.DISTINCT, "a task of group g is on it already"),
    ]
    assert Why.DISTINCT == "DistinctInstance placement constraint unsatisfied."


def test_member_of_follows_the_group_as_it_moves():
    board = board_of(host("a"), host("b"))
    near = Wanted(demand=SMALL, group="g", rules=Rules((read("task:group == database"),)))
    database = Wanted(demand=SMALL, group="database")

    assert board.place(near, [0.0]).arns == ()
    assert {(one.why, one.detail) for one in board.refusals(near)} == {
        (Why.MEMBER_OF, "does not match: task:group == database")
    }
    board.occupy("b", database)
    assert board.place(near, [0.0]).arns == ("b",)
    board.release("b", database)
    assert board.choose(near) is None


def test_a_host_that_changes_or_goes_is_known_at_once():
    board = board_of(host("a"), host("b", tasks=1))
    wanted = Wanted(demand=SMALL)
    assert board.choose(wanted) == "a"

    board.put(host("a", connected=False))
    assert board.choose(wanted) == "b"
    board.drop("b")
    assert board.choose(wanted) is None
    assert [one.why for one in board.refusals(wanted)] == [Why.AGENT]
    board.put(host("c"))
    assert board.choose(wanted) == "c"
    assert (len(board), sorted(one.arn for one in board), board.get("b")) == (2, ["a", "c"], None)


def test_a_named_host_is_judged_alone():
    board = board_of(host("a", memory=5), host("b"))

    assert board.refusal("b", Wanted(demand=SMALL)) is None
    assert board.refusal("a", Wanted(demand=SMALL)).detail == "needs 10 MiB, 5 MiB left"


numbers = st.integers(0, 3)
strategy_lists = st.lists(
    st.sampled_from([BINPACK_CPU, BINPACK_MEMORY, SPREAD_HOSTS, SPREAD_ZONES, SPREAD_RACKS, RANDOM]), max_size=3
).map(tuple)
rule_sets = st.builds(
    Rules,
    st.lists(
        st.sampled_from(
            [
                "attribute:rack == r1",
                "not task:group == g",
                "runningTasksCount < 1",
                "attribute:ecs.availability-zone in [a]",
            ]
        ).map(read),
        max_size=1,
    ).map(tuple),
    st.booleans(),
)
wanteds = st.builds(
    Wanted,
    demand=st.builds(
        Resources, cpu=numbers, memory=numbers, tcp=st.sampled_from([frozenset(), frozenset(), frozenset({80})])
    ),
    required=st.sampled_from([frozenset(), frozenset(), frozenset({"x"})]),
    group=st.sampled_from(["g", "h"]),
    rules=rule_sets,
    strategies=strategy_lists,
)


@st.composite
def any_hosts(draw):
    values = {"ecs.availability-zone": draw(st.sampled_from("ab"))}
    if draw(st.booleans()):
        values["rack"] = draw(st.sampled_from(["r1", "r2"]))
    groups = draw(st.dictionaries(st.sampled_from(["g", "h"]), st.integers(1, 2)))
    return host(
        draw(st.sampled_from("abcdef")),
        values=values,
        attributes=frozenset(values) | draw(st.sampled_from([frozenset({"x"}), frozenset()])),
        capacity=Resources(cpu=draw(st.integers(0, 12)), memory=draw(st.integers(0, 12))),
        active=draw(st.sampled_from([True, True, False])),
        connected=draw(st.sampled_from([True, True, False])),
        groups=groups,
        running=draw(st.integers(0, 1)),
        tasks=sum(groups.values()),
    )


def plainly(hosts, wanted, draw):
    """The choice said again without any speed: keep what each strategy likes best, then the rules for ties."""
    left = [one for one in hosts if refuse(one, wanted.demand, wanted.required, wanted.rules, wanted.group) is None]
    left.sort(key=lambda one: one.arn)
    if not left:
        return None
    for chosen in wanted.strategies:
        if chosen is RANDOM or chosen == RANDOM:
            return left[int(draw * len(left))].arn
        liking = {one.arn: measured(chosen, one, hosts, wanted.group) for one in left}
        left = [one for one in left if liking[one.arn] == min(liking.values())]
    if {BINPACK_CPU, BINPACK_MEMORY} & set(wanted.strategies):
        return min(left, key=lambda one: (-one.tasks, one.arn)).arn
    return min(left, key=lambda one: (one.tasks, -one.left.memory, one.arn)).arn


def measured(chosen, one, hosts, group):
    if chosen == BINPACK_CPU:
        return one.left.cpu
    if chosen == BINPACK_MEMORY:
        return one.left.memory
    if chosen == SPREAD_HOSTS:
        return one.groups.get(group, 0)
    name = chosen.field.removeprefix("attribute:")
    return sum(other.groups.get(group, 0) for other in hosts if other.values.get(name) == one.values.get(name))


@given(
    st.lists(any_hosts() | st.sampled_from("abcdef") | wanteds, max_size=25),
    st.lists(wanteds, min_size=1, max_size=3),
    st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=300, deadline=None)
def test_after_any_history_the_choice_is_the_plain_one_and_that_of_a_fresh_board(history, kinds, draw):
    board = Board()
    for step in history:
        if isinstance(step, Host):
            board.put(step)
        elif isinstance(step, str):
            board.drop(step)
        else:
            board.place(step, [draw, draw])
        for kind in kinds:
            now = list(board)
            expected = plainly(now, kind, draw)
            assert board.choose(kind, draw) == expected
            assert board_of(*reversed(now)).choose(kind, draw) == expected
            fit = refuse_all(now, kind)
            assert board.refusals(kind) == fit
            if expected is None:
                assert len(fit) == len(now)


def refuse_all(hosts, wanted):
    found = [refuse(one, wanted.demand, wanted.required, wanted.rules, wanted.group) for one in hosts]
    return tuple(sorted([one for one in found if one], key=lambda one: one.arn))


@given(st.lists(any_hosts(), unique_by=lambda one: one.arn, max_size=6), st.lists(wanteds, min_size=1, max_size=8))
@settings(deadline=None)
def test_no_host_is_ever_overfilled_and_constraints_hold_at_the_moment_of_placing(hosts, orders):
    board = board_of(*hosts)
    for wanted in orders:
        before = {one.arn: one for one in board}
        placement = board.place(wanted, [0.5] * 4)
        for arn in placement.arns:
            one = before[arn]
            assert one.active and one.connected and wanted.required <= one.attributes
            assert wanted.rules.unmet(one) == ""
            assert not (wanted.rules.distinct and one.groups.get(wanted.group))
            assert not wanted.demand.tcp & one.used.tcp
            before[arn] = occupy(one, wanted.demand, wanted.group)
        assert before == {one.arn: one for one in board}
        for one in board:
            assert one.left.cpu >= 0 and one.left.memory >= 0
        if hosts:
            assert (len(placement.arns) == 4) is (placement.refusals == ())
        else:
            assert placement.arns == ()


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("xyz"), min_size=1),
    st.integers(1, 30),
    st.sampled_from([(SPREAD_HOSTS,), (SPREAD_ZONES,), (SPREAD_ZONES, SPREAD_HOSTS)]),
)
def test_where_there_is_room_spread_keeps_the_difference_at_one(zones, count, strategies):
    board = board_of(*(host(arn, zone=zone) for arn, zone in zones.items()))
    arns = placed(board, count, strategies=strategies)

    spread = [zones[arn] for arn in arns] if strategies[0] == SPREAD_ZONES else arns
    names = set(zones.values()) if strategies[0] == SPREAD_ZONES else set(zones)
    counts = Counter(spread)
    assert max(counts[name] for name in names) - min(counts[name] for name in names) <= 1


@given(st.lists(any_hosts(), unique_by=lambda one: one.arn, max_size=6), wanteds, st.integers(1, 4))
@settings(deadline=None)
def test_releasing_what_was_placed_leaves_the_board_as_it_was(hosts, wanted, count):
    board = board_of(*hosts)
    for arn in reversed(board.place(wanted, [0.0] * count).arns):
        board.release(arn, wanted)

    assert {one.arn: one for one in board} == {one.arn: one for one in hosts}


def test_kinds_beyond_what_is_kept_are_answered_all_the_same(monkeypatch):
    monkeypatch.setattr(boards, "MOST_RANKS", 0)
    board = board_of(host("a"), host("b"))
    kinds = [Wanted(demand=Resources(cpu=number), group="g") for number in range(3 * boards.FEWEST_LANES)]

    for _ in range(2):
        for kind in kinds:
            board.place(kind, [0.0])

    assert {one.tasks for one in board} == {len(kinds)}


def test_a_release_on_a_host_that_is_gone_is_nobodys_trouble():
    board = board_of(host("a"))
    board.drop("a")
    board.drop("a")

    board.release("a", Wanted(demand=SMALL))

    assert len(board) == 0


@pytest.mark.parametrize(
    "strategies", [(), (SPREAD_ZONES, SPREAD_HOSTS), (SPREAD_ZONES, BINPACK_MEMORY), (RANDOM,)], ids=len
)
def test_a_thousand_hosts_take_500_tasks_a_second_and_more(strategies):
    board = board_of(*(host(f"h{number:04}", zone="abc"[number % 3]) for number in range(1000)))
    kinds = [
        Wanted(
            demand=SMALL,
            group=f"service:{number}",
            strategies=strategies,
            rules=Rules((read("attribute:rack !exists"),)),
        )
        for number in range(20)
    ]
    chance = random.Random(7)

    begin = time.process_time()
    for number in range(1500):
        assert board.place(kinds[number % 20], [chance.random()]).arns
    spent = time.process_time() - begin

    print(f"{1500 / spent:.0f} tasks a second")
    assert 1500 / spent > 500


def test_a_wanted_task_is_a_value():
    one = Wanted(demand=SMALL, group="g", rules=Rules((read("attribute:a == b"),)), strategies=(RANDOM,))

    assert hash(one) == hash(msgspec.structs.replace(one))
