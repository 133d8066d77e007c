"""Who asked for a container is said when it is proved, and else not."""

from __future__ import annotations

from sexton.core.asker import FEWEST, Askers, Connected

AGENT = Connected("ecs.service", "/usr/libexec/amazon-ecs-init start")
KUBELET = Connected("kubelet.service", "/usr/bin/kubelet --config=x")


def test_a_command_that_names_the_container_is_proof() -> None:
    askers = Askers()
    cli = Connected("nightly.service", "docker run --name=report registry/report:1")

    told = askers.sighted("report", "registry/report:1", [AGENT, KUBELET, cli])

    assert told is not None
    assert told.unit == "nightly.service"
    assert askers.of("report", "registry/report:1") == told


def test_the_only_one_connected_each_time_is_told_after_a_few() -> None:
    askers = Askers()
    told = [askers.sighted(f"agent-{turn}", "agent:latest", [AGENT]) for turn in range(FEWEST)]

    assert told[:-1] == [None] * (FEWEST - 1)
    assert told[-1] is not None
    assert told[-1].unit == "ecs.service"


def test_of_two_who_are_always_connected_neither_is_blamed() -> None:
    askers = Askers()
    for turn in range(50):
        assert askers.sighted(f"agent-{turn}", "agent:latest", [AGENT, KUBELET]) is None


def test_one_who_was_away_once_is_out() -> None:
    askers = Askers()
    for turn in range(5):
        askers.sighted(f"agent-{turn}", "agent:latest", [AGENT, KUBELET] if turn else [AGENT])

    told = askers.of("agent-9", "agent:latest")
    assert told is not None
    assert told.unit == "ecs.service"


def test_kinds_are_apart_and_clients_of_no_unit_prove_nothing() -> None:
    askers = Askers()
    for turn in range(9):
        askers.sighted(f"web-{turn}", "web", [AGENT])
        assert askers.sighted(f"db-{turn}", "db", [Connected("", "docker run db")]) is None

    assert askers.of("db-1", "db") is None
    assert askers.of("web-1", "web") is not None
