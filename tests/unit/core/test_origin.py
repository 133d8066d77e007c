"""Zombies by origin: what births tell is told, what nobody saw stays empty, and every zombie counts once."""

from __future__ import annotations

from sexton.core.origin import Known, origins
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
