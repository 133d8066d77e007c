"""The rules that turn readings into findings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.finding import (
    CONTAINER_TURNS,
    RATIO_FLOOR,
    UNIT_STAYS_FAILED,
    ZOMBIES_CRITICAL,
    ZOMBIES_WARNING,
    Change,
    FailedUnit,
    Finding,
    MemcgCount,
    Severity,
    Turn,
    UnitRestarts,
    judge_containers,
    judge_failed,
    judge_unit,
    judge_zombies,
    loops_for_ever,
    name_pattern,
    seconds_until,
)

DAY = 86400.0
counts = st.integers(min_value=0, max_value=200_000)


def count(zombies: int, live: int = 240) -> MemcgCount:
    return MemcgCount(tracked=live + zombies, live=live, zombies=zombies, source="/proc/cgroups")


def told(finding: Finding | None) -> dict[str, str]:
    assert finding is not None
    return {item.what: item.value for item in finding.evidence}


class TestZombies:
    @pytest.mark.parametrize(
        ("zombies", "live", "severity"),
        [
            (0, 240, None),
            (55, 8, None),  # six times as many, but few: every busy host has some on their way out
            (RATIO_FLOOR - 1, 10, None),
            (RATIO_FLOOR, 10, Severity.WARNING),
            (500, 240, None),  # three to one
            (720, 240, Severity.WARNING),  # four to one
            (ZOMBIES_WARNING - 1, 5_000, None),
            (ZOMBIES_WARNING, 5_000, Severity.WARNING),
            (ZOMBIES_CRITICAL - 1, 240, Severity.WARNING),
            (ZOMBIES_CRITICAL, 240, Severity.CRITICAL),
            (68_440, 240, Severity.CRITICAL),
        ],
    )
    def test_thresholds(self, zombies: int, live: int, severity: Severity | None) -> None:
        finding = judge_zombies(count(zombies, live), None)

        assert (finding.severity if finding else None) == severity

    def test_steady_growth_is_announced_before_the_threshold(self) -> None:
        finding = judge_zombies(count(100), Change(90, 3600.0))

        assert told(finding)["growth since the last look"] == "+90 in 60 minutes (+90 an hour)"
        assert told(finding)["at this pace 1,000"] == "in 10 hours"

    @pytest.mark.parametrize(
        "change",
        [Change(90, 60.0), Change(10, 3600.0), Change(0, 3600.0), Change(-500, 3600.0)],
        ids=["too short a time", "too slow", "none", "shrinking"],
    )
    def test_what_is_no_leak_stays_silent(self, change: Change) -> None:
        assert judge_zombies(count(100), change) is None

    @given(counts, counts.filter(bool))
    def test_more_zombies_are_never_less_severe(self, zombies: int, live: int) -> None:
        order = [None, Severity.WARNING, Severity.CRITICAL]
        fewer, more = (judge_zombies(count(n, live), None) for n in (zombies, zombies + 1))

        assert order.index(more.severity if more else None) >= order.index(fewer.severity if fewer else None)

    @given(counts.filter(lambda n: n >= ZOMBIES_WARNING), counts.filter(lambda n: n >= ZOMBIES_WARNING))
    def test_the_fingerprint_does_not_depend_on_numbers(self, one: int, other: int) -> None:
        first, second = judge_zombies(count(one), None), judge_zombies(count(other), Change(5, 9000.0))

        assert first is not None and second is not None
        assert first.fingerprint == second.fingerprint

    @given(counts, st.integers(-1000, 1000), st.floats(1, 1e6), counts)
    def test_a_projection_lands_on_the_threshold(self, now: int, by: int, seconds: float, threshold: int) -> None:
        ahead = seconds_until(now, Change(by, seconds), threshold)

        if ahead is None:
            assert by <= 0 or now >= threshold
        else:
            assert now + by / seconds * ahead == pytest.approx(threshold)


def unit(**facts: object) -> UnitRestarts:
    """The unit of the published incident: down between two turns, ten seconds apart, for ever."""
    base: dict[str, object] = {
        "name": "ecs.service",
        "active_state": "activating",
        "sub_state": "auto-restart",
        "result": "exit-code",
        "restarts": 360,
        "policy": "on-failure",
        "delay": 10.0,
        "limit_interval": 10.0,
        "limit_burst": 5,
        "exit_status": 5,
    }
    return UnitRestarts(**(base | facts))  # type: ignore[arg-type]


UP = {"active_state": "active", "sub_state": "running", "result": "success", "exit_status": 0}


class TestUnits:
    def test_the_published_incident(self) -> None:
        finding = judge_unit(unit(), uptime=3600)

        assert finding is not None
        assert (finding.severity, finding.culprit) == (Severity.CRITICAL, "ecs.service")
        assert told(finding)["can it loop for ever"].startswith(
            "yes: Restart=on-failure, RestartSec=10 s, 5 starts in 10 s"
        )
        assert "systemctl disable --now ecs.service" in finding.next_step

    def test_down_again_in_the_third_turn_on_a_host_up_for_weeks(self) -> None:
        finding = judge_unit(unit(restarts=2), uptime=30 * DAY)

        assert finding is not None
        assert finding.severity is Severity.WARNING

    def test_a_loop_seen_while_its_process_is_up(self) -> None:
        assert judge_unit(unit(**UP, up=4.0), uptime=3600) is not None

    def test_a_new_loop_on_an_old_host_is_told_by_the_last_look(self) -> None:
        young = unit(**UP, up=4.0, restarts=20)

        assert judge_unit(young, uptime=300 * DAY) is None
        finding = judge_unit(unit(**UP, up=4.0, restarts=20, since_last=Change(12, 120.0)), uptime=300 * DAY)
        assert told(finding)["restarts since the last look"] == "+12 in 2 minutes (360 an hour)"

    def test_a_unit_that_systemd_gave_up_on(self) -> None:
        failed = unit(active_state="failed", sub_state="failed", restarts=5)

        finding = judge_unit(failed, uptime=30 * DAY)

        assert finding is not None
        assert "gave up" in finding.title
        assert finding.severity is Severity.WARNING

    def test_a_unit_that_somebody_starts_too_often(self) -> None:
        refused = unit(active_state="failed", sub_state="failed", result="start-limit-hit", restarts=0)

        finding = judge_unit(refused, uptime=30 * DAY)

        assert finding is not None
        assert "more often than its start limit allows" in finding.title

    @pytest.mark.parametrize(
        ("facts", "uptime"),
        [
            (UP | {"restarts": 1, "up": 5.0}, 60.0),
            (UP | {"restarts": 5, "up": 7 * DAY}, 8 * DAY),
            (UP | {"restarts": 5, "up": 30.0}, 30 * DAY),
            ({"restarts": 1}, 60.0),
            ({"restarts": 0, "active_state": "failed", "sub_state": "failed"}, 60.0),
        ],
        ids=["one accident", "trouble long over", "stumbles now and then", "first restart", "a failed oneshot"],
    )
    def test_healthy_patterns_are_silent(self, facts: dict[str, object], uptime: float) -> None:
        assert judge_unit(unit(**facts), uptime) is None

    @pytest.mark.parametrize(
        ("policy", "delay", "interval", "burst", "endless"),
        [
            ("always", 0.1, 10.0, 5, False),
            ("always", 2.0, 10.0, 5, True),
            ("on-failure", 10.0, 10.0, 5, True),
            ("always", 0.1, 0.0, 5, True),
            ("always", 0.1, 10.0, 0, True),
            ("no", 10.0, 0.0, 0, False),
            ("always", 0.1, float("inf"), 5, False),
        ],
    )
    def test_what_can_loop_for_ever(
        self, policy: str, delay: float, interval: float, burst: int, endless: bool
    ) -> None:
        facts = unit(policy=policy, delay=delay, limit_interval=interval, limit_burst=burst)

        assert loops_for_ever(facts) is endless


NOW = 1_000_000.0


class TestFailedUnits:
    def test_one_that_was_left_failed_is_told_with_its_reason(self) -> None:
        finding = judge_failed(FailedUnit(name="backup.service", ago=7200.0, result="exit-code", exit_status=3))

        assert finding is not None
        assert (finding.fingerprint, finding.severity) == ("unit-failed/backup.service", Severity.WARNING)
        assert finding.title == "backup.service has failed: exit-code, status 3"
        assert told(finding) == {"failed": "2 hours ago", "how": "exit-code, status 3"}
        assert "journalctl -u backup.service" in finding.next_step
        assert "systemctl reset-failed backup.service" in finding.next_step

    def test_a_mount_has_no_exit_status(self) -> None:
        finding = judge_failed(FailedUnit(name="mnt-data.mount", ago=100.0))

        assert finding is not None
        assert finding.title == "mnt-data.mount has failed"
        assert list(told(finding)) == ["failed"]

    def test_one_that_failed_just_now_may_be_started_again_by_whoever_asked(self) -> None:
        assert judge_failed(FailedUnit(name="a.service", ago=UNIT_STAYS_FAILED - 1, result="signal")) is None
        assert judge_failed(FailedUnit(name="a.service", ago=UNIT_STAYS_FAILED, result="signal")) is not None


def lives(
    turns: int,
    *,
    period: float = 10.0,
    life: float | None = 1.0,
    code: int = 1,
    same: bool = False,
    image: str = "agent:1",
    name: str = "agent",
) -> list[Turn]:
    """A row of lives that ends a moment ago."""
    first = NOW - (turns - 1) * period - 2
    return [
        Turn(
            container_id="c0" if same else f"c{number}",
            name=name if same else f"{name}-{number}",
            image=image,
            started=first + number * period,
            died=None if life is None else first + number * period + life,
            exit_code=None if life is None else code,
        )
        for number in range(turns)
    ]


def turn(
    started: float, died: float | None = None, code: int | None = None, *, ident: str = "c0", oom: bool = False
) -> Turn:
    return Turn(
        container_id=ident,
        name=f"agent-{ident}",
        image="agent:1",
        started=started,
        died=died,
        exit_code=code,
        oom_killed=oom,
    )


class TestContainers:
    def test_the_seconds_old_container_that_is_always_there(self) -> None:
        (finding,) = judge_containers(lives(CONTAINER_TURNS), NOW)

        assert finding.fingerprint == "container-loop/agent:1/agent-*"
        assert told(finding)["exit codes"] == "1"
        assert told(finding)["newest"] == "agent-2 (c2), started 2.0 s ago"
        assert "one every 10 s; 3 containers were made one after another" in told(finding)["short lives that failed"]

    def test_one_container_that_a_policy_restarts(self) -> None:
        (finding,) = judge_containers(lives(5, same=True), NOW)

        assert "a restart policy restarts one container" in told(finding)["short lives that failed"]

    def test_a_policy_that_restarts_what_ends_well(self) -> None:
        assert len(judge_containers(lives(5, same=True, code=0, period=3.0), NOW)) == 1

    def test_containers_that_the_kernel_kills_for_memory(self) -> None:
        choked = [turn(NOW - 30 + n * 10, NOW - 25 + n * 10, 137, ident=f"c{n}", oom=True) for n in range(3)]

        assert len(judge_containers(choked, NOW)) == 1

        assert len(judge_containers(choked, NOW)) == 1

    @pytest.mark.parametrize(
        "turns",
        [
            lives(CONTAINER_TURNS - 1),
            lives(20, code=0),
            lives(20, code=143),
            lives(20, code=137),
            lives(10, period=90.0, life=80.0),
            lives(10, period=60.0, code=0, same=True),
            [*(turn(NOW - 520 + n * 4, NOW - 519 + n * 4, 1) for n in range(5)), turn(NOW - 500)],
            [turn for n in range(5) for turn in lives(1, image=f"job{n}:1")],
            [turn(NOW - 800 + n, NOW - 799 + n, 1, ident=f"c{n}") for n in range(5)],
        ],
        ids=[
            "tried twice",
            "jobs that end well",
            "stopped",
            "removed by force",
            "long lives",
            "a timer's container",
            "got over it",
            "different images",
            "a loop that has ended",
        ],
    )
    def test_healthy_patterns_are_silent(self, turns: list[Turn]) -> None:
        assert judge_containers(turns, NOW) == ()

    @given(st.permutations(lives(6) + lives(4, image="web:1", name="web")))
    def test_the_order_of_turns_does_not_matter(self, shuffled: list[Turn]) -> None:
        assert [f.culprit for f in judge_containers(shuffled, NOW)] == [
            "agent-* (image agent:1)",
            "web-* (image web:1)",
        ]

    @given(
        st.lists(
            st.builds(
                Turn,
                container_id=st.sampled_from(["a", "b"]),
                name=st.sampled_from(["x", "y1", ""]),
                image=st.sampled_from(["i", "j"]),
                started=st.floats(NOW - 900, NOW),
                died=st.none() | st.floats(NOW - 900, NOW),
                exit_code=st.none() | st.integers(0, 255),
            )
        )
    )
    def test_any_events_give_an_answer(self, turns: list[Turn]) -> None:
        for finding in judge_containers(turns, NOW):
            assert len(turns) >= CONTAINER_TURNS
            assert finding.evidence and finding.next_step

    @pytest.mark.parametrize(
        ("name", "pattern"),
        [
            ("ecs-agent", "ecs-agent"),
            ("ecs-web-3-nginx-a4c2e0f19bd3aef0aa01", "ecs-web-*-nginx-*"),
            ("job_17", "job_*"),
            ("nifty_hopper4", "*"),
            ("", "*"),
        ],
    )
    def test_names_without_their_changing_part(self, name: str, pattern: str) -> None:
        assert name_pattern(name) == pattern
