"""The image stays in order and true to what was applied, however much comes or goes at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sexton.store.contract import KeyValue
from sexton.store.image import BULK, Commit, Image, Lease


def record(key: str, lease: int = 0) -> KeyValue:
    return KeyValue(key, b"", 1, 1, lease)


def commit(records: dict[str, KeyValue | None], revision: int = 1) -> Commit:
    return Commit(records, {}, revision, 0, ())


def listed(image: Image, prefix: str = "") -> list[str]:
    return [item.key for item in image.range(prefix, "", 0).items]


@given(st.lists(st.dictionaries(st.text(max_size=3), st.booleans(), max_size=8)))
def test_after_any_commits_the_keys_are_those_of_a_sorted_dict(rounds: list[dict[str, bool]]) -> None:
    image = Image([], {}, 0, 0)
    model: set[str] = set()
    for changes in rounds:
        image.apply(commit({key: record(key) if kept else None for key, kept in changes.items()}))
        model = (model | {key for key, kept in changes.items() if kept}) - {
            key for key, kept in changes.items() if not kept
        }

        assert listed(image) == sorted(model)
        assert len(image) == len(model)


def test_a_commit_in_bulk_orders_like_many_small_ones() -> None:
    numbers = range(4 * BULK)
    bulk = Image([record(f"k/{number}") for number in numbers if number % 2], {}, 0, 0)
    small = Image([record(f"k/{number}") for number in numbers if number % 2], {}, 0, 0)
    changes = {f"k/{number}": None if number % 2 else record(f"k/{number}") for number in numbers if number % 3}
    bulk.apply(commit(changes))
    for key, change in changes.items():
        small.apply(commit({key: change}))

    assert listed(bulk) == listed(small) == sorted(listed(bulk))
    assert len(bulk) == len(listed(bulk))


def test_the_keys_of_a_lease_follow_every_move() -> None:
    image = Image([record("a", lease=1), record("b", lease=1)], {1: Lease(1.0, 2.0), 2: Lease(1.0, 2.0)}, 1, 2)
    image.apply(commit({"a": record("a", lease=2), "c": record("c", lease=1)}))
    image.apply(commit({"b": None}))

    assert set(image.attached(1)) == {"c"}
    assert set(image.attached(2)) == {"a"}
    image.apply(commit({"a": record("a"), "c": None}))
    assert not list(image.attached(1))
    assert not list(image.attached(2))
