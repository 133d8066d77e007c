"""Secrets stay hidden; a keyring asks in order, once for all, in time, and explains itself when it has nothing."""

from __future__ import annotations

import asyncio
import copy
import logging
import traceback

import pytest

from sexton.cloud.credentials import Credentials, Found, Keyring, NoCredentials, Unavailable

SECRET = "the-secret-itself"
TOKEN = "the-token-itself"


def pair(name="AKID", expires_at=None):
    return Credentials(name, SECRET, TOKEN, expires_at)


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


class Place:
    """A provider whose answers are set by the test; ``gate`` holds it back until it is opened."""

    def __init__(self, name, answer=None, refresh_after=None):
        self.name = name
        self.answer = answer
        self.refresh_after = refresh_after
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self):
        self.asked += 1
        await self.gate.wait()
        if self.answer is None:
            raise Unavailable(f"{self.name} is empty")
        if isinstance(self.answer, Exception):
            raise self.answer
        return Found(self.answer, self.refresh_after)


async def test_the_secret_never_shows(caplog):
    credentials = pair(expires_at=5.0)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("x").warning("%s %r", credentials, credentials, extra={"credentials": credentials})
        await Keyring([Place("first", pair())]).current()
    shown = [repr(credentials), str(credentials), f"{credentials}", f"{[credentials]!s:>9}", caplog.text]
    shown += [str(record.__dict__) for record in caplog.records]
    try:
        raise RuntimeError(credentials)
    except RuntimeError:
        shown.append(traceback.format_exc())

    for text in shown:
        assert SECRET not in text
        assert TOKEN not in text
    assert "AKID" in repr(credentials)
    with pytest.raises(AttributeError):
        copy.copy(credentials).secret_access_key = "other"


async def test_the_first_place_that_has_some_wins_and_is_asked_once():
    first, second, third = Place("first"), Place("second", pair("B")), Place("third", pair("C"))
    ring = Keyring([first, second, third], Clock())

    assert (await ring.current()).access_key_id == "B"
    assert (await ring.current()).access_key_id == "B"
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


async def test_nothing_anywhere_is_told_in_one_line():
    passing = Place("third", Unavailable("answered\n 503", may_heal=True))
    with pytest.raises(NoCredentials) as caught:
        await Keyring([Place("first"), Place("second"), passing]).current()

    assert str(caught.value) == (
        "cannot find AWS credentials: first (first is empty); second (second is empty); third (answered 503)."
        " Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role"
    )
    assert caught.value.may_heal
    with pytest.raises(NoCredentials) as final:
        await Keyring([Place("first")]).current()
    assert not final.value.may_heal


async def test_renewed_ahead_of_the_end_from_the_place_that_answered():
    clock, first, second = Clock(), Place("first"), Place("second", pair("B", 1000.0 + 3600))
    ring = Keyring([first, second], clock)
    await ring.current()

    clock.now += 3600 - 301
    await ring.current()
    assert second.asked == 1

    clock.now += 2
    second.answer = pair("B2", clock.now + 3600)
    assert (await ring.current()).access_key_id == "B2"
    assert (first.asked, second.asked) == (1, 2)


async def test_old_ones_serve_until_their_end_when_renewal_fails():
    clock, place = Clock(), Place("role", pair("A", 1000.0 + 3600))
    ring = Keyring([place], clock)
    await ring.current()
    place.answer = None

    clock.now += 3500
    assert (await ring.current()).access_key_id == "A"
    assert (await ring.current()).access_key_id == "A"
    assert place.asked == 2, "a failed renewal is not repeated at once"

    clock.now += 100
    with pytest.raises(NoCredentials):
        await ring.current()


async def test_expired_ones_are_passed_over():
    ring = Keyring([Place("stale", pair("A", 999.0)), Place("fresh", pair("B"))], Clock())

    assert (await ring.current()).access_key_id == "B"


async def test_read_again_after_the_interval_a_place_asks_for():
    clock, place = Clock(), Place("file", pair("A"), refresh_after=60.0)
    ring = Keyring([place], clock)
    await ring.current()
    place.answer = pair("B")

    clock.now += 59
    assert (await ring.current()).access_key_id == "A"
    clock.now += 2
    assert (await ring.current()).access_key_id == "B"


async def test_short_lived_ones_do_not_make_every_call_ask():
    clock, place = Clock(), Place("role", pair("A", 1060.0))
    ring = Keyring([place], clock)

    for _ in range(5):
        await ring.current()
    assert place.asked == 1


@pytest.mark.parametrize("answer", [pair(), None])
async def test_many_callers_share_one_flight_and_its_outcome(answer):
    place = Place("role", answer)
    place.gate.clear()
    ring = Keyring([place], Clock())
    callers = [asyncio.ensure_future(ring.current()) for _ in range(20)]
    await asyncio.sleep(0)
    place.gate.set()

    outcomes = await asyncio.gather(*callers, return_exceptions=True)

    assert place.asked == 1
    if answer is None:
        assert all(isinstance(outcome, NoCredentials) for outcome in outcomes)
        assert len(set(map(id, outcomes))) == 20
    else:
        assert outcomes == [answer] * 20


async def test_a_cancelled_caller_does_not_take_the_others_with_it():
    place = Place("role", pair())
    place.gate.clear()
    ring = Keyring([place], Clock())
    leader, follower = asyncio.ensure_future(ring.current()), asyncio.ensure_future(ring.current())
    await asyncio.sleep(0)
    leader.cancel()
    await asyncio.sleep(0)
    place.gate.set()

    assert await follower == pair()
    assert leader.cancelled()
    assert place.asked == 2


async def test_nobody_waits_for_a_renewal_while_the_old_ones_are_good():
    clock, place = Clock(), Place("role", pair("A", 1000.0 + 3600))
    ring = Keyring([place], clock)
    await ring.current()
    clock.now += 3400
    place.gate.clear()
    renewal = asyncio.ensure_future(ring.current())
    await asyncio.sleep(0)

    assert (await ring.current()).access_key_id == "A"

    place.gate.set()
    await renewal


async def test_forgetting_asks_again_but_only_for_the_ones_refused():
    place = Place("role", pair("A"))
    ring = Keyring([place], Clock())
    refused = await ring.current()
    place.answer = pair("B")

    ring.forget(refused)
    assert (await ring.current()).access_key_id == "B"
    ring.forget(refused)
    assert (await ring.current()).access_key_id == "B"
    assert place.asked == 2
