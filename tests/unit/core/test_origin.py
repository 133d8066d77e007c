"""Zombies by origin: what births tell is told, what nobody saw stays empty, and every zombie counts once."""

from __future__ import annotations

import tracemalloc

from sexton.core.origin import Known, Roll, origins
from sexton.core.zombie import Group


def zombie(path: str) -> Group:
    return Group(1, path.encode(), True, 0, 1, 1, 0, 0, 1, 0, 0)


def ident(number: int) -> str:
    return f"{number:012x}" + "0" * 52


LOOP = [zombie(f"/docker/{ident(number)}") for number in range(70)]
UNIT = [zombie("/system.slice/nightly.service/run-1")] * 20
UNSEEN = [zombie(f"/docker/{ident(number)}") for number in range(100, 110)]
AGENT = Known(name="ecs-agent", image="amazon/amazon-ecs-agent:latest", unit="ecs.service", seen="asked")
BIRTHS = {ident(number)[:12]: AGENT for number in range(70)}


def test_the_whole_chain_is_told_where_it_is_known() -> None:
    seen = origins([*UNIT, *LOOP, *UNSEEN], BIRTHS, {"ecs.service": "amazon-ecs-init"}.get)  # type: ignore[arg-type]

    assert [(one.zombies, one.share) for one in seen] == [(70, 0.7), (20, 0.2), (10, 0.1)]
    assert seen[0].says == (
        "70 containers below /docker, image amazon/amazon-ecs-agent:latest, named ecs-agent, "
        "asked for by ecs.service, shipped by package amazon-ecs-init"
    )
    assert seen[1].says == "unit nightly.service"
    assert seen[2].says == "10 containers below /docker"


def test_without_births_it_is_what_paths_tell() -> None:
    seen = origins([*LOOP, *UNSEEN], {})

    assert [(one.zombies, one.image, one.unit) for one in seen] == [(80, "", "")]


def test_no_zombies_have_no_origin() -> None:
    assert origins([], BIRTHS) == ()


def test_one_container_that_dies_again_and_again_is_one() -> None:
    restarted = [zombie(f"/docker/{ident(number % 2)}") for number in range(60)]

    (seen,) = origins([*restarted, *UNIT][:60], {})

    assert (seen.zombies, seen.ids, seen.example) == (60, 2, ident(0))


def test_a_roll_knows_what_it_was_told_of_each_container() -> None:
    roll = Roll()
    for number in range(1_000):
        roll.learn(ident(number), Known(name=f"web-{number}", image=("shop/web", "shop/db")[number % 2]))
    roll.learn("not-a-number", AGENT)
    roll.learn("12", AGENT)

    assert [roll.get(ident(number)[:12]) for number in (0, 999)] == [
        Known(name="web-*", image="shop/web"),
        Known(name="web-*", image="shop/db"),
    ]
    assert roll.get(ident(1_000)[:12]) is None
    roll.learn(ident(1_000), AGENT)
    assert roll.get(ident(1_000)[:12]) == AGENT


def test_the_account_that_knows_who_asked_is_the_one_that_counts() -> None:
    silent = Known(name="ecs-agent", image="amazon/amazon-ecs-agent:latest")
    for told in ((silent, AGENT, silent), (AGENT, silent)):
        roll = Roll()
        for known in told:
            roll.learn(ident(1), known)

        assert roll.get(ident(1)[:12]) == AGENT


def test_makers_of_very_many_zombies_are_told_without_keeping_them() -> None:
    """A hundred bytes for each would be megabytes of a program that runs for months."""
    many = 20_000
    roll = Roll()
    for number in range(many):
        roll.learn(ident(number), AGENT)
    origins(LOOP, roll)

    tracemalloc.start()
    (seen,) = origins((zombie(f"/docker/{ident(number)}") for number in range(many)), roll)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (seen.zombies, seen.ids, seen.image) == (many, many, AGENT.image)
    assert peak < 64 * many
