"""Tells what the gate decided: text for a person, JUnit XML and SARIF 2.1.0 for the pipeline that asked.

JUnit: one test case for each check; a failed one is a failure, one that could not be done an error. SARIF: one result
for each check that did not pass, with a fingerprint that stays the same from build to build, so that a scanner's page
can tell new from known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from xml.etree import ElementTree

import msgspec

from sexton import __version__
from sexton.care.gate import Gate
from sexton.core.gate import RULES, Check, Result

# Characters that XML 1.0 has no way to write; names of units and containers may hold anything.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_text(seen: Gate, clean: Callable[[str], str]) -> str:
    """For a person; ends with a newline."""
    lines = [f"gate {seen.result} after {seen.seconds:.0f} s"]
    for check in seen.checks:
        lines.append(f"  {check.result.upper():<16} {check.rule:<13} {clean(check.says)}")
        lines += [f"  {'':<16} {'':<13}   {clean(detail)}" for detail in check.details]
    return "\n".join(lines) + "\n"


def as_junit(seen: Gate) -> bytes:
    """JUnit XML as CI servers read it."""
    tally = {result: sum(1 for check in seen.checks if check.result is result) for result in Result}
    when = datetime.fromtimestamp(seen.started, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    sums = {
        "tests": str(len(seen.checks)),
        "failures": str(tally[Result.FAILED]),
        "errors": str(tally[Result.BLIND]),
        "time": f"{seen.seconds:.3f}",
    }
    suites = ElementTree.Element("testsuites", {"name": "sexton gate", **sums})
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": "sexton gate", **sums, "skipped": "0", "timestamp": when}
    )
    for check in seen.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"sexton.gate.{check.rule}", "name": _xml(check.name), "time": "0.000"},
        )
        text = _xml("\n".join((check.says, *check.details)))
        if check.result is Result.PASSED:
            ElementTree.SubElement(case, "system-out").text = text
        else:
            kind = "failure" if check.result is Result.FAILED else "error"
            said = {"message": _xml(check.says), "type": check.rule}
            ElementTree.SubElement(case, kind, said).text = text
    ElementTree.indent(suites)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, "unicode").encode() + b"\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def as_sarif(seen: Gate) -> bytes:
    """SARIF 2.1.0."""
    names = list(RULES)
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "sexton",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": [
                            {
                                "id": name,
                                "shortDescription": {"text": text},
                                "help": {"text": "See the gate's page in the manual of Sexton."},
                                "defaultConfiguration": {"level": "error"},
                            }
                            for name, text in RULES.items()
                        ],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": seen.result is not Result.BLIND,
                        "exitCode": seen.exit_code,
                        "startTimeUtc": _utc(seen.started),
                        "endTimeUtc": _utc(seen.started + seen.seconds),
                        "toolExecutionNotifications": [
                            {"level": "error", "message": {"text": check.says}}
                            for check in seen.checks
                            if check.result is Result.BLIND
                        ],
                    }
                ],
                "results": [
                    _result(check, names.index(check.rule)) for check in seen.checks if check.result is Result.FAILED
                ],
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n"


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _result(check: Check, rule: int) -> dict[str, object]:
    place: dict[str, object] = {
        "logicalLocations": [{"name": check.name, "fullyQualifiedName": f"host/{check.rule}/{check.name}"}]
    }
    if check.file:
        place["physicalLocation"] = {"artifactLocation": {"uri": check.file.lstrip("/"), "uriBaseId": "ROOT"}}
    return {
        "ruleId": check.rule,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": "\n".join((check.says, *check.details))},
        "locations": [place],
        "partialFingerprints": {"sexton/v1": f"{check.rule}/{check.name}"},
    }
