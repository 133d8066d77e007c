"""What is tried again, how often, and what is not."""

from __future__ import annotations

import asyncio
import random

import pytest

from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Attempt, NoCredentials
from sexton.cloud.transient import RetryPolicy, is_transient, retrying
from sexton.kit.retry import Backoff
from sexton.wire.errors import (
    ClientException,
    EcsError,
    InvalidParameterException,
    LimitExceededException,
    ServerException,
    ThrottlingException,
)

BACKOFF = Backoff(first=1.0, cap=5.0, factor=2.0, jitter=0.0)


class Call:
    """Fails with the given errors in turn, then answers."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.made = 0

    async def __call__(self):
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture
def slept():
    return []


@pytest.fixture
def sleep(slept):
    async def record(delay):
        slept.append(delay)

    return record


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ThrottlingException("slow down"), True),
        (EcsError("m", code="Throttling"), True),
        (EcsError("m", code="RequestLimitExceeded"), True),
        (EcsError("m", code="Odd", status=503), True),
        (EcsError("m", code="Odd", status=429), True),
        (ServerException("m"), True),
        (ServerException("m", status=400), True),
        (Unreachable("gone"), True),
        (NoCredentials([Attempt("role", "503", True)]), True),
        (NoCredentials([Attempt("role", "none", False)]), False),
        (ClientException("no"), False),
        (InvalidParameterException("no"), False),
        (LimitExceededException("no"), False),
        (ValueError("bug"), False),
    ],
    ids=repr,
)
def test_what_passes_by_itself(error, passes):
    assert is_transient(error) is passes


async def test_tries_until_it_works_with_growing_capped_delays(slept, sleep):
    call = Call(*[Unreachable("gone")] * 5)

    assert await retrying(call, RetryPolicy(BACKOFF), what="x", sleep=sleep) == "done"
    assert slept == [1.0, 2.0, 4.0, 5.0, 5.0]


async def test_a_final_failure_ends_it_at_once(slept, sleep):
    call = Call(Unreachable("gone"), ClientException("no"))

    with pytest.raises(ClientException):
        await retrying(call, RetryPolicy(BACKOFF), what="x", sleep=sleep)
    assert slept == [1.0]


@pytest.mark.parametrize(
    ("policy", "made"),
    [
        (RetryPolicy(BACKOFF, attempts=3), 3),
        (RetryPolicy(BACKOFF, attempts=1), 1),
        (RetryPolicy(BACKOFF, patience=7), 4),
    ],
)
async def test_the_policy_ends_it_with_the_last_failure(sleep, policy, made):
    call = Call(*[ServerException(str(n)) for n in range(1, 9)])

    with pytest.raises(ServerException) as caught:
        await retrying(call, policy, what="x", sleep=sleep)
    assert call.made == made
    assert caught.value.message == str(made)


async def test_the_caller_may_say_what_passes(sleep):
    call = Call(LimitExceededException("quota"))

    assert await retrying(call, RetryPolicy(BACKOFF), what="x", sleep=sleep, transient=lambda _: True) == "done"


async def test_jitter_comes_from_the_given_source(slept, sleep):
    jittery = Backoff(first=1.0, cap=5.0, factor=2.0, jitter=0.5)
    await retrying(Call(Unreachable("x")), RetryPolicy(jittery), what="x", sleep=sleep, source=random.Random(7))

    assert slept == [1 + 0.5 * random.Random(7).random()]


async def test_cancellation_is_not_a_failure_to_retry(sleep):
    call = Call(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await retrying(call, RetryPolicy(BACKOFF), what="x", sleep=sleep)
    assert call.made == 1
