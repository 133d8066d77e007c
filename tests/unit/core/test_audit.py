"""The audit's verdicts, on whole small roots: what a shape offers decides about the same image."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sexton.care.audit.auditing import Audit, Audited, audit
from sexton.care.audit.rulebook import SHIPPED, open_rulebook
from sexton.core.audit import Verdict
from sexton.core.installed import Way
from sexton.host.rootfs import Directory
from unitroot import ADMIN, ECS_AGENT, ECS_AGENT_RPM, ecs_root, make_root

ROOT = Path(__file__).parents[3]


def look(top, shape="plain", *, live=False) -> Audit:
    return audit(Directory(top), open_rulebook(shape), live=live)


def unit(seen: Audit, name: str) -> Audited:
    found = seen.unit(name)
    assert found is not None
    return found


@pytest.mark.parametrize("shape", ["kubernetes", "ray", "plain"])
def test_the_agent_that_debian_ships_loops_for_ever_and_cannot_work_without_a_cluster(tmp_path, shape):
    found = unit(look(ecs_root(tmp_path), shape), "ecs.service").assessment

    assert found.verdict is Verdict.MASK
    assert found.reasons[0] == "loops for ever, cannot work here"
    said = "\n".join(found.reasons)
    assert "no Amazon ECS cluster to join" in said
    assert "/etc/ecs/ecs.config is empty" in said
    assert "the limit never trips" in said
    assert "/var/log/ecs" in said


def test_for_ecs_it_is_kept_and_nothing_else_changes(tmp_path):
    seen = look(ecs_root(tmp_path), "ecs")

    assert seen.to_change == ()
    assert "RestartPreventExitStatus=5 would end its hopeless turns" in " ".join(
        unit(seen, "ecs.service").assessment.notes
    )


def test_with_the_exit_status_excepted_its_launcher_still_loops_inside(tmp_path):
    found = unit(look(ecs_root(tmp_path, ECS_AGENT_RPM), "plain"), "ecs.service").assessment

    assert found.verdict is Verdict.MASK
    assert any("its restart counter 0" in reason for reason in found.reasons)


def test_the_agent_is_known_by_what_it_runs_whatever_it_is_called(tmp_path):
    top = make_root(tmp_path, {"vendor-thing.service": ECS_AGENT}, enabled=["vendor-thing.service"])

    assert unit(look(top), "vendor-thing.service").assessment.verdict is Verdict.MASK


def test_a_unit_that_is_held_back_by_a_condition_alone_is_banished_all_the_same(tmp_path):
    gated = ECS_AGENT.replace("[Service]", "ConditionPathExists=/etc/ecs/joined\n[Service]")
    found = unit(look(ecs_root(tmp_path, gated)), "ecs.service").assessment

    assert found.verdict is Verdict.MASK
    assert any("held back today by ConditionPathExists=/etc/ecs/joined alone" in note for note in found.notes)


def test_an_administrators_own_unit_is_disabled_not_masked(tmp_path):
    top = make_root(tmp_path, {f"{ADMIN}/ecs.service": ECS_AGENT}, enabled=["ecs.service"])

    assert unit(look(top), "ecs.service").assessment.verdict is Verdict.DISABLE


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        ("ExecStart=/opt/gone\nRestart=always\nRestartSec=5", Verdict.MASK, "its program /opt/gone is missing"),
        ("ExecStart=/opt/gone", Verdict.FIX, "fails at each start"),
        ("ExecStart=/bin/true\nEnvironmentFile=/etc/gone", Verdict.FIX, "its environment file /etc/gone is missing"),
        ("ExecStart=/bin/true\nUser=nobody-here", Verdict.FIX, "its user nobody-here does not exist"),
        ("ExecStart=/bin/true\nLoadCredential=key:/etc/gone", Verdict.FIX, "its credential key is missing: /etc/gone"),
        ("ExecStart=/etc/passwd", Verdict.FIX, "is not executable"),
        (
            "ExecStart=/usr/bin/docker run -v /srv:/x y\nRestart=always\nRestartSec=9",
            Verdict.FIX,
            "each turn makes a container with docker, which writes to /srv of the host",
        ),
    ],
)
def test_what_is_wrong_with_a_unit_without_a_rule(tmp_path, text, verdict, said):
    files = {"etc/passwd": "root:x:0:0::/:/bin/sh\n"}
    top = make_root(tmp_path, {"a.service": f"[Unit]\n[Service]\n{text}\n"}, enabled=["a.service"], files=files)
    (top / "usr/bin/docker").write_text("")
    (top / "usr/bin/docker").chmod(0o755)
    found = unit(look(top), "a.service").assessment

    assert found.verdict is verdict
    assert said in "\n".join(found.reasons)


@pytest.mark.parametrize(
    "text",
    [
        "ExecStart=-/opt/gone",
        "ExecStartPre=-/opt/gone\nExecStart=/bin/true",
        "ExecStart=/bin/true\nEnvironmentFile=-/etc/gone",
        "ExecStart=/bin/true\nEnvironmentFile=/run/made-at-boot",
        "ExecStart=/run/made-at-boot",
        "ExecStart=$PROGRAM",
        "ExecStart=true",  # found on the path
        "RootDirectory=/srv/root\nExecStart=/opt/in-there",
        "ExecStart=/bin/true\nUser=made",
        "ExecStart=/bin/true\nDynamicUser=yes\nUser=x",
        "ExecStart=/bin/true\nRestart=always\nRestartSec=1h",  # for ever, but it has what it needs and leaves nothing
        "ExecStart=/usr/sbin/dockerd\nRestart=always",
    ],
)
def test_healthy_units_are_kept(tmp_path, text):
    files = {"etc/passwd": "root:x:0:0::/:/bin/sh\n", "usr/lib/sysusers.d/a.conf": "u made - -\n"}
    top = make_root(tmp_path, {"a.service": f"[Unit]\n[Service]\n{text}\n"}, enabled=["a.service"], files=files)

    assert look(top).to_change == ()


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ("ConditionPathExists=/etc/there", True),
        ("ConditionPathExists=!/etc/there", False),
        ("ConditionPathExistsGlob=/etc/th*", True),
        ("ConditionPathIsDirectory=/etc", True),
        ("ConditionFileNotEmpty=/etc/empty", False),
        ("ConditionFileIsExecutable=/bin/true", True),
        ("ConditionDirectoryNotEmpty=/srv", False),
        ("AssertPathExists=/etc/gone", False),
        ("ConditionPathExists=/run/gone", None),
        ("ConditionVirtualization=vm", None),
    ],
)
def test_gates_are_met_unmet_or_unknown(tmp_path, condition, met):
    top = make_root(
        tmp_path,
        {"a.service": f"[Unit]\n{condition}\n[Service]\nExecStart=/bin/true\n"},
        enabled=["a.service"],
        files={"etc/there": "x", "etc/empty": ""},
    )
    (gate,) = unit(look(top), "a.service").assessment.gates

    assert gate.met is met


def test_of_conditions_with_a_bar_one_is_enough(tmp_path):
    text = "[Unit]\nConditionPathExists=|/etc/gone\nConditionPathExists=|/bin/true\n[Service]\nExecStart=/bin/true\n"
    (gate,) = unit(look(make_root(tmp_path, {"a.service": text}, enabled=["a.service"])), "a.service").assessment.gates

    assert gate.met is True


def test_a_file_that_is_missing_behind_an_unmet_condition_is_no_fault(tmp_path):
    text = "[Unit]\nConditionPathExists=/opt/gone\n[Service]\nExecStart=/opt/gone\n"

    assert look(make_root(tmp_path, {"a.service": text}, enabled=["a.service"])).to_change == ()


def test_on_a_running_host_what_is_missing_below_run_is_missing(tmp_path):
    top = make_root(tmp_path, {"a.service": "[Service]\nExecStart=/run/gone\n"}, enabled=["a.service"])

    assert [one.name for one in look(top, live=True).to_change] == ["a.service"]


def test_every_unit_says_where_it_came_from(tmp_path):
    seen = look(ecs_root(tmp_path))
    origins = {origin.way: origin for origin in unit(seen, "ecs.service").origins}

    assert origins[Way.LINK].path == f"/{ADMIN}/multi-user.target.wants/ecs.service"
    assert origins[Way.PRESET].by == "no rule: enable"


@pytest.mark.parametrize("shape", SHIPPED)
def test_the_base_alone_needs_no_change(tmp_path, shape):
    assert look(make_root(tmp_path, enabled=["docker.service"]), shape).to_change == ()


@pytest.mark.parametrize("shape", SHIPPED)
def test_the_units_that_we_ship_pass_our_own_audit(tmp_path, shape):
    """Whoever looks after crash loops must not ship one."""
    own = {path.name: path.read_text() for path in sorted((ROOT / "packaging").glob("*.service"))}
    top = make_root(tmp_path, own, enabled=own)
    (top / "usr/bin/sexton").write_text("")
    (top / "usr/bin/sexton").chmod(0o755)
    seen = look(top, shape)

    assert set(own) == {"sexton-agent.service", "sexton-care.service"}
    assert seen.to_change == ()
    assert [name for name in own if unit(seen, name).assessment.loops_for_ever] == []


@pytest.mark.timeout(60)
def test_five_hundred_units_in_under_two_seconds(tmp_path):
    many = {f"unit{number}.service": ECS_AGENT.replace("amazon-ecs-init", "thing") for number in range(500)}
    top = make_root(tmp_path, many, enabled=many)
    begun = time.process_time()
    seen = look(top)

    assert len(seen.units) >= 500
    assert time.process_time() - begun < 2.0
