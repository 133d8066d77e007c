"""The policy file: a misspelt word never becomes a permission, and every error names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.care.policy import BadPolicy, read_policy, read_span
from sexton.core.policy import Mask, Mode
from sexton.core.values import BadValue

GOOD = """
per-day = 4

[[windows]]
days = ["sat", "sun"]
from = "02:00"
to = "05:30"

[remedies.disable-unit]
mode = "act"
only = ["ecs.service"]
never = ["db*"]
after = "10m"
per-day = 2
mask = "always"

[remedies.purge-memcg]
mode = "act"
kernel-seconds = "250ms"
drop-caches = false

[remedies.prune-images]
unused-for = "14d"
"""


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "care.toml"
    path.write_text(GOOD)
    policy = read_policy(path)

    assert policy.source == str(path)
    assert policy.per_day == 4
    unit = policy.remedies.disable_unit
    assert (unit.mode, unit.only, unit.never, unit.after, unit.per_day, unit.mask) == (
        Mode.ACT,
        ("ecs.service",),
        ("db*",),
        600.0,
        2,
        Mask.ALWAYS,
    )
    assert policy.remedies.purge_memcg.kernel_seconds == 0.25
    assert policy.remedies.purge_memcg.only == ("/*",)
    assert policy.remedies.prune_images.mode is Mode.DRY_RUN
    assert policy.remedies.prune_images.unused_for == 14 * 86400
    (window,) = policy.windows
    assert (window.days, window.begins, window.ends) == (frozenset({5, 6}), 120, 330)


def test_no_file_changes_nothing(tmp_path: Path) -> None:
    policy = read_policy(tmp_path / "none.toml")

    assert policy.remedies.disable_unit.mode is Mode.DRY_RUN
    assert "nothing is changed" in policy.source


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[remedies", ["not TOML"]),
        ("per-week = 1", ["'per-week'", "per-day"]),
        ("[remedies.disable-units]", ["'disable-units'", "[remedies]", "disable-unit"]),
        ("[remedies.disable-unit]\nmod = 'act'", ["'mod'", "[remedies.disable-unit]", "mode"]),
        ("[remedies.disable-unit]\nmode = 'yes'", ["[remedies.disable-unit]", "mode", "'yes'"]),
        ("[remedies.disable-unit]\nmode = 'act'", ["'only'", "ecs.service"]),
        ("[remedies.disable-unit]\nonly = 'ecs.service'", ["only", "array"]),
        ("[remedies.disable-unit]\nafter = 'soon'", ["after in [remedies.disable-unit]", "'soon'"]),
        ("[remedies.disable-unit]\nper-day = -1", ["per-day is below 0"]),
        ("[remedies.purge-memcg]\nkernel-seconds = 0", ["budget of time"]),
        ("[remedies]\ndisable-unit = 3", ["[remedies.disable-unit]", "no table"]),
        ("per-day = true", ["per-day is True"]),
        ("windows = 3", ["[[windows]]"]),
        ("[[windows]]\nfrom = '02:00'", ["to in window 1"]),
        ("[[windows]]\nfrom = '25:00'\nto = '03:00'", ["from in window 1", "25:00"]),
        ("[[windows]]\nfrom = '02:00'\nto = '02:00'", ["window 1 begins when it ends"]),
        ("[[windows]]\ndays = ['monday']\nfrom = '02:00'\nto = '03:00'", ["days in window 1", "mon"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "care.toml"
    path.write_text(text)

    with pytest.raises(BadPolicy) as caught:
        read_policy(path)

    assert str(caught.value).startswith(f"cannot use {path}: ")
    for word in words:
        assert word in str(caught.value)


def test_a_directory_or_a_flood_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(BadPolicy, match="cannot read"):
        read_policy(tmp_path)
    (tmp_path / "flood.toml").write_bytes(b"#" * (1 << 20))
    with pytest.raises(BadPolicy, match="larger"):
        read_policy(tmp_path / "flood.toml")


@pytest.mark.parametrize(("text", "seconds"), [("7d", 604800), ("90m", 5400), ("1h30m", 5400), ("30s", 30)])
def test_spans(text: str, seconds: float) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "soon", "-3d"])
def test_no_spans(text: str) -> None:
    with pytest.raises(BadValue):
        read_span(text)
