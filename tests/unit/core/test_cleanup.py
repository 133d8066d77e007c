"""What may go from a disk: by age, count and exclusion, by pressure, and never what is in use or was not ours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sexton.core.cleanup import Image, InUse, Leftover, Ours, Rules, by_age, shortage, under_pressure

HOUR = 3600.0
NOW = 1000 * HOUR
FREE = InUse()


def image(number, *, size=100, names=None, made=0.0):
    given = (f"app:{number}",) if names is None else names
    return Image(id=f"sha256:{number}", names=given, size=size, created_at=made)


def ours(*images, pulled=0.0, used=None):
    return {one.id: Ours(pulled_at=pulled, used_at=used[index] if used else pulled) for index, one in enumerate(images)}


def ids(removals):
    return [one.image.id if one.image else one.task for one in removals]


def test_least_recently_used_first_and_so_many_a_cycle():
    images = [image(number) for number in range(8)]
    used = [NOW - HOUR * number for number in range(8)]

    gone = by_age(images, ours(*images, used=used), FREE, Rules(per_cycle=3), NOW)

    assert ids(gone) == ["sha256:7", "sha256:6", "sha256:5"]
    assert gone[0].why == "no task has used it for 7 h"


def test_what_was_pulled_lately_stays():
    one = image(1)

    assert by_age([one], ours(one, pulled=NOW - HOUR + 1), FREE, Rules(), NOW) == ()
    assert ids(by_age([one], ours(one, pulled=NOW - HOUR), FREE, Rules(), NOW)) == ["sha256:1"]


def test_what_is_in_use_or_named_stays():
    used, wanted, digest, named, agent = image(1), image(2), image(3, names=()), image(4), image(5)
    digest = Image(id=digest.id, digests=("app@sha256:3",))
    agent = Image(id=agent.id, names=("amazon/amazon-ecs-agent:latest",))
    latest = Image(id="sha256:6", names=("tool:latest",))
    images = [used, wanted, digest, named, agent, latest]
    rules = Rules(excluded=("app:4", "tool"), per_cycle=99)
    in_use = InUse(ids={used.id}, names={"app:2", "app@sha256:3"})

    assert by_age(images, ours(*images), in_use, rules, NOW) == ()
    assert under_pressure(images, ours(*images), [], in_use, rules, need=10**9, now=NOW) == ()


def test_images_of_others_only_when_asked_smallest_first_out_of_the_same_number():
    mine = image(1)
    others = [image(number, size=1000 - number) for number in range(2, 9)]
    rules = Rules(per_cycle=3, others=True)

    assert ids(by_age([mine, *others], ours(mine), FREE, Rules(per_cycle=3), NOW)) == ["sha256:1"]
    assert ids(by_age([mine, *others], ours(mine), FREE, rules, NOW)) == ["sha256:1", "sha256:8", "sha256:7"]
    young = image(9, made=NOW - HOUR + 1)
    assert by_age([young], {}, FREE, rules, NOW) == ()


def test_under_pressure_the_oldest_and_largest_goes_first_until_it_is_enough():
    old, large, small = image(1, size=10), image(2, size=1000), image(3, size=1)
    known = ours(old, large, small, used=[NOW - 400 * HOUR, NOW - 10 * HOUR, NOW - 1 * HOUR])
    left = [Leftover(task="t", stopped_at=NOW - 20 * HOUR, size=900)]

    every = under_pressure([old, large, small], known, left, FREE, Rules(), need=10**9, now=NOW)
    assert ids(every) == ["t", "sha256:2", "sha256:1", "sha256:3"]
    assert ids(under_pressure([old, large, small], known, left, FREE, Rules(), need=901, now=NOW)) == ["t", "sha256:2"]
    assert every[0].why == "the disk is short; the task stopped 20 h ago"


def test_pressure_asks_for_no_age():
    one = image(1)

    assert ids(under_pressure([one], ours(one, pulled=NOW), [], FREE, Rules(), need=1, now=NOW)) == ["sha256:1"]
    assert under_pressure([one], {}, [], FREE, Rules(), need=1, now=NOW) == ()


def test_the_reserve_is_a_part_of_the_disk():
    assert shortage(1000, 100, 10) == 0
    assert shortage(1000, 40, 10) == 60
    assert shortage(1000, 0, -1) == shortage(0, 0, 10) == 0


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1000), st.booleans(), st.booleans()), max_size=20),
    st.booleans(),
    st.integers(1, 5),
)
def test_never_what_is_used_or_foreign(drawn, others, most):
    images = [image(number, size=size) for number, (_, size, _, _) in enumerate(drawn)]
    known = {
        one.id: Ours(pulled_at=0.0, used_at=float(age))
        for one, (age, _, mine, _) in zip(images, drawn, strict=True)
        if mine
    }
    used = InUse(ids={one.id for one, (_, _, _, busy) in zip(images, drawn, strict=True) if busy})
    rules = Rules(per_cycle=most, others=others)
    by_time = by_age(images, known, used, rules, NOW)
    by_force = under_pressure(images, known, [], used, rules, need=10**9, now=NOW)

    assert len(by_time) <= most
    for removal in (*by_time, *by_force):
        assert removal.image is not None and removal.image.id not in used.ids
        assert others or removal.image.id in known
