"""What every kind of test may ask for: a private container engine, and an image to run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cloudparts import Moto
from engine import PrivateEngine
from images import build_busybox


def pytest_sessionstart() -> None:
    """pytest-asyncio asks for the current loop, which makes one that nobody closes; say that there is none."""
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def engine_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    """One engine for all tests that do not break it."""
    with PrivateEngine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture(scope="session")
def busybox_image(engine_session: PrivateEngine) -> str:
    return build_busybox(engine_session.url)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """One server that stands in for AWS; tests tell their things apart by name."""
    with Moto(tmp_path_factory.mktemp("moto") / "moto.log") as server:
        yield server
