"""The daemon's round: one broken part hides nothing, a wrong policy allows nothing, and what is asked is answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from sexton.care.app import Caretaker, Options
from sexton.care.probe import CouldNotLook, Looked, Outcome, Probe, Scene, Tell, Watcher
from sexton.cli.care_desk import CareDesk, _desk
from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.ledger import Sight, State
from sexton.core.policy import Mode


def finding(name: str) -> Finding:
    told = {"severity": Severity.WARNING, "title": f"{name} is wrong", "culprit": "x", "next_step": "stop it"}
    return Finding(fingerprint=name, evidence=(Evidence("a", "1", "b"),), **told)


class World:
    """What the fake probes and the fake watcher see."""

    def __init__(self) -> None:
        self.sees: Outcome | BaseException = Looked(says="fine", figures={"n": 1})
        self.looks = 0
        self.scenes: list[Scene] = []
        self.tell: Tell | None = None
        self.starts = 0

    async def look(self, scene: Scene) -> Outcome:
        self.looks += 1
        self.scenes.append(scene)
        if isinstance(self.sees, BaseException):
            raise self.sees
        return self.sees

    async def watch(self, scene: Scene, tell: Tell) -> None:
        self.starts += 1
        self.tell = tell
        tell(Looked(says="watching"))
        await asyncio.Event().wait()


@pytest.fixture
def world() -> World:
    return World()


@contextlib.asynccontextmanager
async def running(tmp_path: Path, world: World, **more: object) -> AsyncIterator[Caretaker]:
    failures: list[str] = []
    options = Options(
        data_dir=tmp_path / "data",
        docker_host="unix:///nowhere",
        policy=tmp_path / "care.toml",
        probes=(Probe("eye", ("nothing",), "none", world.look, 0.05),),
        watchers=(Watcher("ear", ("nothing",), "none", world.watch),),
        journal=False,
        **more,
    )
    care = Caretaker(options, lambda name, error: failures.append(f"{name}: {error!r}"))
    await care.start()
    try:
        yield care
    finally:
        await care.stop()
    assert failures == []


@contextlib.asynccontextmanager
async def desk(tmp_path: Path) -> AsyncIterator[CareDesk]:
    async with _desk(tmp_path / "data") as found:
        yield found


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not true():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sexton.care.app.CALM", 0.01)


async def test_findings_come_and_go(tmp_path: Path, world: World) -> None:
    async with running(tmp_path, world), desk(tmp_path) as asked:
        await until(lambda: world.looks > 2)
        seen = await asked.findings(all_=False)
        assert (seen.daemon, seen.findings, seen.exit_code) == (True, (), 0)
        world.sees = Looked(says="bad", findings=(finding("a/1"),))
        looks = world.looks
        await until(lambda: world.looks > looks + 2)
        seen = await asked.findings(all_=False)
        assert [(row.fingerprint, row.state) for row in seen.findings] == [("a/1", State.STILL_TRUE)]
        assert seen.exit_code == 1
        world.sees = Looked(says="fine")
        looks = world.looks
        await until(lambda: world.looks > looks + 3)
        assert (await asked.findings(all_=False)).exit_code == 0
        (row,) = (await asked.findings(all_=True)).findings
        assert row.state is State.RESOLVED


async def test_a_probe_that_breaks_or_is_blind_is_no_health(tmp_path: Path, world: World) -> None:
    world.sees = Looked(says="bad", findings=(finding("a/1"),))
    async with running(tmp_path, world), desk(tmp_path) as asked:
        await until(lambda: world.looks > 2)
        for trouble in (RuntimeError("broken"), CouldNotLook("no permission", "be root")):
            world.sees = trouble
            looks = world.looks
            await until(lambda looks=looks: world.looks > looks + 3)
            seen = await asked.findings(all_=False)
            assert [row.fingerprint for row in seen.findings] == ["a/1"]
            assert seen.findings[0].out_of_sight_since is not None
            assert [eye.sight for eye in seen.eyes if eye.probe == "eye"] == [Sight.BLIND]
        told = await asked.incident("a/1")
        assert any("eye" in line and "no permission" in line for line in told.unknown)


async def test_what_a_watcher_tells_opens_and_closes_at_once(tmp_path: Path, world: World) -> None:
    async with running(tmp_path, world), desk(tmp_path) as asked:
        await until(lambda: world.tell is not None)
        assert world.tell is not None
        world.tell(Looked(says="heard", findings=(finding("b/1"),)))

        async def states() -> list[State]:
            return [row.state for row in (await asked.findings(all_=True)).findings]

        async with asyncio.timeout(10):
            while await states() not in ([State.OPEN], [State.STILL_TRUE]):
                await asyncio.sleep(0.01)
            world.tell(Looked(says="quiet"))
            while await states() != [State.RESOLVED]:
                await asyncio.sleep(0.01)
    assert world.starts == 1


async def test_a_restart_remembers(tmp_path: Path, world: World) -> None:
    world.sees = Looked(says="bad", findings=(finding("a/1"),), figures={"n": 1})
    async with running(tmp_path, world), desk(tmp_path) as asked:
        await until(lambda: world.looks > 2)
        first = (await asked.mute("a", None, "me", "known")).first_seen
    async with desk(tmp_path) as asked:
        # No daemon: the ledger itself answers, and says so.
        seen = await asked.findings(all_=False)
        assert (seen.daemon, seen.findings[0].state, seen.exit_code) == (False, State.MUTED, 2)
    looks = world.looks
    async with running(tmp_path, world), desk(tmp_path) as asked:
        await until(lambda: world.looks > looks + 2)
        (row,) = (await asked.findings(all_=False)).findings
        assert (row.first_seen, row.times, row.state) == (first, 1, State.MUTED)
        assert (await asked.unmute("a/1", "me")).state is State.STILL_TRUE
        with pytest.raises(LookupError, match="not muted"):
            await asked.unmute("a/1", "me")
        with pytest.raises(LookupError, match="no finding"):
            await asked.incident("nothing")
        assert world.scenes[-1].before is not None


async def test_a_policy_that_cannot_be_used_allows_nothing_and_a_mended_one_is_read(
    tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "care.toml"
    path.write_text('[remedies.disable-unit]\nmode = "act"\nonly = ["*"]\n')
    async with running(tmp_path, world) as care:
        assert care._actor.policy.remedies.disable_unit.mode is Mode.ACT
        path.write_text('[remedies.disable-unit]\nmode = "act"\nonyl = ["*"]\n')
        await until(lambda: care._actor.policy.remedies.disable_unit.mode is Mode.DRY_RUN)
        assert "cannot be used" in care._actor.policy.source
        assert [row.levelno for row in caplog.records if "policy is not usable" in row.message] == [logging.ERROR]
        path.write_text('[remedies.disable-unit]\nmode = "off"\n')
        await until(lambda: care._actor.policy.remedies.disable_unit.mode is Mode.OFF)
        path.unlink()
        await until(lambda: care._actor.policy.remedies.disable_unit.mode is Mode.DRY_RUN)


async def test_a_round_says_one_sentence_when_it_changes(
    tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def said() -> list[str]:
        return [record.says for record in caplog.records if record.message == "round"]

    async with running(tmp_path, world):
        await until(lambda: world.looks > 10)
        assert said()[-1] == "healthy: nothing found by ear, eye"
        calm = len(said())
        looks = world.looks
        await until(lambda: world.looks > looks + 10)
        assert len(said()) == calm
        world.sees = Looked(says="bad", findings=(finding("a/1"),))
        await until(lambda: len(said()) == calm + 1)
        assert said()[-1] == "1 finding open: a/1"


async def test_metrics_and_findings_by_port(tmp_path: Path, world: World) -> None:
    import aiohttp

    from node import free_port

    port = free_port()
    async with running(tmp_path, world, metrics=("127.0.0.1", port)), aiohttp.ClientSession() as session:
        await until(lambda: world.looks > 1)
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.status == 200
            assert 'sexton_probe_up{probe="eye"} 1.0' in await answer.text()
        async with session.get(f"http://127.0.0.1:{port}/findings") as answer:
            assert msgspec.json.decode(await answer.read())["daemon"] is True
        for method, path in (("POST", "/mute"), ("POST", "/fix"), ("GET", "/incident?fingerprint=a")):
            async with session.request(method, f"http://127.0.0.1:{port}{path}") as answer:
                assert answer.status == 404


async def test_a_port_that_is_taken_costs_the_metrics_only(
    tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    taken = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    try:
        async with running(tmp_path, world, metrics=("127.0.0.1", port)), desk(tmp_path) as asked:
            await until(lambda: world.looks > 1)
            assert (await asked.findings(all_=False)).daemon
        assert "cannot publish metrics" in caplog.text
    finally:
        taken.close()


async def test_a_dear_look_rests_longer(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, world) as care:
        await until(lambda: world.looks > 1)
        spent = iter(range(0, 10_000, 1000))
        monkeypatch.setattr("sexton.care.app.cpu_seconds", lambda: float(next(spent, 0)))
        began = asyncio.get_running_loop().time()
        await care._look(care._options.probes[0])
        assert 0.9 < care._due["eye"] - began < 1.5  # twenty times what it asked for
