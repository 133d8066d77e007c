"""Filling the tree: which source says what, which one wins, what a bad value does.

A source fills what the ones before it left unset: the command line, the environment, ``/etc/ecs/ecs.config``, then
``/var/lib/ecs/ecs.config``, then what a package brings, then the JSON file, then the instance's user data, then the
default. The config files stand where Amazon's own tools put them, which hand them to the agent as its environment.

A bad value is a warning and counts as unset, except where guessing would do harm (``strict``, and everything on the
command line): that raises ``BadSetting``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sexton.core.values import BadValue
from sexton.settings.row import BadSetting, Setting
from sexton.settings.tree import Settings

# The last one comes with a package: what Amazon's own package sets by default as well.
CONFIG_FILES = (Path("/etc/ecs/ecs.config"), Path("/var/lib/ecs/ecs.config"), Path("/usr/lib/sexton/ecs.config"))
CONFIG_JSON = "ECS_AGENT_CONFIG_FILE_PATH"
# In a config file a path of the container that Amazon's agent lives in means the directory of the host behind it.
CONTAINER_PATHS = {"/log": "/var/log/ecs", "/data": "/var/lib/sexton"}
_PATHS = frozenset({"ECS_LOGFILE", "ECS_DATADIR", "ECS_AUDIT_LOGFILE"})
# JSON numbers for what the variable says in words.
_PULL_WORDS = ("default", "always", "once", "prefer-cached")
_LARGEST_JSON = 1 << 20
_PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy"})


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


def read_json_file(path: Path) -> dict[str, Any]:
    """The JSON file of settings; one that is not there or empty says nothing."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_JSON)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BadSetting(f"cannot read {path}: {error.strerror}; fix its permissions or remove it") from None
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadSetting(f"cannot read {path}: it is not JSON ({error}); correct or remove it") from None
    if not isinstance(found, dict):
        raise BadSetting(f"cannot read {path}: it must hold a JSON object; correct or remove it")
    return found


def of_user_data(text: str) -> dict[str, Any]:
    """What an instance's user data says about the agent; anything but the one documented form says nothing."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    said = found.get("ECSAgentConfiguration") if isinstance(found, dict) else None
    return said if isinstance(said, dict) else {}


def load(
    environment: Mapping[str, str],
    files: tuple[Path, ...] = (),
    overrides: Mapping[str, str] = {},
    user_data: Mapping[str, Any] = {},
) -> Loaded:
    """Settings from the sources, highest first: overrides (by field, as text), environment, files, JSON."""
    from sexton.settings import TABLE, UNUSED  # the table is made of rows, which are below this

    sources: list[tuple[str, Mapping[str, str]]] = [("environment", environment)]
    sources += [(str(path), _on_host(read_config_file(path))) for path in files]
    warnings: list[str] = []
    by_key = {setting.key.lower(): setting for setting in TABLE if setting.key}
    if files:
        named = next((found[CONFIG_JSON] for _, found in sources if found.get(CONFIG_JSON)), Settings().config_json)
        sources.append((named, _by_name(read_json_file(Path(named)), by_key, named, warnings)))
    if user_data:
        sources.append(("user data", _by_name(user_data, by_key, "user data", warnings)))
    values_by_field: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in TABLE:
        if setting.field in overrides:
            # Whoever types it is there to correct it.
            values_by_field[setting.field] = _typed(setting, overrides[setting.field], warnings)
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
    ours = known | {one.name for one in UNUSED}
    # Only of the files: an environment holds the names of other programs as well.
    unknown = {
        name
        for _, source in sources[1:]
        for name in source
        if name not in known and (name in ours or name.startswith(("ECS_", "SEXTON_")))
    }
    return Loaded(Settings(**values_by_field), origins, tuple(warnings), tuple(sorted(unknown)))


def of_other_libraries(files: tuple[Path, ...], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the config files say to those who read the environment only: credentials, endpoints, proxies. Amazon's tools
    hand every line of these files to the agent as its environment."""
    said: dict[str, str] = {}
    for path in reversed(files):
        found = read_config_file(path)
        said |= {name: value for name, value in found.items() if value and _is_of_others(name)}
    return {name: value for name, value in said.items() if name not in environment}


def _is_of_others(name: str) -> bool:
    return name.startswith(("AWS_", "SSL_CERT_")) or name.lower() in _PROXIES


def _on_host(found: dict[str, str]) -> dict[str, str]:
    for name in _PATHS & found.keys():
        for inside, outside in CONTAINER_PATHS.items():
            if found[name].rstrip("/") == inside or found[name].startswith(inside + "/"):
                found[name] = outside + found[name].rstrip("/")[len(inside) :]
    return found


def _by_name(
    found: Mapping[str, Any], by_key: Mapping[str, Setting], origin: str, warnings: list[str]
) -> dict[str, str]:
    """The JSON form as the text that the variable of the same meaning would hold."""
    said: dict[str, str] = {}
    if "Cluster" not in found and isinstance(found.get("ClusterArn"), str):
        found = {**found, "Cluster": found["ClusterArn"]}  # its name of old
    for key, value in found.items():
        setting = by_key.get(key.lower())
        if setting is None or value is None:
            continue
        try:
            said[setting.name] = _text(setting, value)
        except BadValue as error:
            warnings.append(f"{key} in {origin} {error}; it is ignored")
    return said


def _text(setting: Setting, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int() if setting.name == "ECS_IMAGE_PULL_BEHAVIOR":
            return _PULL_WORDS[value] if 0 <= value < len(_PULL_WORDS) else str(value)
        case int() if setting.unit == "seconds":
            return f"{value}ns"
        case int() | float():
            return str(value)
        case list() if setting.name == "ECS_EXCLUDE_UNTRACKED_IMAGE":
            return ",".join(str(one) for one in value)
        case list() | dict():
            return json.dumps(value)
    raise BadValue("has no form that a setting can have")


def _typed(setting: Setting, raw: str, warnings: list[str]) -> Any:
    try:
        return _parse(setting._replace(strict=True), raw, warnings)
    except BadSetting as error:
        raise BadSetting(str(error), typed=True) from None


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
    if setting.maximum is not None and value > setting.maximum:
        warnings.append(f"{setting.name} is lowered to its maximum of {setting.maximum:g} {setting.unit}")
        return setting.maximum
    return value


def reasons_of(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each name without effect, with why."""
    from sexton.settings import UNUSED

    why = {one.name: f"{one.cause}: {one.reason}" for one in UNUSED}
    return [(name, why.get(name, "no setting of that name is known")) for name in names]
