"""Unit files are read the way the service manager reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.unitfile import Settings, commands, expand, is_unit_name, parse, seconds, template_of


def settings(*texts: str) -> Settings:
    return Settings(one for number, text in enumerate(texts) for one in parse(text, f"/file{number}"))


def test_lines_join_over_a_backslash_and_comments_between_them_vanish():
    read = settings("[Service]\nExecStart=/bin/a \\\n  # not this\n  ; nor this\n  b \\\n  c\nRestart=no\n")

    assert [one.value for one in read.all("Service", "ExecStart")] == ["/bin/a    b    c"] or read.value(
        "Service", "ExecStart"
    ).split() == ["/bin/a", "b", "c"]
    assert read.value("Service", "Restart") == "no"


def test_a_later_file_overrides_and_an_empty_value_starts_a_list_anew():
    read = settings(
        "[Service]\nExecStart=/bin/one\nRestart=always\n", "[Service]\nExecStart=\nExecStart=/bin/two\nRestart=no\n"
    )

    assert [one.value for one in read.all("Service", "ExecStart")] == ["/bin/two"]
    assert read.value("Service", "Restart") == "no"
    assert read.last("Service", "Restart").source == "/file1"


def test_dependencies_can_only_be_added():
    read = settings("[Unit]\nAfter=a.service b.service\n", "[Unit]\nAfter=\nAfter=c.service\n")

    assert [word for word, _ in read.words("Unit", "After")] == ["a.service", "b.service", "c.service"]


def test_an_empty_condition_resets_conditions_of_every_kind_but_no_assertion():
    read = settings(
        "[Unit]\nConditionPathExists=/a\nConditionVirtualization=vm\nAssertPathExists=/b\n",
        "[Unit]\nConditionPathExists=\nConditionFileNotEmpty=/c\n",
    )

    assert [one.key for one in read.matching("Unit", "Condition")] == ["ConditionFileNotEmpty"]
    assert [one.key for one in read.matching("Unit", "Assert")] == ["AssertPathExists"]


def test_a_directive_knows_its_file_and_line():
    read = settings("# head\n\n[Unit]\nDescription=x\n\n[Service]\nRestart=always\n")

    assert read.last("Service", "Restart").line == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10", 10), ("10s", 10), ("1min 30s", 90), ("500ms", 0.5), ("infinity", float("inf")), ("2h", 7200), ("0", 0)],
)
def test_time_spans(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-3"])
def test_what_is_no_time_span(text):
    assert seconds(text) is None


def test_prefixes_of_commands_are_read_and_taken_off():
    read = settings(
        "[Service]\nExecStartPre=-/bin/may-fail --now\nExecStart=@/usr/sbin/daemon its-name -D\nExecStop=+/bin/stop\n"
    )
    found = {one.directive.key: one for one in commands(read)}

    assert found["ExecStartPre"].may_fail
    assert found["ExecStart"].words == ("/usr/sbin/daemon", "-D")
    assert "ExecStop" not in found  # what stops it cannot keep it from starting


def test_specifiers_of_the_name():
    assert expand("/etc/%p/%i.conf", "db@main-a.service") == "/etc/db/main-a.conf"
    assert expand("%I", "mount@var-lib.service") == "var/lib"
    assert expand("/home/%h", "x.service") is None  # depends on more than the name
    assert expand("100%%", "x.service") == "100%"


def test_names():
    assert template_of("getty@tty1.service") == "getty@.service"
    assert template_of("getty@.service") is None
    assert is_unit_name("a-b\\x2dc@1.timer")
    assert not is_unit_name("readme.txt")


@given(st.text())
def test_any_text_is_read_without_fault(text):
    read = Settings(parse(text, "/x"))
    commands(read)
    read.lines()
