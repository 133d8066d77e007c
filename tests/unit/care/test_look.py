"""The round: one broken or stuck probe hides nothing, and nothing unseen passes for health."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sexton.care import look as rounds
from sexton.care.look import Verdict, look_around
from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Evidence, Finding, Severity


def finding(name: str, severity: Severity = Severity.WARNING) -> Finding:
    evidence = (Evidence("a number", "1", "a file"),)
    return Finding(fingerprint=name, severity=severity, title=name, culprit=name, evidence=evidence, next_step="do it")


def probe(name: str, outcome: Outcome | BaseException | float) -> Probe:
    async def look(scene: Scene) -> Outcome:
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
            raise AssertionError("must have been cut short")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return Probe(name=name, reads=("nothing",), cost="none", look=look)


FINE = probe("fine", Looked(says="all well"))
ABSENT = probe("absent", NotPresent("not here"))
BLIND = probe("blind", CouldNotLook("too dark", "bring a lamp"))
SICK = probe("sick", Looked(says="bad", findings=(finding("b"), finding("c", Severity.CRITICAL), finding("a"))))


@pytest.mark.parametrize(
    ("probes", "verdict"),
    [
        ((FINE,), Verdict.HEALTHY),
        ((FINE, ABSENT), Verdict.HEALTHY),
        ((FINE, BLIND), Verdict.UNSEEN),
        ((ABSENT,), Verdict.UNSEEN),
        ((SICK, BLIND), Verdict.FINDINGS),
    ],
)
async def test_the_verdict(tmp_path: Path, probes: tuple[Probe, ...], verdict: Verdict) -> None:
    assert (await look_around(Path("/"), "unix:///nowhere", tmp_path, probes)).verdict is verdict


async def test_the_worst_comes_first(tmp_path: Path) -> None:
    seen = await look_around(Path("/"), "unix:///nowhere", tmp_path, (SICK,))

    assert [f.fingerprint for f in seen.findings] == ["c", "a", "b"]


async def test_a_broken_probe_does_not_stop_the_round(tmp_path: Path) -> None:
    seen = await look_around(Path("/"), "unix:///nowhere", tmp_path, (probe("broken", ZeroDivisionError("oops")), SICK))

    broken = seen.sights[0].outcome
    assert isinstance(broken, CouldNotLook)
    assert broken.reason == "the probe broke: ZeroDivisionError: oops"
    assert len(seen.findings) == 3


async def test_a_stuck_probe_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PROBE_DEADLINE", 0.1)
    begun = time.monotonic()

    seen = await look_around(Path("/"), "unix:///nowhere", tmp_path, (probe("stuck", 30.0), FINE))

    assert time.monotonic() - begun < 5
    assert seen.verdict is Verdict.UNSEEN
    assert "no answer within 0.1 s" in str(seen.sights[0].outcome)


async def test_figures_are_handed_to_the_same_probe_at_the_next_look(tmp_path: Path) -> None:
    told: list[Scene] = []

    async def look(scene: Scene) -> Outcome:
        told.append(scene)
        return Looked(says="counted", figures={"things": 7})

    counting = (Probe(name="counting", reads=(), cost="none", look=look), FINE)
    await look_around(Path("/"), "unix:///nowhere", tmp_path, counting)
    await asyncio.sleep(0.05)  # uptime has a resolution of 10 ms
    await look_around(Path("/"), "unix:///nowhere", tmp_path, counting)

    assert told[0].before is None
    assert told[1].before is not None
    assert told[1].before.figures == {"things": 7}
    assert 0 < told[1].before.seconds < 10


def test_every_probe_declares_what_it_reads_and_costs() -> None:
    names = [each.name for each in rounds.PROBES]

    assert len(set(names)) == len(names)
    assert all(each.reads and each.cost for each in rounds.PROBES)
