"""Ids never come twice and look as their readers expect."""

from __future__ import annotations

import re
import uuid

from sexton.kit.randomids import DRAWN, random_id, random_uuid


def test_none_comes_twice_over_many_draws():
    made = [random_id() for _ in range(DRAWN * 3 + 1)]

    assert len(set(made)) == len(made)
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)


def test_a_uuid_is_a_random_one():
    made = [uuid.UUID(random_uuid()) for _ in range(100)]

    assert {(one.version, one.variant) for one in made} == {(4, uuid.RFC_4122)}
    assert len(set(made)) == 100
