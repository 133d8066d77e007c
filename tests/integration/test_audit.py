"""The audit on real Debian roots: no false alarm, the same view as systemd's own tool, and nothing that comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from richroot import FIRST_TIMEOUT, inside, over, rich_root
from sexton.care.audit.auditing import audit
from sexton.care.audit.rulebook import SHIPPED, open_rulebook
from sexton.core.unitfile import kind_of, template_of
from sexton.host.rootfs import Directory
from sexton.host.unitfiles import read_units
from systemd import rootfs
from unitroot import ECS_AGENT, ecs_root

pytestmark = pytest.mark.timeout(FIRST_TIMEOUT)
KINDS = {"service", "socket", "timer", "path"}


def sexton(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sexton", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def rich() -> Path:
    return rich_root()


@pytest.mark.parametrize("shape", SHIPPED)
def test_debian_roots_give_no_false_alarm(rich, shape):
    for top in (rootfs(), rich):
        seen = audit(Directory(top), open_rulebook(shape))

        assert [(one.name, one.assessment.reasons) for one in seen.to_change] == []


def test_a_root_full_of_services_is_audited_in_a_fraction_of_a_second(rich):
    begun = time.process_time()
    seen = audit(Directory(rich), open_rulebook("plain"))

    assert {"cron.service", "ssh.service", "docker.service", "postgresql.service"} <= {one.name for one in seen.units}
    assert time.process_time() - begun < 1.0


def test_what_is_enabled_is_what_systemd_itself_says_is(rich):
    listed = inside(rich, "systemctl", "list-unit-files", "--state=enabled", "--no-legend", "--plain").stdout
    theirs = {line.split()[0] for line in listed.splitlines() if kind_of(line.split()[0]) in KINDS}
    seen = audit(Directory(rich), open_rulebook("plain"))

    assert {template_of(one.name) or one.name for one in seen.units if one.reached.enabled} == theirs


def test_masks_and_aliases_are_those_that_systemd_itself_sees(rich):
    listed = inside(rich, "systemctl", "list-unit-files", "--no-legend", "--plain").stdout
    states = {line.split()[0]: line.split()[1] for line in listed.splitlines()}
    installed = read_units(Directory(rich))

    assert {name for name, unit in installed.units.items() if unit.mask} == {
        name for name, state in states.items() if state == "masked"
    }
    assert {name for name, state in states.items() if state == "alias" and "@" not in name} <= set(installed.aliases)


PACKAGE = {
    "DEBIAN/control": """
        Package: ecs-stand-in
        Version: {version}
        Architecture: all
        Maintainer: Tests <tests@example.com>
        Description: stand-in for the agent's package
        """,
    # What a package with a service does after unpacking, in the helper's own verbs.
    "DEBIAN/postinst": """
        #!/bin/sh
        set -e
        deb-systemd-helper unmask ecs.service >/dev/null || true
        if deb-systemd-helper --quiet was-enabled ecs.service; then
            deb-systemd-helper enable ecs.service >/dev/null
        else
            deb-systemd-helper update-state ecs.service >/dev/null
        fi
        """,
    "usr/lib/systemd/system/ecs.service": ECS_AGENT,
    "usr/libexec/amazon-ecs-init": "#!/bin/sh\nexit 5\n",
    "etc/ecs/ecs.config": "\n",
}


def build_package(folder: Path, version: str) -> Path:
    tree = folder / f"v{version}"
    for name, text in PACKAGE.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).strip().replace("{version}", version) + "\n")
        path.chmod(0o755 if text.strip().startswith("#!") else 0o644)
    package = folder / f"ecs-{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, capture_output=True)
    return package


@pytest.fixture
def image(rich, tmp_path) -> Iterator[Path]:
    """A vendor's image: Debian with Docker, and the agent's package."""
    with over(rich, tmp_path / "mnt") as top:
        install(top, build_package(tmp_path, "1.0"))
        yield top


def install(top: Path, package: Path) -> None:
    (top / "tmp" / package.name).write_bytes(package.read_bytes())
    done = inside(top, "dpkg", "-i", f"/tmp/{package.name}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shape", ["kubernetes", "ray", "plain"])
def test_the_command_flags_the_agent_for_every_shape_without_a_cluster(image, shape):
    done = sexton("audit", image, "--shape", shape, "--json")
    said = json.loads(done.stdout)

    assert done.returncode == 1
    assert {unit["name"]: unit["reasons"][0] for unit in said["units"] if unit["verdict"] != "keep"} == {
        "ecs.service": "loops for ever, cannot work here"
    }


def test_the_command_keeps_it_for_ecs(image):
    assert sexton("audit", image, "--shape", "ecs").returncode == 0


def test_no_package_upgrade_preset_or_enabling_brings_a_masked_unit_back(image, tmp_path):
    assert inside(image, "systemctl", "is-enabled", "ecs.service").stdout.strip() == "enabled"
    assert sexton("audit", image, "--shape", "ray", "--apply").returncode == 1
    assert inside(image, "systemctl", "is-enabled", "ecs.service").stdout.strip() == "enabled"  # that was a dry run
    sexton("audit", image, "--shape", "ray", "--apply", "--yes")

    for attempt in (
        lambda: install(image, build_package(tmp_path, "1.0")),
        lambda: install(image, build_package(tmp_path, "2.0")),
        lambda: inside(image, "systemctl", "preset-all"),
        lambda: inside(image, "systemctl", "preset", "ecs.service"),
        lambda: inside(image, "systemctl", "enable", "ecs.service"),
    ):
        attempt()
        assert inside(image, "systemctl", "is-enabled", "ecs.service").stdout.strip() == "masked"
        assert audit(Directory(image), open_rulebook("ray")).to_change == ()

    assert sexton("audit", image, "--shape", "ray", "--undo", "--yes").returncode == 0
    assert inside(image, "systemctl", "is-enabled", "ecs.service").stdout.strip() == "enabled"


def test_a_lock_of_two_builds_names_the_unit_that_came_along(rich, image, tmp_path):
    for name, top in (("clean", rich), ("vendor", image)):
        assert sexton("audit", top, "--shape", "ray", "--lock", tmp_path / name).returncode in (0, 1)
    done = sexton("drift", tmp_path / "clean", tmp_path / "vendor", "--json")
    said = json.loads(done.stdout)

    assert done.returncode == 1
    first, second = said["differences"]
    assert (first["unit"], first["was"], first["outcome"]) == ("ecs.service", "not there", True)
    assert (second["unit"], second["outcome"]) == ("docker.service", False)  # the agent pulls it in as well
    assert sexton("drift", tmp_path / "clean", rich, "--shape", "ray").returncode == 0


@pytest.mark.docker
def test_an_image_of_an_engine_is_audited_without_making_a_container(engine_session: PrivateEngine, tmp_path):
    top = ecs_root(tmp_path / "root")
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(top, arcname=".")
    engine_session.cli("import", str(tmp_path / "root.tar"), "vendor:1")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/mask.conf").write_text("[Unit]\nStartLimitIntervalSec=1h\n")
    (tmp_path / "build/Dockerfile").write_text(
        "FROM vendor:1\nCOPY mask.conf /etc/systemd/system/ecs.service.d/limit.conf\n"
    )
    engine_session.cli("build", "-q", "-t", "vendor:2", str(tmp_path / "build"))
    before = engine_session.cli("ps", "-aq")
    one = sexton("audit", "vendor:1", "--shape", "plain", "--docker-host", engine_session.url)
    two = sexton("audit", "vendor:2", "--shape", "plain", "--json", "--docker-host", engine_session.url)
    none = sexton("audit", "vendor:3", "--shape", "plain", "--docker-host", engine_session.url)

    assert (one.returncode, two.returncode, none.returncode) == (1, 1, 2)
    assert "loops for ever, cannot work here" in one.stdout
    (agent,) = (unit for unit in json.loads(two.stdout)["units"] if unit["name"] == "ecs.service")
    assert agent["drop_ins"] == ["/etc/systemd/system/ecs.service.d/limit.conf"]
    assert "has no image 'vendor:3'" in none.stderr
    assert engine_session.cli("ps", "-aq") == before


def test_a_wrong_call_is_said(tmp_path):
    assert sexton("audit", tmp_path, "--shape", "cube").returncode == 2
    assert sexton("audit", tmp_path, "--shape", "plain").returncode == 2  # no unit files: nothing was judged
    assert sexton("audit", "--shape", "plain").returncode == 2
    assert sexton("drift", tmp_path / "gone", tmp_path).returncode == 2


def test_what_may_not_be_read_is_said_and_nothing_is_concluded_from_it(tmp_path):
    """Another user's files, looked at without the right to: a private unit file, and a program behind a closed door."""
    top = ecs_root(tmp_path / "root")
    unit = "[Unit]\nConditionPathExists=/srv/closed/flag\n[Service]\nExecStart=/srv/closed/program\nRestart=always\n"
    (top / "usr/lib/systemd/system/behind.service").write_text(unit)
    (top / "usr/lib/systemd/system/private.service").write_text("[Service]\nExecStart=/gone\n")
    for name in ("behind.service", "private.service"):
        (top / "etc/systemd/system/multi-user.target.wants" / name).symlink_to(f"/usr/lib/systemd/system/{name}")
    closed = top / "srv/closed"
    closed.mkdir(parents=True)
    for path, mode in ((closed, 0o700), (top / "usr/lib/systemd/system/private.service", 0o600)):
        os.chown(path, 12345, 12345)
        path.chmod(mode)
    bare = [
        "setpriv",
        "--bounding-set",
        "-dac_override,-dac_read_search",
        "--inh-caps",
        "-dac_override,-dac_read_search",
    ]
    words = [sys.executable, "-m", "sexton", "audit", str(top), "--shape", "plain", "--json"]
    done = subprocess.run([*bare, *words], capture_output=True, text=True, timeout=60, check=False)
    said = json.loads(done.stdout)
    units = {unit["name"]: unit for unit in said["units"]}

    assert done.returncode == 1  # the agent is still seen
    assert units["ecs.service"]["verdict"] == "mask"
    assert [gate["met"] for gate in units["behind.service"]["gates"]] == [None]
    assert (units["behind.service"]["lacks"], units["private.service"]["lacks"]) == ([], [])
    assert any("private.service: Permission denied" in sentence for sentence in said["cannot_see"])
