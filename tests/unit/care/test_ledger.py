"""The ledger on disk: what was written is there after a restart, and a full disk makes nobody blind."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.care.ledger import ACTIONS_KEPT, OUTBOX_KEPT, Ledger, UnknownFinding, ledger_file, open_ledger
from sexton.core.action import Did, Outcome, Plan, PlannedStep, Proof
from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.ledger import Entry, Eye, Kind, Look, Mute, Record, Sight, State
from sexton.store.contract import StoreError


def finding(name: str = "unit-loop/a.service", title: str = "it loops") -> Finding:
    evidence = (Evidence("restarts", "9", "systemd"),)
    return Finding(
        fingerprint=name, severity=Severity.WARNING, title=title, culprit="a", evidence=evidence, next_step="stop it"
    )


def look(*found: Finding, sure: bool = False) -> Look:
    return Look(probe="units", sight=Sight.LOOKED, findings=found, sure=sure)


PLAN = Plan(
    remedy="disable-unit",
    fingerprint="unit-loop/a.service",
    target="a.service",
    says="stop it",
    steps=(PlannedStep("stop", "stop it"), PlannedStep("mask", "mask it")),
)


async def test_everything_survives(tmp_path: Path) -> None:
    file = ledger_file(tmp_path)
    async with open_ledger(file) as ledger:
        await ledger.file(look(finding(), finding("memcg/zombies")), 100.0)
        await ledger.mute("memcg", Mute(since=101.0, until=None, who="me", reason="known"))
        await ledger.watch_eye(Eye(probe="units", sight=Sight.LOOKED, says="fine", since=100.0))
        action = await ledger.begin("1", PLAN, "me", "because", 102.0)
        action = await ledger.step(action, Did("stop", "it is down"), 103.0)
    async with open_ledger(file) as ledger:
        assert [record.fingerprint for record in ledger.records] == ["memcg/zombies", "unit-loop/a.service"]
        assert ledger.find("memcg").state(200.0) is State.MUTED
        (kept,) = ledger.actions
        assert kept == action
        assert [step.key for step in kept.steps_left] == ["mask"]
        history = await ledger.history("unit-loop/a.service")
        assert [entry.kind for entry in history] == [Kind.OPENED, Kind.ACTING, Kind.STEP]
        assert [eye.probe for eye in ledger.eyes] == ["units"]
        await ledger.end(kept, Outcome.DONE, "masked", 104.0, Proof(True, "it is masked"))
        assert [entry.kind for entry in await ledger.history("unit-loop/a.service")][3:] == [Kind.PROVED, Kind.DONE]


async def test_a_finding_that_merely_holds_is_not_written_at_every_look(tmp_path: Path) -> None:
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        for now in range(100, 160):
            await ledger.file(look(finding()), float(now))
        assert ledger._store.revision <= 2
        assert ledger.find("unit").last_seen == 159.0
        await ledger.file(look(finding()), 161.0)
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        assert ledger.find("unit").last_seen == 161.0


async def test_a_name_may_be_cut_as_long_as_it_is_one(tmp_path: Path) -> None:
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await ledger.file(look(finding("unit-loop/a"), finding("unit-loop/ab")), 1.0)

        assert ledger.find("unit-loop/a").fingerprint == "unit-loop/a"
        with pytest.raises(UnknownFinding, match="could be any of"):
            ledger.find("unit-loop/")
        with pytest.raises(UnknownFinding, match="sexton findings"):
            ledger.find("nothing")
        with pytest.raises(UnknownFinding):
            ledger.find("")
        with pytest.raises(UnknownFinding, match="is not muted"):
            await ledger.unmute("unit-loop/a", "me", 2.0)


async def test_names_of_any_kind_keep_their_histories_apart(tmp_path: Path) -> None:
    names = ["container-loop/reg:5000/a/b/*", "container-loop/reg:5000/a", "unit-loop/ä b%2F\n.service", "a/"]
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await ledger.file(look(*(finding(name, title=name) for name in names)), 1.0)
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        for name in names:
            assert [entry.says for entry in await ledger.history(name)] == [name]


async def test_who_listens_hears_of_what_is_durable_and_the_outbox_keeps_it(tmp_path: Path) -> None:
    heard: list[tuple[str, Kind]] = []

    def told(record: Record, entry: Entry) -> None:
        heard.append((record.fingerprint, entry.kind))

    async with open_ledger(ledger_file(tmp_path), told, outbox=True) as ledger:
        await ledger.file(look(finding()), 1.0)
        await ledger.file(look(sure=True), 2.0)
    async with open_ledger(ledger_file(tmp_path), told, outbox=True) as ledger:
        waiting = await ledger.outbox()
        assert [(one.record.fingerprint, one.entry.kind) for one in waiting] == heard
        await ledger.delivered(waiting[0].id)
        assert await ledger.outbox() == waiting[1:]
        for number in range(OUTBOX_KEPT + 5):
            await ledger.file(look(finding(f"a/{number}")), 10.0 + number)
        await ledger.tidy(frozenset({"units"}), 1000.0)
        left = await ledger.outbox()
        assert len(left) == OUTBOX_KEPT
        assert left[-1].record.fingerprint == f"a/{OUTBOX_KEPT + 4}"


async def test_it_does_not_grow_for_ever(tmp_path: Path) -> None:
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await ledger.file(look(finding()), 1.0)
        for number in range(ACTIONS_KEPT + 20):
            action = await ledger.begin(f"{number:05}", PLAN, "me", "because", float(number))
            await ledger.end(action, Outcome.FAILED, f"no {number}", float(number))
        await ledger.tidy(frozenset({"units"}), 300.0)
        assert len(ledger.actions) == ACTIONS_KEPT
        assert len(await ledger.history("unit-loop/a.service")) <= 100
        await ledger.file(look(sure=True), 301.0)
        await ledger.tidy(frozenset({"units"}), 1e9)
        assert ledger.records == ()
        assert await ledger.history("unit-loop/a.service") == ()


async def test_a_disk_that_takes_nothing_leaves_it_seeing_but_not_acting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        full(ledger, monkeypatch)
        for now in (1.0, 61.0, 121.0):
            await ledger.file(look(finding()), now)
            assert "disk is full" in ledger.trouble
        assert ledger.find("unit").looks == 3
        with pytest.raises(StoreError):
            await ledger.begin("1", PLAN, "me", "because", 130.0)
        assert ledger.actions == ()
        monkeypatch.undo()
        await ledger.file(look(finding()), 200.0)
        assert ledger.trouble == ""


def full(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    async def txn(*_: object) -> None:
        raise StoreError("cannot write: the disk is full")

    monkeypatch.setattr(ledger._store, "txn", txn)


async def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    async with open_ledger(ledger_file(tmp_path)):
        with pytest.raises(StoreError, match="is using it"):
            async with open_ledger(ledger_file(tmp_path)):
                pass
