"""The gate's decision: count, growth, loops and drift fail it; what could not be checked never passes."""

from __future__ import annotations

import pytest

from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.gate import RULES, Blind, Count, Limits, Result, judge, verdict
from sexton.core.lock import Difference

LIMITS = Limits(memcgs=1000, growth_per_hour=300)


def count(at: float, zombies: int) -> Count:
    return Count(at=at, tracked=100 + zombies, live=100, zombies=zombies)


CALM = (count(0, 40), count(60, 60), count(120, 61))


def finding(fingerprint: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        fingerprint=fingerprint,
        severity=severity,
        title=f"{fingerprint} is there",
        culprit="x",
        evidence=(Evidence("what", "value", "source"),),
        next_step="do",
    )


def failed(checks) -> list[str]:
    return [check.rule for check in checks if check.result is Result.FAILED]


def test_a_calm_host_passes():
    checks = judge(CALM, (), (), (), LIMITS)

    assert verdict(checks) is Result.PASSED
    assert [check.rule for check in checks] == ["memcg-count", "memcg-growth", "loop", "drift"]


def test_the_count_may_reach_the_limit_and_not_pass_it():
    assert failed(judge((count(0, 900), count(60, 900), count(120, 900)), (), (), None, LIMITS)) == []
    assert failed(judge((count(0, 901), count(60, 901), count(120, 901)), (), (), None, LIMITS)) == ["memcg-count"]


def test_growth_is_judged_by_the_second_half_alone():
    """Units that start leave some zombies; a loop of ten seconds leaves six a minute."""
    assert failed(judge((count(0, 0), count(60, 200), count(120, 204)), (), (), None, LIMITS)) == []
    assert failed(judge((count(0, 0), count(60, 0), count(120, 6)), (), (), None, LIMITS)) == ["memcg-growth"]


@pytest.mark.parametrize("fingerprint", ["unit-loop/ecs.service", "container-loop/image/name"])
def test_a_loop_fails_with_its_culprit_and_evidence(fingerprint):
    checks = judge(CALM, (finding(fingerprint),), (), None, LIMITS)

    (loop,) = [check for check in checks if check.result is Result.FAILED]
    assert (loop.rule, loop.name) == ("loop", fingerprint)
    assert "culprit: x" in loop.details
    assert "what: value [source]" in loop.details


def test_only_critical_findings_of_other_kinds_fail_it():
    assert failed(judge(CALM, (finding("disk/full"),), (), None, LIMITS)) == []
    assert failed(judge(CALM, (finding("disk/full", Severity.CRITICAL),), (), None, LIMITS)) == ["finding"]


def test_each_unit_that_drifted_fails_by_name():
    drifted = Difference(unit="a.service", was="masked", now="starts", why=("mask: gone",), outcome=True)
    checks = judge(CALM, (), (), (drifted,), LIMITS)

    assert failed(checks) == ["drift"]
    assert checks[-1].says == "a.service: masked in the lock, starts here"


def test_what_could_not_be_checked_is_no_pass_and_a_failure_says_more():
    blind = (Blind("memcg", "no"), Blind("containers", "no reply"))
    checks = judge((), (), blind, None, LIMITS)

    assert verdict(checks) is Result.BLIND
    assert [check.rule for check in checks if check.result is Result.BLIND] == ["memcg-count", "memcg-growth", "loop"]
    assert verdict(judge((), (finding("unit-loop/x"),), blind, None, LIMITS)) is Result.FAILED
    assert verdict(judge(CALM, (), (), None, LIMITS, "cannot read the lock")) is Result.BLIND


def test_every_check_has_a_rule_that_explains_it():
    everything = judge(
        CALM,
        (finding("unit-loop/x"), finding("disk/full", Severity.CRITICAL)),
        (),
        (Difference(unit="a", was="", now="", why=(), outcome=False),),
        LIMITS,
    )

    assert {check.rule for check in everything} == set(RULES)
