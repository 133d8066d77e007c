"""Why two hosts end differently: the unit and the gate are named, the worst first."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.care.audit.auditing import audit
from sexton.care.audit.lockfile import BadLock, is_lock, lock_text, make_lock, read_lock, write_lock
from sexton.care.audit.rulebook import open_rulebook
from sexton.core.lock import Difference, Lock, LockedUnit, Outcome, drift
from sexton.host.rootfs import Directory
from unitroot import ADMIN, ECS_AGENT, VENDOR, ecs_root, make_root

BOOTSTRAP = (
    "[Unit]\nBefore=ecs.service\n[Service]\nType=oneshot\nExecStart=/opt/bootstrap/join\n"
    "[Install]\nWantedBy=multi-user.target\n"
)
AGENT = ECS_AGENT.replace("After=docker", "Requires=bootstrap.service\nAfter=bootstrap.service docker")


def lock_of(top: Path, shape: str = "ray", states: dict[str, str] | None = None) -> Lock:
    return make_lock(audit(Directory(top), open_rulebook(shape)), states)


def difference(found: tuple[Difference, ...], unit: str) -> Difference:
    return next(one for one in found if one.unit == unit)


def zone(top: Path, *, script: bool) -> Path:
    """One zone's host: the vendor's agent waits for our bootstrap, whose script one zone's build lost."""
    made = make_root(
        top,
        {"ecs.service": AGENT, "bootstrap.service": BOOTSTRAP},
        enabled=["ecs.service", "bootstrap.service", "docker.service"],
    )
    if script:
        (made / "opt/bootstrap").mkdir(parents=True)
        (made / "opt/bootstrap/join").write_text("#!/bin/sh\n")
        (made / "opt/bootstrap/join").chmod(0o755)
    return made


def test_the_healthy_zone_that_was_healthy_by_a_second_bug(tmp_path):
    found = drift(lock_of(zone(tmp_path / "a", script=True)), lock_of(zone(tmp_path / "b", script=False)))
    agent = difference(found, "ecs.service")

    assert (agent.was, agent.now) == ("starts, and can loop for ever", "held back")
    assert agent.why[0].startswith(
        "bootstrap order: in the second it waits for bootstrap.service, which does not start"
    )
    assert "its program /opt/bootstrap/join is missing" in agent.why[0]
    assert agent.warning == (
        "the second is spared by that alone, not by being sound: "
        "repairing it would start ecs.service there and make it like the first"
    )
    assert found[0].outcome


def test_on_live_hosts_a_bootstrap_that_failed_explains_it_too(tmp_path):
    top = zone(tmp_path, script=True)
    sick = lock_of(top, states={"ecs.service": "auto-restart", "bootstrap.service": "active"})
    spared = lock_of(top, states={"ecs.service": "inactive", "bootstrap.service": "failed: exit-code"})
    agent = difference(drift(sick, spared), "ecs.service")

    assert "bootstrap.service, which does not start: it is failed: exit-code" in agent.why[0]
    assert agent.warning


def test_a_condition_that_one_host_does_not_meet(tmp_path):
    gated = ECS_AGENT.replace("[Service]", "ConditionPathExists=/etc/ecs/joined\n[Service]")
    first, second = ecs_root(tmp_path / "a", gated), ecs_root(tmp_path / "b", gated)
    (first / "etc/ecs/joined").write_text("")
    agent = difference(drift(lock_of(first), lock_of(second)), "ecs.service")

    assert (agent.was, agent.now) == ("starts, and can loop for ever", "gated")
    assert agent.why[0] == "condition: ConditionPathExists=/etc/ecs/joined is not met in the second"
    assert "spared by that alone" in agent.warning


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda top: (top / ADMIN / "multi-user.target.wants/ecs.service").unlink(),
            "started by: only in the first: link: multi-user.target.wants "
            "(/etc/systemd/system/multi-user.target.wants/ecs.service)",
        ),
        (
            lambda top: (top / ADMIN / "ecs.service").symlink_to("/dev/null"),
            "mask: none -> /etc/systemd/system/ecs.service",
        ),
        (
            lambda top: (top / VENDOR / "ecs.service").write_text(ECS_AGENT + "\n[Unit]\nAfter=late.service\n"),
            "ordered after: only in the second: late.service",
        ),
        (
            lambda top: (top / "usr/libexec/amazon-ecs-init").unlink(),
            "missing: only in the second: its program /usr/libexec/amazon-ecs-init is missing",
        ),
        (
            lambda top: (top / VENDOR / "ecs.service").write_text(ECS_AGENT.replace("10s", "11s")),
            "settings: they differ",
        ),
    ],
)
def test_every_kind_of_difference_is_named(tmp_path, change, why):
    first, second = ecs_root(tmp_path / "a"), ecs_root(tmp_path / "b")
    change(second)

    assert any(one.startswith(why) for one in difference(drift(lock_of(first), lock_of(second)), "ecs.service").why)


def test_a_preset_that_changed_is_named(tmp_path):
    first, second = ecs_root(tmp_path / "a"), ecs_root(tmp_path / "b")
    preset = second / "etc/systemd/system-preset/10.preset"
    preset.parent.mkdir()
    preset.write_text("enable ecs.service\n")

    (why,) = difference(drift(lock_of(first), lock_of(second)), "ecs.service").why
    assert why == "preset: no rule: enable -> enable ecs.service (/etc/systemd/system-preset/10.preset:1)"


def test_two_builds_of_one_image_agree(tmp_path):
    assert drift(lock_of(ecs_root(tmp_path / "a")), lock_of(ecs_root(tmp_path / "b"))) == ()


def test_a_lock_is_text_that_reads_back_as_itself_and_is_sorted(tmp_path):
    lock = lock_of(ecs_root(tmp_path / "root"))
    path = tmp_path / "lock.toml"
    write_lock(lock, path)

    assert is_lock(path)
    assert read_lock(path) == lock
    tables = [line for line in path.read_text().splitlines() if line.startswith("[units.")]
    assert tables == sorted(tables)
    assert lock_text(lock) == path.read_text()


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.builds(
            LockedUnit,
            outcome=st.sampled_from(list(Outcome)),
            gates=st.lists(st.text()).map(tuple),
            fragment=st.text(),
            state=st.text(),
        ),
        max_size=3,
    )
)
def test_whatever_names_and_values_are_a_lock_reads_back(tmp_path_factory, units):
    lock = Lock(shape="x", default_target="y", units=units)
    path = tmp_path_factory.mktemp("lock") / "lock"
    write_lock(lock, path)

    assert read_lock(path) == lock
    assert drift(lock, lock) == ()


def test_a_file_that_is_no_lock_is_refused_by_name(tmp_path):
    path = tmp_path / "x"
    path.write_text("schema = 1\n")
    with pytest.raises(BadLock, match="make one with sexton audit --lock"):
        read_lock(path)
