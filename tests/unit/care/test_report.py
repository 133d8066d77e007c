"""What people and programs are told."""

from __future__ import annotations

import json

import pytest

from sexton.care.look import Round, Sight
from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.care.report import Exit, as_json, as_text, exit_code
from sexton.core.finding import Evidence, Finding, Severity
from sexton.host.proc import Boot


async def _never(_: Scene) -> Outcome:
    raise AssertionError("a report looks at nothing")


LOOKED = Looked(says="240 units", figures={"restarts": 3})
ABSENT = NotPresent("systemd does not run here")
BLIND = CouldNotLook("the engine did not answer", "Run docker info.")
LOOP = Finding(
    fingerprint="unit-loop/x.service",
    severity=Severity.CRITICAL,
    title="x.service crash-loops",
    culprit="x.service",
    evidence=(Evidence("automatic restarts", "360", "systemd NRestarts"), Evidence("state", "down", "systemd")),
    next_step="Stop it.",
)


def seen(*outcomes: Outcome, findings: tuple[Finding, ...] = ()) -> Round:
    sights = tuple(
        Sight(Probe(name=f"probe{n}", reads=("/proc/x",), cost="little", look=_never), outcome, 0.00123)
        for n, outcome in enumerate(outcomes)
    )
    return Round(
        at=1_795_000_000.5,
        seconds=0.01,
        boot=Boot(id="b", uptime=5.0),
        sights=sights,
        findings=findings,
        notes=("first look",),
    )


@pytest.mark.parametrize(
    ("outcomes", "findings", "code"),
    [
        ((LOOKED, ABSENT), (), Exit.HEALTHY),
        ((LOOKED, BLIND), (), Exit.UNSEEN),
        ((LOOKED, BLIND), (LOOP,), Exit.FINDINGS),
    ],
)
def test_exit_codes(outcomes: tuple[Outcome, ...], findings: tuple[Finding, ...], code: Exit) -> None:
    assert exit_code(seen(*outcomes, findings=findings)) is code


def test_text_tells_verdict_findings_then_what_was_and_was_not_seen() -> None:
    text = as_text(seen(LOOKED, ABSENT, BLIND, findings=(LOOP,)), colour=False)

    assert text.startswith("1 finding, 1 critical; could not see: probe2\n\nCRITICAL  x.service crash-loops\n")
    order = ["culprit   x.service", "360", "[systemd NRestarts]", "next      Stop it.", "looked at", "240 units"]
    order += [
        "not on this host",
        "systemd does not run here",
        "could not see\n",
        "Run docker info.",
        "notes",
        "first look",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_health_is_never_claimed_for_what_was_not_seen() -> None:
    assert as_text(seen(LOOKED, BLIND), colour=False).startswith("cannot say that this host is healthy")
    assert as_text(seen(ABSENT), colour=False).startswith("cannot say that this host is healthy")
    assert as_text(seen(LOOKED), colour=False).startswith("healthy")


def test_a_name_from_the_host_cannot_drive_the_terminal() -> None:
    text = as_text(seen(Looked(says="unit \x1b[2Jevil\nhealthy: nothing found")), colour=True)

    assert "\x1b[2J" not in text
    assert "\nhealthy: nothing found\x1b" not in text.split("looked at")[1]
    assert "unit \\x1b[2Jevil\\n" in text


def test_colour_only_when_asked_for() -> None:
    assert "\x1b[" in as_text(seen(LOOKED), colour=True)
    assert "\x1b[" not in as_text(seen(LOOKED, BLIND, findings=(LOOP,)), colour=False)


def test_json_has_the_documented_fields() -> None:
    report = json.loads(as_json(seen(LOOKED, BLIND, findings=(LOOP,))))

    assert list(report) == [
        "schema", "verdict", "exit_code", "looked_at", "took_seconds", "boot_id", "findings", "probes", "notes",
    ]  # fmt: skip
    assert (report["schema"], report["verdict"], report["exit_code"]) == (1, "findings", 1)
    assert report["looked_at"] == "2026-11-18T11:06:40.500+00:00"
    assert report["findings"][0]["evidence"][0] == {
        "what": "automatic restarts",
        "value": "360",
        "source": "systemd NRestarts",
    }
    looked, blind = report["probes"]
    assert (looked["outcome"], looked["figures"], looked["next_step"]) == ("looked", {"restarts": 3}, None)
    assert (blind["outcome"], blind["next_step"]) == ("could-not-look", "Run docker info.")
