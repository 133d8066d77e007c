"""When a registry is asked, and which digest is a reference's own."""

from __future__ import annotations

import pytest

from sexton.core.images import asks_registry, digest_of, failure_ends_task, split_reference


@pytest.mark.parametrize(
    ("behaviour", "here", "before", "asks"),
    [
        ("default", True, True, True),
        ("always", True, True, True),
        ("once", True, True, False),
        ("once", True, False, True),
        ("once", False, True, True),
        ("prefer-cached", True, False, False),
        ("prefer-cached", False, True, True),
    ],
)
def test_who_is_asked(behaviour, here, before, asks):
    assert asks_registry(behaviour, here=here, pulled_before=before) is asks


def test_whose_failure_ends_a_task():
    assert [word for word in ("default", "always", "once", "prefer-cached") if failure_ends_task(word)] == [
        "always",
        "once",
    ]


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        ("app", ("app", "")),
        ("app:1", ("app", "")),
        ("host:5000/app", ("host:5000/app", "")),
        ("host:5000/app:1@sha256:2", ("host:5000/app", "sha256:2")),
    ],
)
def test_parts_of_a_reference(ref, parts):
    assert split_reference(ref) == parts


def test_a_digest_of_another_repository_is_not_ours():
    assert digest_of(("other@sha256:1", "docker.io/library/app@sha256:2"), "app:1") == "sha256:2"
    assert digest_of(("other@sha256:1",), "app:1") == ""
