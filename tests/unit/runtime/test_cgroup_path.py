"""Both conventions for where a container's cgroup is."""

from __future__ import annotations

import pytest

from sexton.runtime.cgroup_path import container_cgroup


@pytest.mark.parametrize(
    ("parent", "driver", "path"),
    [
        ("", "cgroupfs", "/docker/abc"),
        ("/ecs/t1", "cgroupfs", "/ecs/t1/abc"),
        ("ecs/t1/", "cgroupfs", "/ecs/t1/abc"),
        ("", "systemd", "/system.slice/docker-abc.scope"),
        ("ecstasks-t1.slice", "systemd", "/ecstasks.slice/ecstasks-t1.slice/docker-abc.scope"),
        ("/ecstasks.slice/ecstasks-t1.slice", "systemd", "/ecstasks.slice/ecstasks-t1.slice/docker-abc.scope"),
        ("a-b-c.slice", "systemd", "/a.slice/a-b.slice/a-b-c.slice/docker-abc.scope"),
        ("-.slice", "systemd", "/docker-abc.scope"),
    ],
)
def test_where_the_cgroup_is(parent: str, driver: str, path: str) -> None:
    assert container_cgroup("abc", parent, driver) == path
