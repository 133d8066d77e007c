"""``--apply``: planned, done once, done twice, taken back; and nothing outside the root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sexton.care.audit import applying
from sexton.care.audit.auditing import audit
from sexton.care.audit.rulebook import open_rulebook
from sexton.host.rootfs import Directory
from unitroot import ADMIN, ECS_AGENT, VENDOR, ecs_root, make_root

LOOPS = "[Service]\nExecStart=/usr/bin/docker run x\nRestart=always\nRestartSec=30\n"


def apply(top, shape="plain"):
    changes = applying.plan(audit(Directory(top), open_rulebook(shape)), Directory(top))
    applying.carry_out(changes, Directory(top))
    return changes


def picture(top):
    """Every file and link below /etc, with what it holds."""
    found = {}
    for here, _, names in os.walk(top / "etc"):
        for name in names:
            path = Path(here, name)
            found[path] = os.readlink(path) if path.is_symlink() else path.read_text()
    return found


def test_a_masked_unit_cannot_be_started_enabled_or_preset_again(tmp_path):
    top = ecs_root(tmp_path)
    apply(top)

    assert os.readlink(top / ADMIN / "ecs.service") == "/dev/null"
    assert not os.path.lexists(top / ADMIN / "multi-user.target.wants/ecs.service")
    assert "disable ecs.service\n" in (top / "etc/systemd/system-preset/00-sexton.preset").read_text()
    assert os.path.lexists(top / ADMIN / "multi-user.target.wants/docker.service")
    assert audit(Directory(top), open_rulebook("plain")).to_change == ()


def test_planning_changes_nothing_and_doing_it_twice_does_no_more(tmp_path):
    top = ecs_root(tmp_path)
    before = picture(top)
    applying.plan(audit(Directory(top), open_rulebook("plain")), Directory(top))
    assert picture(top) == before

    assert apply(top)
    after = picture(top)
    assert apply(top) == ()
    assert picture(top) == after


def test_it_can_be_taken_back_to_the_last_byte(tmp_path):
    top = ecs_root(tmp_path)
    before = picture(top)
    apply(top)
    applying.undo(Directory(top))

    assert picture(top) == before
    assert not (top / applying.RECORD.lstrip("/")).exists()
    assert applying.undo(Directory(top)) == ()


@pytest.mark.parametrize("after", range(4))
def test_killed_after_any_change_it_can_be_finished_or_taken_back(tmp_path, after):
    top = ecs_root(tmp_path)
    before = picture(top)
    tree = Directory(top)
    changes = applying.plan(audit(tree, open_rulebook("plain")), tree)
    assert len(changes) == 3
    applying._store(applying.Record(changes=changes), tree)  # what is there when it dies after so many changes
    for change in changes[:after]:
        applying._do(change, Directory(top))

    apply(top)
    assert audit(Directory(top), open_rulebook("plain")).to_change == ()
    applying.undo(Directory(top))
    assert picture(top) == before


def test_what_a_person_changed_since_stays(tmp_path):
    top = ecs_root(tmp_path)
    apply(top)
    mask = top / ADMIN / "ecs.service"
    mask.unlink()
    mask.write_text("[Service]\nExecStart=/bin/true\n")
    applying.undo(Directory(top))

    assert mask.read_text().startswith("[Service]")


def test_an_administrators_own_unit_gets_a_condition_that_never_holds_when_something_else_starts_it(tmp_path):
    top = make_root(
        tmp_path,
        {f"{ADMIN}/ecs.service": ECS_AGENT, "a.target": "[Unit]\nWants=ecs.service\n"},
        enabled=["a.target", "ecs.service"],
    )
    apply(top)

    assert "ConditionPathExists=!/" in (top / ADMIN / "ecs.service.d/00-sexton.conf").read_text()
    assert (top / ADMIN / "ecs.service").read_text() == ECS_AGENT


def test_a_fixed_unit_keeps_running_and_its_loop_can_end(tmp_path):
    top = make_root(tmp_path, {"app.service": LOOPS}, enabled=["app.service"])
    (top / "usr/bin/docker").write_text("")
    (top / "usr/bin/docker").chmod(0o755)
    apply(top)
    seen = audit(Directory(top), open_rulebook("plain"))

    assert seen.to_change == ()
    assert seen.unit("app.service").assessment.loop.endless == "limited"
    assert (top / ADMIN / "multi-user.target.wants/app.service").is_symlink()


def test_links_in_an_image_lead_nowhere_else(tmp_path):
    """An image whose /etc/systemd/system points out of it must not make us write there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    top = ecs_root(tmp_path / "root")
    inside = top / "outside"
    (top / "etc/systemd").rename(top / "etc/systemd-real")
    (top / "etc/systemd").symlink_to("/outside")
    (top / "etc/systemd-real").rename(inside)
    apply(top)

    assert os.listdir(outside) == []
    assert os.readlink(inside / "system/ecs.service") == "/dev/null"


def test_a_broken_record_is_named(tmp_path):
    top = make_root(tmp_path, files={applying.RECORD.lstrip("/"): "{"})
    with pytest.raises(applying.CannotApply, match=r"audit-applied\.json"):
        applying.undo(Directory(top))


def test_the_vendors_unit_itself_is_left_alone(tmp_path):
    top = ecs_root(tmp_path)
    apply(top)

    assert (top / VENDOR / "ecs.service").read_text() == ECS_AGENT
