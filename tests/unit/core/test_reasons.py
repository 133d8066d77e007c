"""The words on the wire for what went wrong."""

from __future__ import annotations

import pytest

from sexton.core import reasons


@pytest.mark.parametrize(
    "seconds, text",
    [(30, "30s"), (240, "4m0s"), (7200, "2h0m0s"), (150, "2m30s"), (0.5, "0.5s"), (61.25, "1m1.25s"), (0, "0s")],
)
def test_times_are_written_as_go_writes_them(seconds, text):
    assert reasons.duration(seconds) == text


def test_a_timeout_names_the_state_and_the_wait():
    said = "DockerTimeoutError: Could not transition to started; timed out after waiting 3m0s"

    assert reasons.timed_out(reasons.STARTED, 180.0) == said


@pytest.mark.parametrize(
    "text, advice",
    [
        ("pull access denied: requested access to the resource is denied", "check whether the image exists"),
        ("Get https://r/v2/: net/http: request canceled while waiting for connection", "check network configuration"),
        ("User: x is not authorized to perform: ecr:BatchGetImage on resource: y", "check role permissions"),
    ],
)
def test_known_trouble_comes_with_advice_and_the_registrys_own_words(text, advice):
    said = reasons.pull_failed(text, "r/app:1")

    assert said.startswith("CannotPullContainerError: ") and advice in said and said.endswith(text)


def test_other_trouble_is_passed_on_as_it_is():
    assert reasons.pull_failed("boom", "app") == "CannotPullContainerError: boom"


def test_signed_addresses_are_not_passed_on():
    text = "GET https://prod-us-east-1-starport-layer-bucket.s3.amazonaws.com/a?X-Amz-Signature=abc: 403"

    said = reasons.pull_failed(text, "app")

    assert "Signature" not in said and "REDACTED ECR URL related to app" in said
