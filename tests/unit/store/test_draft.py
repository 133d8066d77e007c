"""A draft decides each request after those before it, and leaves the image alone."""

from __future__ import annotations

import pytest

from sexton.store.contract import Change, Compare, Delete, KeyValue, Put, StoreError, TxnResult
from sexton.store.draft import Draft
from sexton.store.image import Image, Lease


def image() -> Image:
    return Image([KeyValue("a", b"0", 3, 7), KeyValue("leased", b"", 5, 5, 1)], {1: Lease(10.0, 20.0)}, 7, 1)


def test_conditions_are_judged_after_the_requests_before_them() -> None:
    draft = Draft(image())
    results = [draft.txn([Compare("a", expected)], [Put("a", b"%d" % expected)]) for expected in (7, 7, 8)]

    assert results == [TxnResult(True, 8), TxnResult(False, 8), TxnResult(True, 9)]


def test_the_commit_is_the_sum_and_the_history_every_step() -> None:
    draft = Draft(image())
    draft.txn([], [Put("b", b"1")])
    draft.txn([], [Put("b", b"2"), Delete("a")])
    draft.txn([], [Put("a", b"new")])
    commit = draft.commit()

    assert commit is not None
    assert commit.records == {"b": KeyValue("b", b"2", 8, 9), "a": KeyValue("a", b"new", 10, 10)}
    assert commit.revision == 10
    assert commit.history == (
        (Change("b", b"1", 8),),
        (Change("b", b"2", 9), Change("a", None, 9)),
        (Change("a", b"new", 10),),
    )


def test_the_image_does_not_change() -> None:
    before = image()
    draft = Draft(before)
    draft.txn([], [Put("a", b"new"), Put("b", b"")])
    draft.revoke(1)
    draft.grant(1.0, now=0.0)

    assert before.range("", "", 0) == image().range("", "", 0)
    assert (before.leases, before.revision, before.last_lease) == ({1: Lease(10.0, 20.0)}, 7, 1)


def test_requests_that_change_nothing_need_no_commit() -> None:
    draft = Draft(image())
    draft.txn([Compare("a", 1)], [Put("a", b"")])
    draft.txn([], [Delete("absent")])
    draft.revoke(99)
    draft.expire(now=19.0)
    draft.keep_alive(1, now=20.0)

    assert draft.commit() is None


def test_a_lease_takes_the_keys_of_the_same_group_with_it_and_spares_those_that_left() -> None:
    draft = Draft(image())
    draft.txn([], [Put("late", b"", lease=1), Put("leased", b"")])
    draft.revoke(1)
    commit = draft.commit()

    assert commit is not None
    assert commit.records["late"] is None
    assert commit.records["leased"] == KeyValue("leased", b"", 5, 8)
    assert commit.leases == {1: None}


def test_a_lease_granted_in_the_same_group_can_be_used_kept_and_expired() -> None:
    draft = Draft(image())
    lease = draft.grant(1.0, now=0.0)
    draft.txn([], [Put("key", b"", lease=lease)])

    assert draft.keep_alive(lease, now=0.5)
    assert draft.expire(now=1.4) == 0
    assert draft.expire(now=1.5) == 1
    with pytest.raises(StoreError, match="has ended"):
        draft.txn([], [Put("key", b"", lease=lease)])
