"""A world with the default cluster, for the tests of operations."""

from __future__ import annotations

import pytest

from unit.control.world import open_world


@pytest.fixture
async def world(tmp_path):
    async with open_world(tmp_path) as made:
        yield made
