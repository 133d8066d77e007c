"""The purge's plan: what it may touch, what it must leave, and that each zombie is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sexton.core.purge import (
    COMMIT_SECONDS,
    Allowed,
    DropCaches,
    DropFiles,
    Plan,
    Range,
    Reclaim,
    Why,
    merged,
    plan_located,
    plan_named,
    rest_before_more,
)
from sexton.core.zombie import BLOCK_DEVICES, EXT, TMPFS, Ghosts, Group, Holder, Pin, PinFlag, Walk

FILE, PROCESS = 1, 2
PAGES_OF_LIVE = 100_000


def group(path: str, *, dead: bool, above: int = 0, file: int = 0, anon: int = 0, locked: int = 0) -> Group:
    return Group(hash(path) % 10**9, path.encode(), dead, above, 1, 0, anon, 0, file, 0, locked)


def on_disk(number: int = 7, links: int = 1) -> Holder:
    return Holder(FILE, number, 8 << 20, 1, links, EXT, b"/var/log/x")


IN_MEMORY = Holder(FILE, 8, 30, 1, 1, TMPFS, b"/pages")
METADATA = Holder(FILE, 9, 5, 0, 1, BLOCK_DEVICES, b"")
SOMEBODY = Holder(PROCESS, 4242, 0, 0, 0, 0, b"postgres")


def host(
    zombies: Sequence[tuple[str, Sequence[Pin]]],
    holders: Sequence[Holder],
    *,
    live_file: int = 0,
    locked: frozenset[str] = frozenset(),
) -> Walk:
    """A root, one live group /live with so much page cache, and zombies below it."""
    groups = [group("/", dead=False), group("/live", dead=False, file=live_file)]
    pins: list[Pin] = []
    for path, held in sorted(zombies):
        row = len(groups)
        groups.append(
            group(path, dead=True, above=1 if path.startswith("/live/") else 0, file=len(held), locked=path in locked)
        )
        pins += [pin._replace(group=row) for pin in held]
    return Walk(True, False, 0, 0, tuple(groups), tuple(holders), tuple(pins))


def pin(holder: int = 0, page: int = 0, *, pages: int = 1, flags: int = 0) -> Pin:
    return Pin(0, holder, page, pages, flags)


def test_exact_pages_come_first_and_are_all_that_is_touched() -> None:
    walk = host([("/live/a", [pin(page=4)]), ("/live/b", [pin(page=5), pin(page=9, pages=4)])], [on_disk()])

    plan = plan_named(walk, Allowed())

    (step,) = plan.steps
    assert isinstance(step, DropFiles)
    assert [file.ranges for file in step.files] == [((4, 2), (9, 4))]
    assert step.zombies == (2, 3)
    assert plan.left == ()


def test_dirty_files_are_marked_to_be_written_back() -> None:
    walk = host([("/live/a", [pin(), pin(1, flags=PinFlag.DIRTY)])], [on_disk(1), on_disk(2)])

    (step,) = plan_named(walk, Allowed()).steps

    assert isinstance(step, DropFiles)
    assert [(file.holder.number, file.dirty) for file in step.files] == [(1, False), (2, True)]


def test_nothing_is_touched_for_a_zombie_that_stays_anyway() -> None:
    walk = host([("/live/a", [pin(0), pin(1)])], [on_disk(), IN_MEMORY])

    plan = plan_named(walk, Allowed(caches=True))

    assert plan.steps == ()
    assert [(left.why, left.zombies, left.holder) for left in plan.left] == [(Why.MEMORY, 1, IN_MEMORY)]


def test_what_holds_each_is_said() -> None:
    walk = host(
        [("/live/a", [pin(0)]), ("/live/b", [pin(1)]), ("/live/c", []), ("/live/d", [])],
        [IN_MEMORY, SOMEBODY],
        locked=frozenset({"/live/c"}),
    )

    left = {entry.why: entry.holder for entry in plan_named(walk, Allowed()).left}

    assert left == {Why.MEMORY: IN_MEMORY, Why.ANONYMOUS: SOMEBODY, Why.LOCKED: None, Why.UNSEEN: None}


def test_what_has_no_file_to_open_is_reclaimed_on_the_group_right_above() -> None:
    walk = host(
        [("/live/a", [pin(0)]), ("/live/b", [pin(1)]), ("/live/c", [pin(2)])], [METADATA, on_disk(3, 0), IN_MEMORY]
    )

    (step,) = plan_named(walk, Allowed()).steps

    assert isinstance(step, Reclaim)
    assert (step.group, step.pages, step.zombies, step.walked) == ("/live", 2, (2, 3), 1)


def test_pages_in_use_are_reclaimed_and_not_dropped() -> None:
    walk = host([("/live/a", [pin(flags=PinFlag.MAPPED)])], [on_disk()])

    (step,) = plan_named(walk, Allowed()).steps

    assert isinstance(step, Reclaim)


def test_reclaim_that_would_cost_live_groups_their_cache_needs_consent() -> None:
    walk = host([("/live/a", [pin()])], [METADATA], live_file=PAGES_OF_LIVE)

    refused, allowed = plan_named(walk, Allowed()), plan_named(walk, Allowed(caches=True))

    assert (refused.steps, [(left.why, left.group) for left in refused.left]) == ((), [(Why.CONSENT, "/live")])
    assert [type(step) for step in allowed.steps] == [Reclaim]


def test_caches_are_dropped_only_with_consent_and_after_everything_else() -> None:
    walk = host([("/alone", [pin()])], [METADATA], live_file=PAGES_OF_LIVE)

    refused, allowed = plan_named(walk, Allowed()), plan_named(walk, Allowed(caches=True))

    assert (refused.steps, [left.why for left in refused.left]) == ((), [Why.CONSENT])
    (step,) = allowed.steps
    assert isinstance(step, DropCaches)
    assert step.collateral == PAGES_OF_LIVE


def test_a_zombie_above_others_goes_and_stays_with_them() -> None:
    goes = host([("/live/top", []), ("/live/top/a", [pin()])], [on_disk()])
    stays = host([("/live/top", [pin(1)]), ("/live/top/a", [pin(0)])], [IN_MEMORY, on_disk()])

    assert [step.key for step in plan_named(goes, Allowed()).steps] == ["files"]
    assert plan_named(goes, Allowed()).left == ()
    assert plan_named(stays, Allowed()).steps == ()
    assert {left.why for left in plan_named(stays, Allowed()).left} == {Why.MEMORY, Why.BELOW}


def test_a_means_tried_in_vain_is_followed_by_the_next_and_then_by_none() -> None:
    walk = host([("/live/a", [pin()])], [on_disk()])

    keys = [
        [step.key for step in plan_named(walk, Allowed(caches=True), tried=tried).steps]
        for tried in ((), ("files",), ("files", "reclaim /live"), ("files", "reclaim /live", "caches"))
    ]

    assert keys == [["files"], ["reclaim /live"], ["caches"], []]


def test_only_zombies_below_the_named_group_are_planned_for() -> None:
    walk = host([("/live/a", [pin(page=1)]), ("/alone", [pin(page=2)])], [on_disk()])

    plan = plan_named(walk, Allowed(), within="/live", reach="/live")

    (step,) = plan.steps
    assert isinstance(step, DropFiles)
    assert (plan.zombies, step.files[0].ranges) == (1, (Range(1, 1),))


def test_without_names_reclaim_goes_by_what_dead_groups_hold() -> None:
    cold = Ghosts(path="/docker", file=5_000, anon=0, unevictable=0, live_file=10)
    warm = Ghosts(path="/batch", file=5_000, anon=0, unevictable=0, live_file=PAGES_OF_LIVE)
    stuck = Ghosts(path="/stuck", file=0, anon=900, unevictable=3, live_file=0)

    plan = plan_located((cold, warm, stuck), Allowed(), zombies=900)

    assert [step.key for step in plan.steps] == ["reclaim /docker"]
    assert sorted((left.why, left.group, left.pages) for left in plan.left) == [
        (Why.ANONYMOUS, "/stuck", 900),
        (Why.CONSENT, "/batch", 5_000),
        (Why.LOCKED, "/stuck", 3),
    ]
    assert plan.zombies is None


def test_without_names_every_zombie_may_be_in_the_way() -> None:
    mixed = Ghosts(path="/docker", file=5_000, anon=900, unevictable=0, live_file=0)
    counted = Ghosts(path="/docker", file=5_000, anon=900, unevictable=0, live_file=0, zombies=7)

    refused, begun = (plan_located((ghost,), Allowed(), zombies=70_000) for ghost in (mixed, counted))

    assert (refused.steps, refused.left[-1].why) == ((), Why.BUDGET)
    assert [step.key for step in begun.steps] == ["reclaim /docker"]


def test_reclaim_past_more_zombies_than_the_budget_allows_is_not_begun() -> None:
    many = [(f"/live/t{number}", [pin(0)]) for number in range(700)]
    walk = host([*many, ("/live/u", [pin(1)])], [IN_MEMORY, METADATA])

    within, beyond = (plan_named(walk, Allowed(caches=True, budget=budget)) for budget in (0.5, 0.01))

    assert [step.key for step in within.steps] == ["reclaim /live"]
    assert [step.key for step in beyond.steps] == ["caches"]
    assert {left.why for left in plan_named(walk, Allowed(budget=0.01)).left} == {Why.MEMORY, Why.BUDGET}


HOLDERS = (on_disk(1), on_disk(2, links=0), IN_MEMORY, METADATA, SOMEBODY)
PINS = st.builds(
    Pin,
    st.just(0),
    st.integers(0, len(HOLDERS) - 1),
    st.integers(0, 40),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([0, PinFlag.DIRTY, PinFlag.MAPPED]),
)
PATHS = st.sampled_from([f"{top}{name}" for top in ("/live/", "/", "/live/x/") for name in "abcd"])
HOSTS = st.builds(
    lambda zombies, live: host(list(zombies.items()), HOLDERS, live_file=live),
    st.dictionaries(PATHS, st.lists(PINS, max_size=4), max_size=10),
    st.sampled_from([0, PAGES_OF_LIVE]),
)
TRIED = st.sets(st.sampled_from(["files", "reclaim /live", "caches"]))


def planned(plan: Plan) -> list[int]:
    return [row for step in plan.steps for row in step.zombies]


@given(HOSTS, st.booleans(), TRIED)
def test_each_zombie_is_planned_for_left_or_waits_for_one_below(walk: Walk, caches: bool, tried: set[str]) -> None:
    plan = plan_named(walk, Allowed(caches), tried=tried)

    waiting = [
        row
        for row in walk.dead()
        if not any(pin.group == row for pin in walk.pins)
        and any(
            other != row and walk.groups[other].path.startswith(walk.groups[row].path + "/") for other in walk.dead()
        )
    ]
    accounted = len(planned(plan)) + sum(left.zombies for left in plan.left)
    assert len(walk.dead()) - len(waiting) <= accounted <= len(walk.dead())
    assert len(planned(plan)) == len(set(planned(plan)))


@given(HOSTS, st.booleans(), TRIED)
def test_no_step_touches_what_it_must_not(walk: Walk, caches: bool, tried: set[str]) -> None:
    plan = plan_named(walk, Allowed(caches), tried=tried)

    stuck = {pin.group for pin in walk.pins if pin.holder in (2, 4)}
    for step in plan.steps:
        assert step.key not in tried
        assert not stuck & set(step.zombies)
        if isinstance(step, DropFiles):
            wanted = {
                (walk.holders[pin.holder].number, page)
                for pin in walk.pins
                if pin.group in step.zombies
                for page in range(pin.page, pin.page + pin.pages)
            }
            touched = {
                (file.holder.number, page)
                for file in step.files
                for part in file.ranges
                for page in range(part.first, part.first + part.pages)
            }
            assert touched == wanted
        elif isinstance(step, Reclaim):
            assert step.group == "/live"
            assert caches or step.collateral == 0
        else:
            assert caches
            assert len(plan.steps) == 1


@given(st.lists(st.builds(Range, st.integers(0, 60), st.integers(1, 9))))
def test_merged_ranges_are_the_same_pages(ranges: list[Range]) -> None:
    joined = merged(ranges)

    def pages(parts: Sequence[Range]) -> set[int]:
        return {page for part in parts for page in range(part.first, part.first + part.pages)}

    assert pages(joined) == pages(ranges)
    assert all(left.first + left.pages < right.first for left, right in pairwise(joined))


def test_a_reclaim_that_left_some_goes_on_and_waits_for_the_journal_once_it_frees_nothing() -> None:
    some = Reclaim(group="/live", pages=3, collateral=0, walked=0, zombies=(1, 2, 3))
    assert rest_before_more(some, 2, 1, in_journal=False) is not None
    assert rest_before_more(some, 3, 0, in_journal=True) is None  # nothing is left to do
    assert rest_before_more(some, 0, 1, in_journal=True) == COMMIT_SECONDS
    assert rest_before_more(some, 0, 1, in_journal=False) is None  # somebody uses the pages right now
    files = DropFiles(files=(), zombies=(1,))
    assert rest_before_more(files, 1, 1, in_journal=True) is None


def test_whether_blocks_of_a_file_system_pin_what_is_left_below_a_group() -> None:
    of_blocks = [("/live/a", [Pin(0, 0, 0, 1, 0)])]
    assert host(of_blocks, [METADATA]).pinned_by_blocks("/live")
    assert not host(of_blocks, [METADATA]).pinned_by_blocks("/other")
    assert not host(of_blocks, [on_disk()]).pinned_by_blocks("/")
