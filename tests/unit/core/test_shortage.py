"""Thresholds of what a host runs out of, from both sides."""

from __future__ import annotations

import pytest

from sexton.core.finding import Severity
from sexton.core.shortage import Fill, Kill, judge_disk, judge_engine, judge_kills, judge_pressure

GIB = 2**30


def fill(used: float, *, inodes_used: float = 0.1, size: int = 100 * GIB, uses: tuple[str, ...] = ()) -> Fill:
    return Fill(
        mount="/",
        device="/dev/vda",
        size=size,
        free=round(size * (1 - used)),
        used=used,
        inodes=1000,
        inodes_used=inodes_used,
        uses=uses,
    )


@pytest.mark.parametrize(
    ("seen", "severities"),
    [
        (fill(0.899), []),
        (fill(0.90), [Severity.WARNING]),
        (fill(0.97), [Severity.CRITICAL]),
        (fill(0.1, inodes_used=0.95), [Severity.WARNING]),
        (fill(0.98, inodes_used=0.99), [Severity.CRITICAL, Severity.CRITICAL]),
        (fill(0.95, size=4000 * GIB), []),  # 200 GiB are left
    ],
)
def test_disks(seen: Fill, severities: list[Severity]) -> None:
    assert [finding.severity for finding in judge_disk(seen)] == severities


def test_a_full_disk_names_what_takes_most_of_it() -> None:
    (finding,) = judge_disk(fill(0.95, uses=("container logs of the container engine: 60.0 GiB", "volumes: 1 GiB")))

    assert finding.culprit == "container logs of the container engine: 60.0 GiB"
    assert finding.fingerprint == "disk/space//"


@pytest.mark.parametrize(
    ("seconds", "fingerprint"), [(0.01, None), (0.99, None), (1.0, "engine/slow"), (None, "engine/stuck")]
)
def test_engines(seconds: float | None, fingerprint: str | None) -> None:
    finding = judge_engine(seconds, 2.5, "unix:///run/docker.sock")

    assert (None if finding is None else finding.fingerprint) == fingerprint


@pytest.mark.parametrize(
    ("resource", "full", "severity"),
    [
        ("memory", 9.9, None),
        ("memory", 10.0, Severity.WARNING),
        ("memory", 40.0, Severity.CRITICAL),
        ("io", 59.0, None),
        ("io", 60.0, Severity.WARNING),
        ("io", 90.0, Severity.CRITICAL),
    ],
)
def test_pressure(resource: str, full: float, severity: Severity | None) -> None:
    finding = judge_pressure(resource, full, full, None, 0.0, "here")

    assert (None if finding is None else finding.severity) == severity


def test_whoever_waits_is_not_said_to_be_the_cause() -> None:
    finding = judge_pressure("memory", 50, 50, "/system.slice/db.service", 70, "here")

    assert finding is not None
    assert "whether it is the cause is not known" in finding.culprit


def kill(ago: float, *, group: str = "/system.slice/db.service", limit: str = "/system.slice/db.service") -> Kill:
    return Kill(ago=ago, pid=7, name="db", group=group, limit=limit)


def test_kills_of_the_hour_are_told_by_maker() -> None:
    found = judge_kills([kill(10), kill(20), kill(3700), kill(5, limit="")])

    assert [(one.fingerprint, one.severity) for one in found] == [("oom/db.service", Severity.CRITICAL)]
    assert judge_kills([kill(3700)]) == ()
    assert [one.severity for one in judge_kills([kill(10)])] == [Severity.WARNING]
    assert [one.severity for one in judge_kills([kill(1), kill(2), kill(3)])] == [Severity.CRITICAL]


def test_a_container_is_named_by_where_it_is() -> None:
    (found,) = judge_kills([kill(1, group="/docker/" + "ab" * 32, limit="/docker/" + "ab" * 32)])

    assert found.culprit == "container abababababab below /docker"
