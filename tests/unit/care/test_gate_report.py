"""What a pipeline gets: JUnit and SARIF with what their schemas require, whatever the names hold."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.care.gate import Gate
from sexton.care.gate_report import as_junit, as_sarif, as_text
from sexton.core.gate import RULES, Check, Limits, Result


def gate(*checks: Check) -> Gate:
    return Gate(checks=checks, counts=(), limits=Limits(memcgs=1, growth_per_hour=1), started=1e9, seconds=2.5)


PASSED = Check(rule="memcg-count", name="count", result=Result.PASSED, says="fine")
FAILED = Check(
    rule="drift", name="a.service", result=Result.FAILED, says="a", details=("b",), file="/usr/lib/a.service"
)
BLIND = Check(rule="loop", name="units", result=Result.BLIND, says="no reply")

names = st.text()
checks = st.builds(
    Check,
    rule=st.sampled_from(list(RULES)),
    name=names,
    result=st.sampled_from(list(Result)),
    says=names,
    details=st.lists(names).map(tuple),
)


def test_junit_counts_and_separates_failures_from_errors():
    suites = ElementTree.fromstring(as_junit(gate(PASSED, FAILED, BLIND)))
    (suite,) = suites

    assert suites.tag == "testsuites"
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped", "timestamp")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "timestamp": "2001-09-09T01:46:40",
    }
    assert [[part.tag for part in case] for case in suite] == [["system-out"], ["failure"], ["error"]]
    assert suite[1][0].get("message") == "a"
    assert suite[1][0].text == "a\nb"


def test_sarif_has_what_its_schema_requires():
    log = json.loads(as_sarif(gate(PASSED, FAILED, BLIND)))
    (run,) = log["runs"]
    driver = run["tool"]["driver"]

    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    assert driver["name"] == "sexton"
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)
    assert run["invocations"][0]["toolExecutionNotifications"] == [{"level": "error", "message": {"text": "no reply"}}]
    (result,) = run["results"]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "drift"
    assert result["level"] == "error"
    assert result["message"]["text"] == "a\nb"
    assert result["partialFingerprints"] == {"sexton/v1": "drift/a.service"}
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "usr/lib/a.service"


@given(st.lists(checks).map(tuple))
def test_whatever_names_hold_both_can_be_parsed(given_checks):
    ElementTree.fromstring(as_junit(gate(*given_checks)))
    json.loads(as_sarif(gate(*given_checks)))


@pytest.mark.parametrize(("found", "code"), [((PASSED,), 0), ((PASSED, BLIND), 2), ((PASSED, BLIND, FAILED), 1)])
def test_exit_codes(found, code):
    assert gate(*found).exit_code == code
    assert as_text(gate(*found), str).startswith("gate ")
