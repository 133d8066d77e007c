"""What is still to be told to an agent: everything once, again only when it was lost or has changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sexton.control.link.delivery import RESEND_AFTER, TASKS_PER_MESSAGE, Delivery


def test_a_task_is_sent_once_and_again_when_what_is_wanted_changes():
    delivery = Delivery()
    assert delivery.due([("t", "RUNNING")], 0.0) == ["t"]
    delivery.sent([("t", "RUNNING")], "m1", 0.0)
    assert delivery.due([("t", "RUNNING")], 1.0) == []
    assert delivery.due([("t", "STOPPED")], 1.0) == ["t"]


def test_what_goes_unacknowledged_is_sent_again_and_what_is_acknowledged_is_not():
    delivery = Delivery()
    delivery.sent([("a", "RUNNING")], "m1", 0.0)
    delivery.sent([("b", "RUNNING")], "m2", 0.0)
    delivery.acknowledge("m1")

    wishes = [("a", "RUNNING"), ("b", "RUNNING")]
    assert delivery.waiting()
    assert delivery.due(wishes, RESEND_AFTER) == ["b"]
    delivery.acknowledge("m2")
    assert not delivery.waiting()
    assert delivery.due(wishes, 10 * RESEND_AFTER) == []


def test_an_acknowledgement_of_an_older_message_does_not_count_for_the_newer_wish():
    delivery = Delivery()
    delivery.sent([("t", "RUNNING")], "m1", 0.0)
    delivery.sent([("t", "STOPPED")], "m2", 0.0)
    delivery.acknowledge("m1")

    assert delivery.waiting()


def test_a_forgotten_task_is_not_waited_for():
    delivery = Delivery()
    delivery.sent([("t", "RUNNING")], "m1", 0.0)
    delivery.forget("t")
    delivery.acknowledge("m1")

    assert not delivery.waiting()


@given(st.integers(0, 50))
def test_everything_is_told_in_messages_of_bounded_size(count):
    delivery = Delivery()
    wishes = [(f"t{number}", "RUNNING") for number in range(count)]
    told = []
    while due := delivery.due(wishes, 0.0):
        assert len(due) <= TASKS_PER_MESSAGE
        delivery.sent([(task, "RUNNING") for task in due], f"m{len(told)}", 0.0)
        told += due

    assert told == [task for task, _ in wishes]
