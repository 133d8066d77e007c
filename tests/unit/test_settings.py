"""Settings: which source wins, what a bad value does, and that every one of them is documented."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sexton import settings
from sexton.settings import BadSetting, Settings

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def load(overrides=None, files=(), **environment):
    return settings.load(environment, files, overrides or {})


def config(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_every_field_has_one_row_with_a_meaning():
    fields = [row.field for row in settings.TABLE]

    assert sorted(fields) == sorted(Settings.__struct_fields__)
    assert len(set(fields)) == len(fields)
    assert all(row.doc and row.name.startswith(("ECS_", "SEXTON_", "AWS_", "DOCKER_")) for row in settings.TABLE)
    assert all(row.unit for row in settings.TABLE if row.minimum is not None)


def test_every_setting_is_in_the_documentation():
    page = DOCS.read_text()

    assert [row.name for row in settings.TABLE if f"`{row.name}`" not in page] == []


def test_every_setting_is_read_somewhere():
    """A setting that changes nothing is a promise that is not kept."""
    package = Path(settings.__file__).parent
    code = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "settings.py")

    assert [row.field for row in settings.TABLE if f".{row.field}" not in code] == []


def test_nothing_said_is_the_default():
    loaded = load()

    assert loaded.settings == Settings()
    assert loaded == (Settings(), {}, (), ())


def test_sources_in_their_order(tmp_path):
    user = config(tmp_path / "user", "ECS_CLUSTER=user\nAWS_DEFAULT_REGION=user\nECS_LOGFILE=user\n")
    vendor = config(tmp_path / "vendor", "ECS_CLUSTER=vendor\nAWS_DEFAULT_REGION=vendor\nECS_RESERVED_MEMORY=9\n")
    loaded = load({"cluster": "line"}, (user, vendor), ECS_CLUSTER="env", AWS_DEFAULT_REGION="env")

    assert (loaded.settings.cluster, loaded.settings.region) == ("line", "env")
    assert (loaded.settings.log_file, loaded.settings.reserved_memory) == ("user", 9)
    assert loaded.origins == {
        "cluster": "command line",
        "region": "environment",
        "log_file": str(user),
        "reserved_memory": str(vendor),
    }


def test_a_config_file_as_the_agents_own_tools_read_it(tmp_path):
    file = config(
        tmp_path / "c",
        '# comment with = sign\nno equals sign\n  ECS_CLUSTER =  prod=1 \nECS_LOGFILE="quoted"\n#ECS_LOGLEVEL=debug\n',
    )
    assert settings.read_config_file(file) == {"ECS_CLUSTER": "prod=1", "ECS_LOGFILE": '"quoted"'}
    assert settings.read_config_file(tmp_path / "none") == {}


def test_a_config_file_that_cannot_be_read_ends_the_start(tmp_path):
    with pytest.raises(BadSetting, match=f"cannot read {tmp_path}: .*; fix"):
        settings.read_config_file(tmp_path)


def test_a_config_file_that_is_no_text_is_read_as_far_as_it_goes(tmp_path):
    file = tmp_path / "c"
    file.write_bytes(b"\xff\xfe=\x00\nECS_CLUSTER=a\n")

    assert settings.read_config_file(file)["ECS_CLUSTER"] == "a"


def test_names_that_have_no_effect_here_are_told_of_files_only(tmp_path):
    file = config(tmp_path / "c", "ECS_ENABLE_TASK_ENI=true\nECS_CLUSTER=a\nPATH=/bin\n")

    assert load(files=(file,), ECS_SOMETHING="x").unknown == ("ECS_ENABLE_TASK_ENI",)


@pytest.mark.parametrize(
    "name, raw, field, value, warns",
    [
        ("ECS_CLUSTER", "  prod ", "cluster", "prod", False),
        ("ECS_CLUSTER", "   ", "cluster", "default", False),
        ("ECS_RESERVED_PORTS", "22,80", "reserved_ports", (22, 2375, 2376, 51678, 51679), True),
        ("ECS_RESERVED_PORTS", "[]", "reserved_ports", (22, 2375, 2376, 51678, 51679), False),
        ("ECS_RESERVED_PORTS", "[1]", "reserved_ports", (1,), False),
        ("ECS_RESERVED_MEMORY", "-1", "reserved_memory", 0, True),
        ("ECS_RESERVED_MEMORY", "70000", "reserved_memory", 0, True),
        ("ECS_RESERVED_MEMORY", "64", "reserved_memory", 64, False),
        ("ECS_CONTAINER_STOP_TIMEOUT", "10", "stop_timeout", 30.0, True),
        ("ECS_CONTAINER_STOP_TIMEOUT", "500ms", "stop_timeout", 1.0, True),
        ("ECS_CONTAINER_STOP_TIMEOUT", "10s", "stop_timeout", 10.0, False),
        ("ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION", "1ms", "cleanup_wait", 10800.0, True),
        ("ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION", "1s", "cleanup_wait", 1.0, False),
        ("ECS_IMAGE_PULL_BEHAVIOR", "never", "pull_behavior", "default", True),
        ("ECS_DISABLE_METRICS", "yes", "disable_metrics", False, True),
        ("ECS_DISABLE_METRICS", "true", "disable_metrics", True, False),
        ("ECS_ENABLE_TASK_CPU_MEM_LIMIT", "false", "task_limits", False, False),
        ("ECS_DYNAMIC_HOST_PORT_RANGE", "x", "dynamic_ports", None, True),
        ("ECS_DYNAMIC_HOST_PORT_RANGE", "5-9", "dynamic_ports", (5, 9), False),
        ("ECS_AVAILABLE_LOGGING_DRIVERS", "json-file", "logging_drivers", ("json-file", "none"), True),
        ("ECS_LOGLEVEL", "loud", "log_level", "info", True),
    ],
)
def test_values_as_amazons_agent_takes_them(name, raw, field, value, warns):
    loaded = load(**{name: raw})

    assert getattr(loaded.settings, field) == value
    assert bool(loaded.warnings) == warns
    assert all(warning.startswith(name + " ") for warning in loaded.warnings)


@pytest.mark.parametrize(
    "name, raw",
    [
        ("ECS_INSTANCE_ATTRIBUTES", "foo"),
        ("ECS_INSTANCE_ATTRIBUTES", '{"a":1}'),
        ("ECS_CONTAINER_INSTANCE_TAGS", "[]"),
        ("ECS_AVAILABLE_LOGGING_DRIVERS", '["bogus"]'),
        ("DOCKER_HOST", "/var/run/docker.sock"),
        ("DOCKER_HOST", "ssh://host"),
        ("SEXTON_ACCOUNT_ID", "12345"),
    ],
)
def test_what_must_not_be_guessed_ends_the_start(name, raw):
    with pytest.raises(BadSetting, match=f"^cannot use {name}: "):
        load(**{name: raw})


@pytest.mark.parametrize("field, raw", [("log_level", "loud"), ("account", "x"), ("stop_timeout", "10")])
def test_a_bad_word_on_the_command_line_ends_the_start(field, raw):
    with pytest.raises(BadSetting, match=r"^cannot use "):
        load({field: raw})


@pytest.mark.parametrize(
    "name, raw, field, below",
    [
        ("ECS_RESERVED_MEMORY", "0", "reserved_memory", "512"),
        ("ECS_RESERVED_MEMORY", "junk", "reserved_memory", "512"),
        ("ECS_RESERVED_PORTS", "[]", "reserved_ports", "[1]"),
        ("ECS_INSTANCE_ATTRIBUTES", "{}", "instance_attributes", '{"a":"b"}'),
        ("ECS_CLUSTER", " ", "cluster", "prod"),
    ],
)
def test_zero_nothing_and_junk_hide_no_lower_source(tmp_path, name, raw, field, below):
    loaded = load(files=(config(tmp_path / "c", f"{name}={below}\n"),), **{name: raw})

    assert getattr(loaded.settings, field) == getattr(load(**{name: below}).settings, field)


def test_a_false_does_hide_what_is_below(tmp_path):
    file = config(tmp_path / "c", "ECS_DISABLE_PRIVILEGED=true\n")

    assert load(files=(file,), ECS_DISABLE_PRIVILEGED="false").settings.disable_privileged is False


def test_settings_are_one_value():
    with pytest.raises(AttributeError):
        Settings().cluster = "other"  # type: ignore[misc]
    assert msgspec.structs.replace(Settings(), cluster="a") != Settings()
