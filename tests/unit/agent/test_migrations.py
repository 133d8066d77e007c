"""Numbered formats: every step once and in order, the future refused, what was written last kept."""

from __future__ import annotations

import pytest

from sexton.agent.checkpoint import Checkpoint, Self
from sexton.agent.migrations import FORMAT_KEY, STEPS, migrate
from sexton.store.contract import StoreError
from unit.agent.rig import Memory


def first(rows):
    return dict(rows) | {"a": b"1"}


def second(rows):
    return {"b": rows["a"] + b"2"}


def test_each_step_is_taken_once_and_in_order():
    assert migrate({}, (first, second)) == {"b": b"12", FORMAT_KEY: b"2"}
    assert migrate({FORMAT_KEY: b"1", "a": b"0"}, (first, second)) == {"b": b"02", FORMAT_KEY: b"2"}
    assert migrate({FORMAT_KEY: b"2", "b": b"x"}, (first, second)) is None


def test_a_format_of_the_future_is_refused_with_what_to_do():
    with pytest.raises(StoreError, match=r"its format is 3 and this Sexton knows formats up to 2; install the Sexton"):
        migrate({FORMAT_KEY: b"3"}, (first, second))


async def test_a_state_from_before_there_were_numbers_gets_one_and_loses_nothing():
    store = Memory()
    old = Checkpoint(store)  # type: ignore[arg-type]
    await old.become(Self(cluster="c", instance_arn="i", sequence=4))
    assert FORMAT_KEY not in store.rows
    new = Checkpoint(store)  # type: ignore[arg-type]
    await new.load()

    assert new.self == Self(cluster="c", instance_arn="i", sequence=4)
    assert store.rows[FORMAT_KEY] == str(len(STEPS)).encode()
    await Checkpoint(store).load()  # type: ignore[arg-type]


async def test_a_number_that_is_none_is_taken_for_the_first(caplog):
    store = Memory()
    await Checkpoint(store).become(Self(instance_arn="i"))  # type: ignore[arg-type]
    store.rows[FORMAT_KEY] = b"nonsense"
    again = Checkpoint(store)  # type: ignore[arg-type]
    await again.load()

    assert again.self.instance_arn == "i" and "saved state cannot be read" in caplog.text
