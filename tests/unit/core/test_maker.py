"""From the path a cgroup had to who made it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.maker import Maker, MakerKind, maker_of, shares
from sexton.core.zombie import Group

HEX = "0123456789abcdef" * 4
TASK = "0123456789abcdef0123456789abcdef"
POD = "11111111-2222-3333-4444-555555555555"
IN_SLICE = f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD.replace('-', '_')}.slice"

UNIT, ECS, PODS, CONTAINER, GROUP = MakerKind


@pytest.mark.parametrize(
    ("path", "maker"),
    [
        ("/system.slice/nightly.service", Maker(UNIT, "nightly.service")),
        ("/system.slice/nightly.service/worker-7", Maker(UNIT, "nightly.service")),
        ("/system.slice/system-job.slice/job@17.service", Maker(UNIT, "job@17.service")),
        ("/user.slice/user-0.slice/session-31.scope", Maker(UNIT, "session-*.scope")),
        (f"/docker/{HEX}", Maker(CONTAINER, "/docker", HEX)),
        (f"/system.slice/docker-{HEX}.scope", Maker(CONTAINER, "/system.slice", HEX)),
        (f"/machine.slice/libpod-{HEX}.scope/container", Maker(CONTAINER, "/machine.slice", HEX)),
        (f"/system.slice/docker.service/{HEX}", Maker(CONTAINER, "/system.slice/docker.service", HEX)),
        (f"/docker/{HEX}/system.slice/ecs.service", Maker(UNIT, "ecs.service", HEX)),
        (f"/ecs/{TASK}/{HEX}", Maker(ECS, "/ecs", TASK)),
        (f"/ecs/{TASK}", Maker(ECS, "/ecs", TASK)),
        (f"/ecstasks.slice/ecstasks-{TASK}.slice/docker-{HEX}.scope", Maker(ECS, "/ecstasks.slice", TASK)),
        (f"/kubepods/burstable/pod{POD}/{HEX}", Maker(PODS, "/kubepods/burstable", POD)),
        (f"{IN_SLICE}/cri-containerd-{HEX}.scope", Maker(PODS, IN_SLICE.rpartition("/")[0], POD)),
        ("/batch/run-0017", Maker(GROUP, "/batch/run-*")),
        ("/alone", Maker(GROUP, "/alone")),
        ("/ecs/not-a-task", Maker(GROUP, "/ecs/not-a-task")),
        ("/podium/7", Maker(GROUP, "/podium/*")),
    ],
)
def test_names_tell_the_maker(path: str, maker: Maker) -> None:
    assert maker_of(path) == maker


def zombie(path: str, pages: int = 1) -> Group:
    return Group(1, path.encode(), True, 0, pages, pages, 0, 0, pages, 0, 0)


def test_a_loop_of_containers_is_one_maker() -> None:
    loop = [zombie(f"/docker/{number:064x}") for number in range(70)]
    unit = [zombie("/system.slice/nightly.service", pages=2) for _ in range(20)]
    task = [zombie(f"/ecs/{TASK}/{number:064x}") for number in range(10)]

    seen = shares([*task, *unit, *loop])

    assert [(share.says, share.zombies, share.share, share.pages) for share in seen] == [
        ("70 containers below /docker", 70, 0.7, 70),
        ("unit nightly.service", 20, 0.2, 40),
        (f"ECS task {TASK} below /ecs", 10, 0.1, 10),
    ]


def test_no_zombies_have_no_makers() -> None:
    assert shares([]) == ()


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12)
PARTS = st.lists(st.one_of(NAMES, st.sampled_from([HEX, "ecs", TASK, "a.service", f"docker-{HEX}.scope"])), max_size=6)


@given(st.lists(PARTS, min_size=1, max_size=30))
def test_every_zombie_is_counted_once(paths: Sequence[Sequence[str]]) -> None:
    seen = shares([zombie("/" + "/".join(parts)) for parts in paths])

    assert sum(share.zombies for share in seen) == len(paths)
    assert sum(share.share for share in seen) == pytest.approx(1.0)
    assert list(seen) == sorted(seen, key=lambda share: -share.zombies)
