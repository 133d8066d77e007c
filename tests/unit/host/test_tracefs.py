"""Lines of the kernel's trace, and where to find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.host.errors import Unreadable
from sexton.host.tracefs import Seen, find_tracefs, parse

LINES = b"""# tracer: nop
           mkdir-2594    [000] d..1.  2011.638529: cgroup_mkdir: root=4 id=3132197 level=1 path=/k1t
   systemd-udevd-77      [001] .....  2011.640000: cgroup_rmdir: root=4 id=18446744073709551615 level=2 path=/a b/c=d
     kworker/0:5-24632   [000] d..1.  2011.676050: cgroup_release: root=4 id=3132197 level=1 path=/k1t
     my-own tool-9  (-------) [010] d..1.  1.5: cgroup_mkdir: root=4 id=5 level=1 path=/old
CPU:1 [LOST 17 EVENTS]
           mkdir-25 torn
"""


def test_events_are_read_with_all_odd_names() -> None:
    found, lost = parse(LINES)

    assert [(event.what, event.id, event.path, event.by, event.pid) for event in found] == [
        (Seen.MADE, 3132197, "/k1t", "mkdir", 2594),
        (Seen.REMOVED, 18446744073709551615, "/a b/c=d", "systemd-udevd", 77),
        (Seen.RELEASED, 3132197, "/k1t", "kworker/0:5", 24632),
        (Seen.MADE, 5, "/old", "my-own tool", 9),
    ]
    assert found[0].at == 2011.638529
    assert lost == 17


@pytest.mark.parametrize("relative", ["sys/kernel/tracing", "sys/kernel/debug/tracing"])
def test_it_is_found_in_either_place(tmp_path: Path, relative: str) -> None:
    (tmp_path / relative / "events/cgroup/cgroup_mkdir").mkdir(parents=True)

    assert find_tracefs(tmp_path) == tmp_path / relative


def test_a_kernel_without_these_events_is_told_from_one_that_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not mounted"):
        find_tracefs(tmp_path)
    (tmp_path / "sys/kernel/tracing/events").mkdir(parents=True)
    with pytest.raises(Unreadable, match="no trace events of cgroups"):
        find_tracefs(tmp_path)
