"""What every kind of test may ask for: a private container engine, and an image to run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cloudparts import Moto
from engine import PrivateEngine
from images import build_busybox
from registry import Registry

# Modules that look at the whole host - its dead cgroups, its page cache, what a look costs it - and so have it to
# themselves: ``make test`` runs them after all others, which share the cores.
ALONE = frozenset(
    {
        "test_agent_zombies",
        "test_care",
        "test_doctor",
        "test_doctor_zombies",
        "test_group_churn",
        "test_make_run",
        "test_replay",
        "test_task_slices",
        "test_zombies",
        "test_zombies_purge",
    }
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in ALONE and item.path.parent.name == "integration":
            item.add_marker("alone")


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


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that anybody may use."""
    with Registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="session")
def locked_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that asks for a user and a password."""
    with Registry(tmp_path_factory.mktemp("locked-registry"), locked=True) as registry:
        yield registry
