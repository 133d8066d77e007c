"""A host that cannot do all that tasks' own networks need says what is missing, and offers what is left."""

from __future__ import annotations

import shutil

import pytest

from sexton.agent.abilities import address_of, network_abilities
from sexton.agent.register import attributes
from sexton.host import network_probe
from sexton.host.network_probe import GROUPS, INTERFACES, TUNNELS, obstacles
from sexton.runtime.contract import EngineInfo
from sexton.settings import Settings

ENGINE = EngineInfo(name="docker", version="20.10", api_version="1.41", api_versions=("1.41",))
HERE = Settings(backend="http://127.0.0.1:7070", network_address="192.0.2.1")
NO_TABLES = "Error: Could not process rule: Operation not supported"


def cannot(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    async def tried() -> dict[str, str]:
        return found

    monkeypatch.setattr(network_probe, "obstacles", tried)


async def offered(settings: Settings = HERE) -> dict[str, str | None]:
    """The attributes that a host registers with, as far as they are about networks."""
    abilities = await network_abilities(settings)
    found = attributes(settings, ENGINE, task_limits=True, networks=abilities)
    return {
        one.name or "": one.value for one in found if "task-eni" in (one.name or "") or "sexton" in (one.name or "")
    }


async def test_a_host_that_can_offers_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cannot(monkeypatch)
    assert set(await offered()) == {
        "ecs.capability.task-eni",
        "sexton.capability.network",
        "sexton.network.address",
    }
    assert caplog.messages == []


@pytest.mark.parametrize("what", [INTERFACES, GROUPS])
async def test_without_interfaces_or_packet_filter_it_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    cannot(monkeypatch, **{what: NO_TABLES, TUNNELS: "Unknown device type"})
    assert await offered() == {}
    (said,) = caplog.records
    assert (said.message, said.reason) == ("tasks cannot have a network of their own here", NO_TABLES)


async def test_without_vxlan_tasks_have_networks_that_end_at_this_host(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cannot(monkeypatch, **{TUNNELS: "Unknown device type"})
    assert set(await offered()) == {"ecs.capability.task-eni", "sexton.capability.network"}
    (said,) = caplog.records
    assert (said.message, said.reason) == ("tasks cannot reach those of other hosts", "Unknown device type")
    # Nor does it try to reach theirs, which would fail the tasks that it can have.
    assert address_of(HERE, await network_abilities(HERE)) == ""
    cannot(monkeypatch)
    assert address_of(HERE, await network_abilities(HERE)) == "192.0.2.1"


async def test_nobody_tries_what_was_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    cannot(monkeypatch)
    assert await offered(Settings(backend="http://127.0.0.1:7070", task_eni=False)) == {}


@pytest.mark.parametrize(
    ("tool", "missing"), [("nft", {GROUPS}), ("ip", {INTERFACES, TUNNELS}), ("unshare", {INTERFACES})]
)
async def test_a_tool_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, tool: str, missing: set[str]
) -> None:
    """The real trial, on a host that lacks one of its tools."""
    bin_ = tmp_path_factory.mktemp("bin")
    for name in ("nft", "ip", "unshare", "head", "sh"):
        if name != tool:
            (bin_ / name).symlink_to(shutil.which(name) or f"/usr/sbin/{name}")
    monkeypatch.setattr(network_probe, "TOOLS_PATH", str(bin_))
    if tool == "unshare":
        monkeypatch.setenv("PATH", str(bin_))

    found = await obstacles()

    assert found.keys() == missing
    assert all(tool in why for why in found.values())
