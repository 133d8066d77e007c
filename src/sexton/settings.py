"""Every setting of the program: one typed tree, filled from the environment and the agent's two config files.

Names, meanings and defaults of the ``ECS_*`` settings are those of Amazon's agent, so its config files work here;
``SEXTON_*`` ones are ours. A source fills what the one before left unset: the command line, the environment, then
``/etc/ecs/ecs.config``, then ``/var/lib/ecs/ecs.config``, then the default. A bad value is a warning and counts as
unset, except where guessing would do harm (``strict``, and everything on the command line): that raises ``BadSetting``.

``docs/settings.md`` is made from the same table; a test keeps the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sexton.core import values
from sexton.core.values import BadValue

CONFIG_FILES = (Path("/etc/ecs/ecs.config"), Path("/var/lib/ecs/ecs.config"))

LOGGING_DRIVERS = frozenset(
    [
        "awsfirelens",
        "awslogs",
        "fluentd",
        "gelf",
        "journald",
        "json-file",
        "logentries",
        "none",
        "splunk",
        "sumologic",
        "syslog",
    ]
)
LEVELS = ("crit", "error", "warn", "info", "debug", "none")


class BadSetting(Exception):  # noqa: N818 - the message is for a person
    """A setting that the program must not guess about."""


class Setting(NamedTuple):
    """One row of the table."""

    name: str  # the variable
    field: str  # where it lands in Settings
    parse: Callable[[str], Any]
    doc: str
    unit: str = ""
    minimum: float | None = None  # a smaller value is raised to it, with a warning
    below_is_unset: bool = False  # a value below the minimum counts as unset instead
    strict: bool = False  # a bad value ends the start


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The values in force. Durations are seconds, memory is MiB."""

    cluster: str = "default"
    region: str = "us-east-1"
    backend: str = ""
    docker_host: str = "unix:///var/run/docker.sock"
    data_dir: str = "/var/lib/sexton"
    instance_attributes: dict[str, str] = {}
    instance_tags: dict[str, str] = {}
    reserved_ports: tuple[int, ...] = (22, 2375, 2376, 51678, 51679)
    reserved_ports_udp: tuple[int, ...] = ()
    reserved_memory: int = 0
    logging_drivers: tuple[str, ...] = ("json-file", "none")
    disable_privileged: bool = False
    task_limits: bool = True
    pull_behavior: str = "default"
    stop_timeout: float = 30.0
    cleanup_wait: float = 3 * 3600.0
    dynamic_ports: tuple[int, int] | None = None
    cgroup_path: str = "/sys/fs/cgroup"
    disable_metrics: bool = False
    log_level: str = "info"
    log_file: str = ""
    log_format: str = "logfmt"
    listen: str = "127.0.0.1:7070"
    account: str = "000000000000"
    service_settle: float = 40.0
    debug_loop: bool = False


def _logging_drivers(raw: str) -> tuple[str, ...]:
    drivers = values.word_list(raw)
    unknown = sorted(set(drivers) - LOGGING_DRIVERS)
    if unknown:
        raise BadSetting(f"cannot use ECS_AVAILABLE_LOGGING_DRIVERS: Invalid logging drivers: {', '.join(unknown)}")
    return drivers


def _account(raw: str) -> str:
    if not re.fullmatch(r"[0-9]{12}", raw):
        raise BadValue("must be twelve digits")
    return raw


def _engine(raw: str) -> str:
    if not raw.startswith(("unix://", "tcp://", "fake://")):
        raise BadValue("must begin with unix:// or tcp://, such as unix:///var/run/docker.sock")
    return raw


