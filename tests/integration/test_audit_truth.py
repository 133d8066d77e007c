"""The audit's reading of unit files, held against a running systemd that read the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.core.endless import can_loop
from sexton.core.installed import Installed, reach
from sexton.core.unitfile import kind_of, seconds
from sexton.host.rootfs import Directory
from sexton.host.unitfiles import read_units
from systemd import FIRST_BOOT_TIMEOUT, Systemd

pytestmark = pytest.mark.timeout(FIRST_BOOT_TIMEOUT)

UNITS = {
    "plain.service": "[Service]\nExecStart=/bin/sleep infinity\nRestart=on-failure\nRestartSec=1min 30s\n",
    "foo-bar-baz.service": (
        "[Unit]\nStartLimitIntervalSec=10\n[Service]\nExecStart=/bin/sleep \\\n# between\n  infinity\nRestart=always\n"
    ),
    "inst@.service": "[Unit]\nWants=plain.service\n[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n",
    "old.service": (
        "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nStartLimitInterval=77\nStartLimitBurst=9\n"
    ),
    "hidden.service": "[Service]\nExecStart=/bin/true\n",
}
DROP_INS = {
    "etc/systemd/system/foo-bar-baz.service.d/50.conf": "[Service]\nRestartSec=4\n",
    "etc/systemd/system/foo-bar-.service.d/40.conf": "[Service]\nRestartSec=3\n",
    "etc/systemd/system/foo-.service.d/90.conf": "[Service]\nRestartSec=6\n[Unit]\nStartLimitBurst=2\n",
    "run/systemd/system/foo-bar-baz.service.d/50.conf": "[Service]\nRestartSec=99\n",
    "usr/lib/systemd/system/foo-bar-baz.service.d/95.conf": "[Service]\nRestart=\nRestart=on-abort\n",
    "run/systemd/system/service.d/99.conf": "[Service]\nTimeoutStopSec=1\n",
    "run/systemd/system/inst@.service.d/1.conf": "[Service]\nRestartSec=5\n",
    "etc/systemd/system/inst@one.service.d/0.conf": "[Service]\nRestartSec=8\n",
    "etc/systemd/system/foo-.service.d/96-same.conf": "[Service]\nRestartSec=11\n",
    "run/systemd/system/foo-bar-baz.service.d/96-same.conf": "[Service]\nRestartSec=12\n",
}
LINKS = {
    "etc/systemd/system/alias.service": "/run/systemd/system/plain.service",
    "etc/systemd/system/hidden.service": "/dev/null",
    "etc/systemd/system/multi-user.target.wants/inst@one.service": "/run/systemd/system/inst@.service",
    "etc/systemd/system/plain.service.requires/foo-bar-baz.service": "/run/systemd/system/foo-bar-baz.service",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with Systemd(UNITS, tmp_path_factory.mktemp("systemd")) as running:
        for name, text in DROP_INS.items():
            path = running.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name, target in LINKS.items():
            path = running.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        running.systemctl("daemon-reload")
        yield running


@pytest.fixture(scope="module")
def installed(host: Systemd) -> Installed:
    return read_units(Directory(Path(host.root)))


def show(host: Systemd, unit: str) -> dict[str, str]:
    keys = (
        "FragmentPath,DropInPaths,Restart,RestartUSec,StartLimitIntervalUSec,StartLimitBurst,LoadState,Names,ExecStart"
    )
    said = host.systemctl("show", unit, "-p", keys).stdout
    return dict(line.split("=", 1) for line in said.splitlines())


def loaded_services(host: Systemd) -> list[str]:
    listed = host.systemctl("list-units", "--all", "--no-legend", "--plain", "--type=service").stdout
    rows = [line.split() for line in listed.splitlines()]
    return [row[0] for row in rows if row[1] == "loaded"]


def test_every_loaded_service_has_the_fragment_and_drop_ins_that_systemd_says(host, installed):
    for name in [*loaded_services(host), "foo-bar-baz.service", "inst@one.service", "old.service"]:
        theirs, ours = show(host, name), installed.unit(name)
        assert ours is not None, name
        assert merged(ours.fragment) == merged(theirs["FragmentPath"])
        assert [merged(path) for path in ours.drop_ins] == [merged(path) for path in theirs["DropInPaths"].split()], (
            name
        )


def merged(path: str) -> str:
    """On a system with one /usr both names lead to the same file."""
    return path if not path.startswith("/lib/") else f"/usr{path}"


def test_restart_settings_are_those_that_systemd_works_with(host, installed):
    checked = 0
    for name in [*loaded_services(host), "foo-bar-baz.service", "inst@one.service", "old.service", "plain.service"]:
        theirs, ours = show(host, name), installed.unit(name)
        assert ours is not None
        policy = ours.settings.value("Service", "Restart", "no")
        assert policy == theirs["Restart"], name
        if policy == "no":
            continue
        why = can_loop(ours, installed.defaults).why
        delay, interval = spoken(theirs["RestartUSec"]), spoken(theirs["StartLimitIntervalUSec"])
        assert f"RestartSec={delay:g} s, {theirs['StartLimitBurst']} starts in {interval:g} s" in why, name
        checked += 1
    assert checked >= 5


def spoken(text: str) -> float:
    said = seconds(text)
    assert said is not None, text
    return said


def test_a_mask_an_alias_and_an_instance_are_seen_alike(host, installed):
    assert show(host, "hidden.service")["LoadState"] == "masked"
    assert installed.units["hidden.service"].mask == "/etc/systemd/system/hidden.service"
    assert set(show(host, "alias.service")["Names"].split()) == {"plain.service", "alias.service"}
    assert installed.canonical("alias.service") == "plain.service"


def test_the_boot_reaches_what_systemd_says_it_reaches(host, installed):
    listed = host.systemctl("list-dependencies", "--all", "--plain", "--no-pager", "default.target").stdout
    theirs = {name for line in listed.splitlines() if kind_of(name := line.strip()) in ("service", "timer", "socket")}
    ours = {one.unit.name for one in reach(installed) if one.at_boot}
    known = {installed.canonical(name) for name in theirs if installed.unit(name) is not None}

    assert {"inst@one.service", "plain.service", "foo-bar-baz.service"} <= ours
    assert known - ours == set()
