"""A URL names the store, and only that store's code is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sexton.store.contract import Durability, Put, StoreError
from sexton.store.opening import open_store


@pytest.mark.parametrize("durability", list(Durability))
async def test_a_sqlite_url_opens_the_file_at_its_path(tmp_path: Path, durability: Durability) -> None:
    store = await open_store(f"sqlite://{tmp_path}/with space%20?.db", durability=durability)
    await store.txn([], [Put("a", b"")])
    await store.close()

    assert (tmp_path / "with space%20?.db").exists()


@pytest.mark.parametrize("url", ["mongo://user:hunter2@host/db", "/var/lib/store.db", "", "sqlite:/store.db"])
async def test_an_unknown_kind_is_refused_with_the_known_ones_and_without_its_secrets(url: str) -> None:
    with pytest.raises(StoreError, match="begin its URL with one of: sqlite://") as refused:
        await open_store(url)

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite://store.db", "sqlite://", "sqlite:///a\0b"])
async def test_a_path_that_is_not_absolute_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="the path must be absolute"):
        await open_store(url)


def test_a_store_is_loaded_when_it_is_opened_and_not_before() -> None:
    loaded = "import sys, sexton.store.opening; sys.exit('sqlite3' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
