"""Settings: which source wins, what a bad value does, and that every one of them is documented."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sexton import settings
from sexton.settings import BadSetting, Settings
from sexton.settings.sources import of_user_data, reasons_of

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
    assert all(row.doc for row in settings.TABLE)
    assert all(row.unit for row in settings.TABLE if row.minimum is not None)


def test_no_variable_both_works_and_does_not():
    working, without = ({row.name for row in table} for table in (settings.TABLE, settings.UNUSED))

    assert working & without == set()
    assert all(row.reason for row in settings.UNUSED)


def test_every_setting_is_in_the_documentation():
    page, moving = DOCS.read_text(), (DOCS.parent / "moving.md").read_text()

    assert [row.name for row in settings.TABLE if f"`{row.name}`" not in page] == []
    assert [row.name for row in settings.UNUSED if f"`{row.name}`" not in moving] == []


# What the task engine is about to read; each leaves this list with the step that reads it.
AWAITED = {
    "gpu_support",
    "nvidia_runtime",
    "disable_health_checks",
    "cpu_period",
    "pids_limit",
    "propagate_memory_limit",
    "exclude_ipv6_bindings",
    "start_timeout",
    "create_timeout",
    "pull_upfront",
    "cleanup_jitter",
}


def test_every_setting_is_read_somewhere():
    """A setting that changes nothing is a promise that is not kept."""
    own = Path(settings.__file__).parent
    code = "".join(path.read_text() for path in own.parent.rglob("*.py") if path.parent != own)
    code += (own / "sources.py").read_text()
    unread = {row.field for row in settings.TABLE if f".{row.field}" not in code}

    assert unread <= AWAITED


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
    file = config(tmp_path / "c", "ECS_FSX_WINDOWS_FILE_SERVER_SUPPORTED=true\nECS_CLUSTER=a\nPATH=/bin\n")

    assert load(files=(file,), ECS_SOMETHING="x").unknown == ("ECS_FSX_WINDOWS_FILE_SERVER_SUPPORTED",)


DRIVERS = ("json-file", "syslog", "awslogs", "fluentd", "none")


@pytest.mark.parametrize(
    "name, raw, field, value, warns",
    [
        ("ECS_CLUSTER", "  prod ", "cluster", "prod", False),
        ("ECS_CLUSTER", "   ", "cluster", "default", False),
        ("ECS_RESERVED_PORTS", "22,80", "reserved_ports", (22, 2375, 2376, 51678, 51679), True),
        ("ECS_RESERVED_PORTS", "[]", "reserved_ports", (22, 2375, 2376, 51678, 51679), False),
        ("ECS_RESERVED_PORTS", "[1]", "reserved_ports", (1,), False),
        ("SEXTON_TASK_ENDPOINT_PORT", "off", "task_endpoint_port", -1, False),
        ("SEXTON_TASK_ENDPOINT_PORT", "0", "task_endpoint_port", 51679, True),
        ("SEXTON_TASK_ENDPOINT_PORT", "8000", "task_endpoint_port", 8000, False),
        ("ECS_TASK_METADATA_RPS_LIMIT", "100", "metadata_rate", (40, 60), True),
        ("ECS_TASK_METADATA_RPS_LIMIT", "100,0", "metadata_rate", (40, 60), True),
        ("ECS_TASK_METADATA_RPS_LIMIT", " 100, 200", "metadata_rate", (100, 200), False),
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
        ("ECS_AVAILABLE_LOGGING_DRIVERS", "json-file", "logging_drivers", DRIVERS, True),
        ("ECS_LOGLEVEL", "loud", "log_level", "info", True),
        ("ECS_CONTAINER_START_TIMEOUT", "1s", "start_timeout", 45.0, True),
        ("ECS_CONTAINER_CREATE_TIMEOUT", "1s", "create_timeout", 60.0, True),
        ("ECS_MANIFEST_PULL_TIMEOUT", "1s", "manifest_timeout", 30.0, True),
        ("ECS_IMAGE_PULL_INACTIVITY_TIMEOUT", "1s", "pull_inactivity_timeout", 60.0, True),
        ("ECS_IMAGE_CLEANUP_INTERVAL", "1m", "image_cleanup_interval", 1800.0, True),
        ("ECS_IMAGE_CLEANUP_INTERVAL", "10m", "image_cleanup_interval", 600.0, False),
        ("ECS_NUM_IMAGES_DELETE_PER_CYCLE", "-1", "images_per_cycle", 5, True),
        ("ECS_NUM_IMAGES_DELETE_PER_CYCLE", "x", "images_per_cycle", 5, True),
        ("ECS_POLLING_METRICS_WAIT_DURATION", "1s", "metrics_interval", 5.0, True),
        ("ECS_POLLING_METRICS_WAIT_DURATION", "1m", "metrics_interval", 20.0, True),
        ("ECS_CGROUP_CPU_PERIOD", "10ms", "cpu_period", 0.01, False),
        ("ECS_CGROUP_CPU_PERIOD", "1s", "cpu_period", 0.1, True),
        ("ECS_TASK_PIDS_LIMIT", "0", "pids_limit", 0, True),
        ("ECS_TASK_PIDS_LIMIT", "4194305", "pids_limit", 0, True),
        ("ECS_TASK_PIDS_LIMIT", "100", "pids_limit", 100, False),
        ("ECS_EXCLUDE_UNTRACKED_IMAGE", "a:1, b:2 ,", "excluded_images", ("a:1", "b:2"), False),
        ("ECS_LOG_MAX_FILE_SIZE_MB", "0.5", "log_max_mb", 0.5, False),
        ("ECS_LOG_MAX_FILE_SIZE_MB", "0", "log_max_mb", 5.0, True),
        ("ECS_LOG_MAX_ROLL_COUNT", "x", "log_max_rolls", 24, True),
        ("ECS_LOG_ROLLOVER_TYPE", "daily", "log_rollover", "size", True),
        ("ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM", "x", "propagate_tags", "none", True),
        ("ECS_ENGINE_AUTH_TYPE", "other", "engine_auth_type", "", True),
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


def test_log_ins_are_never_shown():
    loaded = load(ECS_ENGINE_AUTH_DATA='{"host":{"password":"hunter2"}}')

    assert "hunter2" in loaded.settings.engine_auth_data
    assert "hunter2" not in repr(loaded)


def test_every_setting_that_is_read_has_an_effect():
    """One that nobody asks for belongs into the list of those without effect, with the reason."""
    source = Path(settings.__file__).parents[1]
    text = "".join(one.read_text() for one in source.rglob("*.py") if one.parent.name != "settings")
    own = {"config_json"}  # where the others come from

    assert [one.field for one in settings.TABLE if f".{one.field}" not in text and one.field not in own] == []


def json_file(path, text):
    path.write_text(text)
    return {"ECS_AGENT_CONFIG_FILE_PATH": str(path)}


def test_the_json_file_of_amazons_agent(tmp_path):
    named = json_file(
        tmp_path / "j",
        """{"cluster": " prod ", "AWSRegion": "eu-west-1", "DockerStopTimeout": 90000000000, "ImagePullBehavior": 2,
        "ReservedPorts": [1, 2], "InstanceAttributes": {"a": "b"}, "DisableMetrics": true, "ReservedMemory": 7,
        "ImageCleanupExclusionList": ["a:1", "b:2"], "Unknown": 3, "NoIID": true, "TaskCPUMemLimit": null}""",
    )
    none = (tmp_path / "no-such-file",)
    loaded = settings.load(named | {"ECS_RESERVED_MEMORY": "9"}, none)
    chosen = loaded.settings

    assert (chosen.cluster, chosen.region, chosen.stop_timeout, chosen.pull_behavior) == (
        "prod",
        "eu-west-1",
        90.0,
        "once",
    )
    assert (chosen.reserved_ports, chosen.instance_attributes, chosen.disable_metrics) == ((1, 2), {"a": "b"}, True)
    assert (chosen.reserved_memory, chosen.excluded_images, chosen.task_limits) == (9, ("a:1", "b:2"), None)
    assert loaded.origins["cluster"] == str(tmp_path / "j") and loaded.origins["reserved_memory"] == "environment"
    assert loaded.warnings == ()


def test_a_json_file_by_its_name_of_old_and_with_values_that_are_none(tmp_path):
    named = json_file(tmp_path / "j", '{"ClusterArn": "arn:aws:ecs:r:1:cluster/c", "ReservedPorts": 5}')
    loaded = settings.load(named, (tmp_path / "none",))

    assert loaded.settings.cluster == "arn:aws:ecs:r:1:cluster/c"
    assert loaded.settings.reserved_ports == Settings().reserved_ports and len(loaded.warnings) == 1


@pytest.mark.parametrize("text, problem", [("{", "it is not JSON"), ("[]", "it must hold a JSON object")])
def test_a_json_file_that_is_none_ends_the_start(tmp_path, text, problem):
    with pytest.raises(BadSetting, match=f"^cannot read {tmp_path}/j: {problem}"):
        settings.load(json_file(tmp_path / "j", text), (tmp_path / "none",))


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_json_file_says_nothing(tmp_path, text):
    named = json_file(tmp_path / "j", text)
    assert settings.load(named, (tmp_path / "none",)).settings.cluster == "default"


def test_user_data_is_below_every_file():
    said = of_user_data('{"ECSAgentConfiguration": {"Cluster": "data", "ReservedMemory": 5}}')
    loaded = settings.load({"ECS_CLUSTER": "env"}, (), {}, said)

    assert (loaded.settings.cluster, loaded.settings.reserved_memory) == ("env", 5)
    assert loaded.origins["reserved_memory"] == "user data"
    for other in ("#!/bin/sh\n", "", "[]", '{"ECSAgentConfiguration": 5}', '{"Cluster": "x"}'):
        assert of_user_data(other) == {}


def test_paths_of_amazons_container_are_those_of_the_host_behind_it(tmp_path):
    file = config(tmp_path / "c", "ECS_DATADIR=/data/\nECS_LOGFILE=/log/ecs-agent.log\n")
    loaded = load(files=(file,))

    assert (loaded.settings.data_dir, loaded.settings.log_file) == ("/var/lib/sexton", "/var/log/ecs/ecs-agent.log")
    assert load(ECS_DATADIR="/data").settings.data_dir == "/data"
    assert load(files=(config(tmp_path / "d", "ECS_DATADIR=/database\n"),)).settings.data_dir == "/database"


def test_each_name_without_effect_has_its_reason():
    told = dict(reasons_of(["ECS_ENABLE_HIGH_DENSITY_ENI", "ECS_BOGUS"]))

    assert "trunk" in told["ECS_ENABLE_HIGH_DENSITY_ENI"] and told["ECS_BOGUS"] == "no setting of that name is known"


def test_credentials_and_proxies_of_the_files_are_for_those_who_read_the_environment(tmp_path):
    user = config(tmp_path / "u", "AWS_ACCESS_KEY_ID=user\nHTTP_PROXY=http://p\nECS_CLUSTER=c\nPATH=/x\n")
    vendor = config(tmp_path / "v", "AWS_ACCESS_KEY_ID=vendor\nAWS_SECRET_ACCESS_KEY=s\nNO_PROXY=n\n")

    assert settings.of_other_libraries((user, vendor), {"NO_PROXY": "mine"}) == {
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HTTP_PROXY": "http://p",
    }
