"""Account settings: which there are, what each may be, and what it is when nobody chose.

Two of them do something here: ``containerInsights`` is what new clusters get, and the long ARN formats are the only
ones there are, so they cannot be switched off. The others are kept and shown, since tools read them back.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.wire.ecs import SettingName, SettingType


class Known(NamedTuple):
    """One setting: its value before anybody chose, and all it may be."""

    default: str
    values: tuple[str, ...]
    type: SettingType = SettingType.USER


_SWITCH = ("enabled", "disabled")
_LONG_ARN = Known("enabled", _SWITCH)

SETTINGS: dict[str, Known] = {
    SettingName.AWSVPC_TRUNKING: Known("disabled", _SWITCH),
    SettingName.CONTAINER_INSIGHTS: Known("disabled", ("enhanced", "enabled", "disabled")),
    SettingName.CONTAINER_INSTANCE_LONG_ARN_FORMAT: _LONG_ARN,
    SettingName.DEFAULT_LOG_DRIVER_MODE: Known("non-blocking", ("blocking", "non-blocking")),
    SettingName.FARGATE_EVENT_WINDOWS: Known("disabled", _SWITCH),
    SettingName.FARGATE_FIPS_MODE: Known("disabled", _SWITCH),
    SettingName.FARGATE_TASK_RETIREMENT_WAIT_PERIOD: Known("7", ("0", "7", "14")),
    SettingName.GUARD_DUTY_ACTIVATE: Known("off", ("on", "off"), SettingType.AWS_MANAGED),
    SettingName.SERVICE_LONG_ARN_FORMAT: _LONG_ARN,
    SettingName.TAG_RESOURCE_AUTHORIZATION: Known("on", ("on", "off")),
    SettingName.TASK_LONG_ARN_FORMAT: _LONG_ARN,
}


def problem(name: str, value: str) -> str:
    """Why a setting cannot be this; empty when it can."""
    known = SETTINGS[name]
    if known.type is SettingType.AWS_MANAGED:
        return f"The setting {name} is managed by AWS and cannot be changed."
    if value not in known.values:
        return f"Invalid value for setting {name}: it must be one of {', '.join(known.values)}."
    if known is _LONG_ARN and value == "disabled":
        return "You can no longer disable Long Arn settings"
    return ""
