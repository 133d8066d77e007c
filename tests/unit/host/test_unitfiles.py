"""Unit files of a root: found, ranked, merged and linked by the service manager's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.core.installed import Installed, Way, needs_started, preset_for, reach
from sexton.host.rootfs import Directory
from sexton.host.unitfiles import read_units
from unitroot import ADMIN, VENDOR, make_root

ONE = "[Service]\nExecStart=/bin/true\n"


def read(top: Path) -> Installed:
    return read_units(Directory(top))


def reached(installed: Installed) -> dict[str, set[Way]]:
    return {one.unit.name: {origin.way for origin in one.origins} for one in reach(installed)}


def test_the_directory_of_higher_rank_hides_the_lower(tmp_path):
    seen = read(make_root(tmp_path, {"a.service": ONE, f"{ADMIN}/a.service": "[Service]\nExecStart=/bin/other\n"}))

    assert seen.units["a.service"].fragment == f"/{ADMIN}/a.service"
    assert seen.units["a.service"].settings.value("Service", "ExecStart") == "/bin/other"


@pytest.mark.parametrize("mask", ["link", "empty"])
def test_masked_by_a_link_to_nothing_or_an_empty_file(tmp_path, mask):
    top = make_root(tmp_path, {"a.service": ONE}, enabled=["a.service"])
    path = top / ADMIN / "a.service"
    path.symlink_to("/dev/null") if mask == "link" else path.write_text("")

    assert read(top).units["a.service"].mask == f"/{ADMIN}/a.service"


def test_an_alias_is_its_target_with_the_links_of_both(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            {"real.service": ONE},
            links={
                f"{ADMIN}/other.service": f"/{VENDOR}/real.service",
                f"{ADMIN}/multi-user.target.wants/other.service": f"/{VENDOR}/real.service",
            },
        )
    )

    assert seen.canonical("other.service") == "real.service"
    assert seen.units["real.service"].aliases == ("other.service",)
    assert {Way.ALIAS, Way.LINK} <= reached(seen)["real.service"]


def test_drop_ins_of_all_ranks_in_the_order_of_their_names(tmp_path):
    def drop_in(value: str) -> str:
        return f"[Service]\nRestartSec={value}\nEnvironment=V={value}\n"

    seen = read(
        make_root(
            tmp_path,
            {"a-b.service": ONE},
            enabled=["a-b.service"],
            files={
                f"{VENDOR}/a-b.service.d/20-x.conf": drop_in("vendor20"),
                f"{ADMIN}/a-b.service.d/10-x.conf": drop_in("admin10"),
                f"{ADMIN}/a-.service.d/30-x.conf": drop_in("prefix30"),
                f"{VENDOR}/service.d/40-x.conf": drop_in("type40"),
                f"{VENDOR}/a-b.service.d/50-same.conf": drop_in("hidden"),
                f"{ADMIN}/a-b.service.d/50-same.conf": drop_in("shown50"),
                f"{ADMIN}/a-b.service.d/README": "not a drop-in",
            },
            links={f"{ADMIN}/a-b.service.d/60-gone.conf": "/dev/null"},
        )
    )
    unit = seen.units["a-b.service"]

    assert [one.value for one in unit.settings.all("Service", "Environment")] == [
        "V=admin10",
        "V=vendor20",
        "V=prefix30",
        "V=type40",
        "V=shown50",
    ]
    assert unit.settings.value("Service", "RestartSec") == "shown50"


def test_an_instance_comes_from_its_template_and_has_drop_ins_of_both(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            {"db@.service": "[Service]\nExecStart=/bin/true %i\n"},
            enabled=["db@main.service"],
            files={
                f"{ADMIN}/db@.service.d/1.conf": "[Service]\nRestartSec=1\n",
                f"{ADMIN}/db@main.service.d/2.conf": "[Service]\nRestartSec=2\n",
            },
        )
    )

    assert seen.units["db@main.service"].fragment == f"/{VENDOR}/db@.service"
    assert len(seen.units["db@main.service"].drop_ins) == 2
    assert "db@.service" not in seen.units


def test_a_masked_link_of_higher_rank_is_counted_once(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            {"a.service": ONE},
            links={
                f"{VENDOR}/multi-user.target.wants/a.service": "../a.service",
                f"{ADMIN}/multi-user.target.wants/a.service": "/dev/null",
            },
        )
    )

    assert "a.service" not in reached(seen)


@pytest.mark.parametrize(
    ("units", "way"),
    [
        ({"a.timer": "[Timer]\nOnBootSec=1\n[Install]\nWantedBy=multi-user.target\n", "a.service": ONE}, Way.TIMER),
        ({"a.socket": "[Socket]\nListenStream=1\nService=a.service\n", "a.service": ONE}, Way.SOCKET),
        ({"a.path": "[Path]\nPathExists=/x\n", "a.service": ONE}, Way.PATH),
        ({"a.target": "[Unit]\nWants=a.service\n", "a.service": ONE}, Way.DEPENDENCY),
    ],
)
def test_what_starts_a_unit(tmp_path, units, way):
    starter = next(name for name in units if name != "a.service")

    assert reached(read(make_root(tmp_path, units, enabled=[starter])))["a.service"] == {way}


def test_a_drop_in_that_pulls_a_unit_in_is_named(tmp_path):
    seen = read(
        make_root(
            tmp_path, {"a.service": ONE}, files={f"{ADMIN}/multi-user.target.d/x.conf": "[Unit]\nWants=a.service\n"}
        )
    )
    (origin,) = next(one.origins for one in reach(seen) if one.unit.name == "a.service")

    assert (origin.way, origin.path) == (Way.DROP_IN, f"/{ADMIN}/multi-user.target.d/x.conf")


def test_what_a_generator_made_at_boot_is_seen_as_such(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            {"run/systemd/generator/made.service": ONE},
            links={"run/systemd/generator/multi-user.target.wants/made.service": "../made.service"},
        )
    )

    assert seen.units["made.service"].fragment == "/run/systemd/generator/made.service"
    assert Way.GENERATOR in reached(seen)["made.service"]


def test_an_init_script_without_a_unit_is_made_one_as_the_generator_would(tmp_path):
    top = make_root(
        tmp_path,
        files={"etc/init.d/old": "#!/bin/sh\n", "usr/lib/systemd/system-generators/systemd-sysv-generator": ""},
        links={"etc/rc3.d/S01old": "../init.d/old", "etc/rc3.d/K01docker": "../init.d/docker"},
    )
    (top / "etc/init.d/old").chmod(0o755)
    seen = read(top)

    assert seen.units["old.service"].made_by == "systemd-sysv-generator"
    assert Way.GENERATOR in reached(seen)["old.service"]


def test_generators_that_may_add_units_are_named(tmp_path):
    seen = read(make_root(tmp_path, files={"usr/lib/systemd/system-generators/vendor-generator": ""}))

    assert seen.unseen == ("the generator vendor-generator may add units at boot",)


def test_of_presets_the_first_match_decides_and_a_file_hides_its_namesake(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            {"a.service": ONE, "b.service": ONE, "c@.service": ONE},
            files={
                "usr/lib/systemd/system-preset/10-own.preset": "enable a.*\n# comment\ndisable a.service\n",
                "usr/lib/systemd/system-preset/50-x.preset": "enable *\n",
                "etc/systemd/system-preset/50-x.preset": "enable c@.service one two\ndisable *\n",
            },
        )
    )

    assert preset_for(seen, "a.service") == (True, "enable a.* (/usr/lib/systemd/system-preset/10-own.preset:1)")
    assert preset_for(seen, "b.service")[0] is False
    assert preset_for(seen, "c@two.service")[0] is True
    assert preset_for(seen, "c@three.service")[0] is False


def test_without_a_preset_a_unit_is_enabled(tmp_path):
    assert preset_for(read(make_root(tmp_path)), "docker.service") == (True, "no rule: enable")


def test_the_managers_defaults_come_from_system_conf_and_its_drop_ins(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            files={
                "etc/systemd/system.conf": "[Manager]\nDefaultStartLimitBurst=7\nDefaultRestartSec=1s\n",
                "usr/lib/systemd/system.conf.d/x.conf": "[Manager]\nDefaultStartLimitIntervalSec=1min\n",
            },
        )
    )

    assert (seen.defaults.limit_burst, seen.defaults.restart_sec, seen.defaults.limit_interval) == (7, 1.0, 60.0)


def test_units_without_which_one_does_not_start(tmp_path):
    text = "[Unit]\nRequires=boot.service other.service\nAfter=boot.service\nWants=soft.service\n"
    seen = read(make_root(tmp_path, {"a.service": text + ONE, "boot.service": ONE}, enabled=["a.service"]))

    assert needs_started(seen.units["a.service"], seen.links) == ("boot.service",)


def test_links_never_lead_out_of_the_root(tmp_path):
    outside = tmp_path / "outside.service"
    outside.write_text(ONE)
    top = make_root(
        tmp_path / "root",
        links={f"{VENDOR}/evil.service": "../../../../../../outside.service", f"{VENDOR}/loop.service": "loop.service"},
        enabled=["evil.service", "loop.service"],
    )

    assert read(top).units["evil.service"].settings.lines() == ()


def test_an_instance_pulls_in_what_its_own_name_says(tmp_path):
    seen = read(
        make_root(
            tmp_path,
            {"app@.service": f"[Unit]\nRequires=db@%i.service\n{ONE}", "db@.service": ONE},
            enabled=["app@main.service"],
        )
    )

    assert "db@main.service" in reached(seen)


def test_an_instance_that_names_ever_longer_ones_ends(tmp_path):
    top = make_root(tmp_path, {"a@.service": f"[Unit]\nWants=a@%ix.service\n{ONE}"}, enabled=["a@x.service"])

    assert len(read(top).units) < 300


def test_a_running_host_can_be_read_as_the_image_it_was_made_from(tmp_path):
    top = make_root(
        tmp_path,
        {
            "a.service": ONE,
            "run/systemd/system/a.service": "[Service]\nExecStart=/bin/other\n",
            "run/systemd/system/b.service": ONE,
        },
        enabled=["a.service"],
    )
    image = read_units(Directory(top), runtime=False)

    assert read(top).units["a.service"].fragment == "/run/systemd/system/a.service"
    assert image.units["a.service"].fragment == f"/{VENDOR}/a.service"
    assert "b.service" not in image.units