TABLE: tuple[Setting, ...] = (
    Setting("ECS_CLUSTER", "cluster", values.text, "cluster to join, by name or ARN"),
    Setting("AWS_DEFAULT_REGION", "region", values.text, "region the agent signs for"),
    Setting("ECS_BACKEND_HOST", "backend", values.text, "URL of the ECS API; empty means Amazon's for the region"),
    Setting("DOCKER_HOST", "docker_host", _engine, "address of the container engine", strict=True),
    Setting("ECS_DATADIR", "data_dir", values.text, "directory of everything that must survive a restart"),
    Setting(
        "ECS_INSTANCE_ATTRIBUTES",
        "instance_attributes",
        values.word_map,
        "attributes of this container instance, sent at its first registration",
        strict=True,
    ),
    Setting(
        "ECS_CONTAINER_INSTANCE_TAGS", "instance_tags", values.word_map, "tags of this container instance", strict=True
    ),
    Setting("ECS_RESERVED_PORTS", "reserved_ports", values.port_list, "TCP ports no task gets"),
    Setting("ECS_RESERVED_PORTS_UDP", "reserved_ports_udp", values.port_list, "UDP ports no task gets"),
    Setting(
        "ECS_RESERVED_MEMORY",
        "reserved_memory",
        partial(values.integer, lowest=0, highest=65535),
        "memory kept from tasks",
        "MiB",
    ),
    Setting("ECS_AVAILABLE_LOGGING_DRIVERS", "logging_drivers", _logging_drivers, "log drivers that tasks may ask for"),
    Setting("ECS_DISABLE_PRIVILEGED", "disable_privileged", values.boolean, "refuse privileged containers"),
    Setting("ECS_ENABLE_TASK_CPU_MEM_LIMIT", "task_limits", values.boolean, "hold a task to its own cpu and memory"),
    Setting(
        "ECS_IMAGE_PULL_BEHAVIOR",
        "pull_behavior",
        partial(values.choice, words=("default", "always", "once", "prefer-cached")),
        "when an image is pulled",
    ),
    Setting(
        "ECS_CONTAINER_STOP_TIMEOUT",
        "stop_timeout",
        values.duration,
        "time between TERM and KILL for a container that names none",
        "seconds",
        minimum=1.0,
    ),
    Setting(
        "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION",
        "cleanup_wait",
        values.duration,
        "how long a stopped task's containers are kept",
        "seconds",
        minimum=1.0,
        below_is_unset=True,
    ),
    Setting(
        "ECS_DYNAMIC_HOST_PORT_RANGE",
        "dynamic_ports",
        values.port_range,
        "host ports for containers that name none; unset means the kernel's local port range",
    ),
    Setting("ECS_CGROUP_PATH", "cgroup_path", values.text, "where the cgroup hierarchies are mounted"),
    Setting("ECS_DISABLE_METRICS", "disable_metrics", values.boolean, "send no container metrics"),
    Setting("ECS_LOGLEVEL", "log_level", partial(values.choice, words=LEVELS), "least severe line that is logged"),
    Setting("ECS_LOGFILE", "log_file", values.text, "file the log goes to; empty means standard error"),
    Setting(
        "ECS_LOG_OUTPUT_FORMAT", "log_format", partial(values.choice, words=("logfmt", "json")), "shape of a log line"
    ),
    Setting("SEXTON_LISTEN", "listen", values.text, "address and port of the control plane"),
    Setting("SEXTON_ACCOUNT_ID", "account", _account, "account id in the control plane's ARNs", strict=True),
    Setting(
        "SEXTON_SERVICE_SETTLE",
        "service_settle",
        values.duration,
        "how long a service's task runs before it counts as healthy",
        "seconds",
        minimum=0.1,
    ),
    Setting("SEXTON_DEBUG_LOOP", "debug_loop", values.boolean, "warn of anything that blocks the event loop"),
)


class Loaded(NamedTuple):
    """The settings, where each came from (by field), what was wrong with the rest, and what has no effect here."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]  # names in the config files that the table does not have


def read_config_file(path: Path) -> dict[str, str]:
    """``KEY=VALUE`` lines as the agent's own tools read them: no quotes, lines without ``=`` skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadSetting(f"cannot read {path}: {error.strerror}; fix its permissions or remove it") from None
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def load(environment: Mapping[str, str], files: tuple[Path, ...] = (), overrides: Mapping[str, str] = {}) -> Loaded:
    """Settings from the sources, highest first: overrides (by field, as text), environment, files."""
    sources: list[tuple[str, Mapping[str, str]]] = [("environment", environment)]
    sources += [(str(path), read_config_file(path)) for path in files]
    values_by_field: dict[str, Any] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []
    for setting in TABLE:
        if setting.field in overrides:
            strict = setting._replace(strict=True)  # whoever types it is there to correct it
            values_by_field[setting.field] = _parse(strict, overrides[setting.field], warnings)
            origins[setting.field] = "command line"
            continue
        for origin, source in sources:
            raw = source.get(setting.name, "")
            if raw == "":
                continue
            value = _parse(setting, raw, warnings)
            if not value and value is not False:
                continue  # neither a bad value nor nothing, zero or an empty list hides what a lower source says
            values_by_field[setting.field] = value
            origins[setting.field] = origin
            break
    known = {setting.name for setting in TABLE}
    # Only of the files: an environment holds the names of other programs as well.
    unknown = {name for _, source in sources[1:] for name in source if name.startswith(("ECS_", "SEXTON_"))} - known
    return Loaded(Settings(**values_by_field), origins, tuple(warnings), tuple(sorted(unknown)))


def _parse(setting: Setting, raw: str, warnings: list[str]) -> Any:
    try:
        value = setting.parse(raw)
    except BadValue as error:
        if setting.strict:
            raise BadSetting(f"cannot use {setting.name}: it {error}") from None
        warnings.append(f"{setting.name} {error}; it is ignored")
        return None
    if setting.minimum is not None and value < setting.minimum:
        if setting.below_is_unset:
            warnings.append(f"{setting.name} must be at least {setting.minimum:g} {setting.unit}; it is ignored")
            return None
        warnings.append(f"{setting.name} is raised to its minimum of {setting.minimum:g} {setting.unit}")
        return setting.minimum
    return value
