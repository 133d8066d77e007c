"""The kernel's log, as far as it says who was killed for memory; anything else in it is passed over."""

from __future__ import annotations

from sexton.host.oomlog import Victim, victims

GROUP = "/ecs/t1/c0ffee"
# ruff: noqa: E501 - the kernel writes long lines
LOG = f"""6,1,1,-;Linux version 6
4,2,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/ecs/t1,task_memcg={GROUP},task=a, b,pid=11,uid=0
3,3,3,-;Memory cgroup out of memory: Killed process 11 (a, b) total-vm:1kB, anon-rss:2048kB, file-rss:0kB, UID:0
4,4,4,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/x,task_memcg=/x/other,task=z,pid=12,uid=0
3,5,5,-;Memory cgroup out of memory: Killed process 12 (z) total-vm:1kB, anon-rss:9kB, file-rss:0kB, UID:0
4,6,6,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=c,mems_allowed=0,global_oom,task_memcg={GROUP},task=c,pid=13,uid=0
"""


def test_victims_of_one_container_in_order(tmp_path):
    (tmp_path / "kmsg").write_text(LOG)

    assert victims("c0ffee", tmp_path / "kmsg") == [
        Victim("a, b", 11, GROUP, by_limit=True, resident=2048 * 1024),
        Victim("c", 13, GROUP, by_limit=False),
    ]
    assert victims("deadbeef", tmp_path / "kmsg") == []


def test_no_log_is_no_failure(tmp_path):
    assert victims("x", tmp_path / "none") == []
