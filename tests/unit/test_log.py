"""Log lines: one a line, whatever is in it; nothing forged, nothing secret."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.log import JsonFormatter, LogfmtFormatter


def record(event="task changed", error=None, severity=logging.INFO, **facts):
    made = logging.makeLogRecord(facts)
    made.name, made.msg, made.levelno, made.levelname = "sexton.agent", event, severity, logging.getLevelName(severity)
    made.created, made.msecs = 1_800_000_000.25, 250.0
    if error is not None:
        try:
            raise error
        except type(error):
            made.exc_info = sys.exc_info()
    return made


HEAD = "level=info time=2027-01-15T08:00:00.250Z logger=agent"


def line(**facts):
    return LogfmtFormatter().format(record(**facts))


def test_a_plain_line():
    assert line(task="t1", attempt=2) == f'{HEAD} msg="task changed" task=t1 attempt=2'


@pytest.mark.parametrize(
    "value, written",
    [
        ("", '""'),
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb", '"a\\nb"'),
        ("a\rb", '"a\\rb"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("a\u2028b", '"a\\u2028b"'),
        ("\x7f", '"\\u007f"'),
        ("größe", "größe"),
        ("größe x", '"größe x"'),
        (None, "None"),
        (1.5, "1.5"),
    ],
)
def test_values_are_quoted_where_they_must_be(value, written):
    assert line(fact=value) == f'{HEAD} msg="task changed" fact={written}'


@pytest.mark.parametrize(
    "name", ["secret", "secret_access_key", "Authorization", "session_token", "password", "signature", "credentials"]
)
def test_a_secret_is_never_written(name):
    for formatter in (LogfmtFormatter(), JsonFormatter()):
        text = formatter.format(record(**{name: "hunter2"}))
        assert "hunter2" not in text
        assert "[redacted]" in text


def test_a_fact_does_not_pass_for_the_lines_own():
    text = line(level="critical", time="never", logger="x")

    assert text == f'{HEAD} msg="task changed" level_=critical time_=never logger_=x'


def test_an_exception_stays_on_its_line():
    failed = record(error=ValueError("two\nlines"), severity=logging.ERROR)
    text = LogfmtFormatter().format(failed)

    assert "\n" not in text
    assert 'error="ValueError: two\\nlines"' in text
    assert "Traceback" in text
    fields = json.loads(JsonFormatter().format(failed))
    assert fields["error"] == "ValueError: two\nlines"
    assert fields["trace"].startswith("Traceback")


def test_json_has_the_same_fields():
    assert json.loads(JsonFormatter().format(record(task="t1", attempt=2))) == {
        "level": "info",
        "time": "2027-01-15T08:00:00.250Z",
        "logger": "agent",
        "msg": "task changed",
        "task": "t1",
        "attempt": 2,
    }


@given(st.text())
def test_no_value_ends_its_line(value):
    for formatter in (LogfmtFormatter(), JsonFormatter()):
        text = formatter.format(record(fact=value))
        assert text.isprintable()
        assert len(text.splitlines()) == 1


def configured(*words):
    """In a process of its own: a configuration is the whole process's. What it said to standard error."""
    code = (
        "import logging, sys; from sexton import log\n"
        "log.configure(sys.argv[1], sys.argv[2], 'json', file_level=sys.argv[3])\n"
        "for number in (10, 20, 30, 40, 50): logging.getLogger('sexton.x').log(number, 'said')\n"
        "logging.getLogger('aiohttp.access').info('one per request')\n"
        "print(log.errors(), log.last_error().event)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=True)
    assert done.stdout == "2 said\n"
    return len(done.stderr.splitlines())


@pytest.mark.parametrize(
    "level, heard", [("debug", 5), ("info", 4), ("warn", 3), ("error", 2), ("crit", 1), ("none", 0)]
)
def test_levels_of_both_outputs(tmp_path, level, heard):
    file = tmp_path / "sexton.log"

    assert configured(level, file, "") == heard
    assert len(file.read_text().splitlines() if file.exists() else []) == heard


@pytest.mark.parametrize("level, heard", [("debug", 5), ("error", 2), ("off", 0)])
def test_the_file_has_a_level_of_its_own(tmp_path, level, heard):
    file = tmp_path / "sexton.log"

    assert configured("warn", file, level) == 3
    assert len(file.read_text().splitlines() if file.exists() else []) == heard
