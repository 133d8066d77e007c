"""Which failures of a call pass by themselves, and trying again for as long as they may.

``EcsClient`` makes each call once. Whoever wants persistence says so: ``retrying`` with a policy, so that every retry
in the program has visible delays, a cap and an end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import NoCredentials
from sexton.kit.retry import Backoff
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Codes by which AWS services say "not now". Those that begin with Throttl are taken as such without being listed.
_NOT_NOW = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "RequestThrottled",
        "RequestThrottledException",
        "ServerException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "TooManyRequestsException",
    }
)


class RetryPolicy(NamedTuple):
    """How long to keep trying: the delays, how many calls at most, how many seconds of waiting at most."""

    backoff: Backoff
    attempts: int | None = None
    patience: float | None = None


def is_transient(error: Exception) -> bool:
    """Whether the same call can succeed later with nothing changed by us."""
    match error:
        case EcsError():
            return (
                error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
                or error.status == HTTPStatus.TOO_MANY_REQUESTS
                or error.code in _NOT_NOW
                or error.code.startswith("Throttl")
            )
        case NoCredentials():
            return error.may_heal
        case _:
            return isinstance(error, Unreachable)


async def retrying(
    call: Callable[[], Awaitable[Answer]],
    policy: RetryPolicy,
    *,
    what: str,
    transient: Callable[[Exception], bool] = is_transient,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    source: random.Random | None = None,
) -> Answer:
    """Make the call until it succeeds, fails for good, or the policy ends; then the last failure is raised."""
    waited = 0.0
    for attempt, delay in enumerate(policy.backoff.delays(source), start=1):
        try:
            return await call()
        except Exception as error:
            spent = policy.attempts is not None and attempt >= policy.attempts
            late = policy.patience is not None and waited + delay > policy.patience
            if spent or late or not transient(error):
                raise
            log.warning(
                "call failed, will be tried again",
                extra={"call": what, "attempt": attempt, "delay": round(delay, 3), "cause": str(error)},
            )
        await sleep(delay)
        waited += delay
    raise AssertionError("a backoff gives delays for ever")
