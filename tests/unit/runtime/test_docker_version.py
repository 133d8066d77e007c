"""The shared range of API versions."""

from __future__ import annotations

import pytest

from sexton.runtime.contract import Refused
from sexton.runtime.docker_version import shared


@pytest.mark.parametrize(
    ("minimum", "maximum", "first", "last"),
    [
        ("1.12", "1.41", "1.17", "1.41"),  # older than us at the bottom
        ("1.24", "1.52", "1.24", "1.47"),  # newer than us at the top
        ("1.44", "1.52", "1.44", "1.47"),
        ("", "1.21", "1.17", "1.21"),  # before engines named a minimum
        ("1.47", "1.47", "1.47", "1.47"),
        ("1.5", "2.0", "1.17", "1.47"),
    ],
)
def test_the_range_both_ends_speak(minimum: str, maximum: str, first: str, last: str) -> None:
    versions = shared(minimum, maximum)

    assert (versions[0], versions[-1]) == (first, last)
    minors = [int(version.partition(".")[2]) for version in versions]
    assert minors == list(range(minors[0], minors[-1] + 1))


@pytest.mark.parametrize(
    ("minimum", "maximum"), [("1.12", "1.20"), ("1.48", "1.60"), ("2.0", "2.1"), ("", ""), ("", "x")]
)
def test_no_shared_version_says_what_each_end_speaks(minimum: str, maximum: str) -> None:
    with pytest.raises(Refused, match="cannot use this engine"):
        shared(minimum, maximum)
