"""Reads the policy file: TOML, checked strictly, because a misspelt word must not become a permission.

    /etc/sexton/care.toml (or SEXTON_CARE_POLICY) -> ``core/policy.Policy``, or BadPolicy with the place and what would
    have been right

No file is the safe default: every remedy only says what it would do. A file that is there and cannot be used is never
half-used: the caretaker then keeps to the safe default and says so.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from sexton.core import values
from sexton.core.finding import span
from sexton.core.policy import (
    DisableUnit,
    Mode,
    Policy,
    PruneImages,
    PurgeMemcg,
    Remedies,
    ResetUnit,
    Rule,
    Window,
)
from sexton.core.values import BadValue

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# A policy is a page of text.
LARGEST = 256 * 1024
# Keys whose values are spans: seconds, or words such as "10m" and "7d".
_SPANS = frozenset({"after", "seconds", "unused-for", "kernel-seconds"})
_CLOCK = re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])\Z")
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class BadPolicy(Exception):  # noqa: N818 - the message is for a person
    """The policy file cannot be used; the message names the place."""


def read_policy(path: Path) -> Policy:
    """The policy in force. BadPolicy when the file is there but cannot be used."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return Policy(source=f"there is no {path}: nothing is changed")
    except OSError as error:
        raise BadPolicy(f"cannot read {path}: {error.strerror}; fix its permissions or remove it") from None
    if len(data) > LARGEST:
        raise BadPolicy(f"cannot use {path}: it is larger than {LARGEST // 1024} KiB, no policy is")
    try:
        return parse_policy(tomllib.loads(data.decode()), str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPolicy(f"cannot use {path}: it is not TOML: {error}") from None
    except BadPolicy as error:
        raise BadPolicy(f"cannot use {path}: {error}") from None


def parse_policy(told: dict[str, Any], source: str) -> Policy:
    """A policy from the file's tables."""
    known = {"remedies", "windows", "per-day"}
    _no_others("", told, known)
    windows = told.get("windows", [])
    if not isinstance(windows, list):
        raise BadPolicy("windows is no list: write each as [[windows]]")
    per_day = told.get("per-day", Policy().per_day)
    if not isinstance(per_day, int) or isinstance(per_day, bool) or per_day < 0:
        raise BadPolicy(f"per-day is {per_day!r}: say how many actions a day, such as 10")
    return Policy(
        source=source,
        remedies=_remedies(told.get("remedies", {})),
        windows=tuple(_window(number, window) for number, window in enumerate(windows, 1)),
        per_day=per_day,
    )


def _no_others(where: str, table: Any, known: set[str]) -> None:
    if not isinstance(table, dict):
        raise BadPolicy(f"{where} is no table")
    for key in table:
        if key not in known:
            place = f" in {where}" if where else ""
            raise BadPolicy(f"'{key}'{place} is unknown; known there: {', '.join(sorted(known))}")


def _remedies(told: Any) -> Remedies:
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(Remedies)}
    _no_others("[remedies]", told, set(kinds))
    rules = {}
    for name, table in told.items():
        where = f"[remedies.{name}]"
        _no_others(where, table, {field.encode_name for field in msgspec.structs.fields(kinds[name])})
        plain = {key: _span(f"{key} in {where}", value) if key in _SPANS else value for key, value in table.items()}
        try:
            rule: Rule = msgspec.convert(plain, kinds[name])
        except msgspec.ValidationError as error:
            raise BadPolicy(f"{where}: {_readable(str(error))}") from None
        _sound(where, rule, "only" in table)
        rules[name.replace("-", "_")] = rule
    return msgspec.structs.replace(Remedies(), **rules)


def _readable(error: str) -> str:
    """A conversion's error with the key in place of a path."""
    said, _, place = error.partition(" - at `$.")
    return f"{place.rstrip('`')}: {said}" if place else said


def _sound(where: str, rule: Rule, names_targets: bool) -> None:
    if rule.mode is Mode.ACT and not rule.only and not names_targets:
        raise BadPolicy(
            f'{where} has mode = "act" without \'only\': name what it may touch, such as only = ["ecs.service"]'
        )
    for key in ("after", "per_day", "most_touched"):
        if getattr(rule, key) < 0:
            raise BadPolicy(f"{where}: {key.replace('_', '-')} is below 0")
    if rule.seconds <= 0 or getattr(rule, "kernel_seconds", 1.0) <= 0:
        raise BadPolicy(f"{where}: a budget of time must be more than 0")


def _span(where: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (found := _SPAN.match(value)):
        return float(found.group(1)) * _UNITS[found.group(2)]
    raise BadPolicy(f'{where} is {value!r}: say seconds, or a span such as "10m" or "7d"')


def _window(number: int, told: Any) -> Window:
    where = f"window {number}"
    _no_others(where, told, {"days", "from", "to"})
    days = told.get("days", list(DAYS))
    if not isinstance(days, list) or not days or any(day not in DAYS for day in days):
        raise BadPolicy(f"days in {where} is {days!r}: name days such as {list(DAYS[:2])}")
    begins, ends = _clock(f"from in {where}", told.get("from")), _clock(f"to in {where}", told.get("to"))
    if begins == ends:
        raise BadPolicy(f"{where} begins when it ends; leave windows out to allow any time")
    return Window(days=frozenset(DAYS.index(day) for day in days), begins=begins, ends=ends)


def _clock(where: str, value: Any) -> int:
    if isinstance(value, str) and (found := _CLOCK.match(value)):
        minutes = int(found.group(1)) * 60 + int(found.group(2))
        if minutes <= 24 * 60:
            return minutes
    raise BadPolicy(f'{where} is {value!r}: say a time of day such as "02:30"')


def describe(policy: Policy) -> str:
    """What a policy allows, for a person."""
    lines = [f"policy: {policy.source}", f"at most {policy.per_day} actions a day"]
    for window in policy.windows:
        days = ", ".join(DAYS[day] for day in sorted(window.days))
        lines.append(f"only from {_of_day(window.begins)} to {_of_day(window.ends)} on {days}")
    for field in msgspec.structs.fields(Remedies):
        rule = policy.remedies.of(field.encode_name)
        if rule.mode is not Mode.ACT:
            lines.append(f"{field.encode_name}: {rule.mode}")
            continue
        never = f", never {', '.join(rule.never)}" if rule.never else ""
        lines.append(
            f"{field.encode_name}: acts on {', '.join(rule.only) or 'nothing'}{never}; after {span(rule.after)}, "
            f"{rule.per_day} times a day, {rule.most_touched} things at once, {span(rule.seconds)} each{_own(rule)}"
        )
    return "\n".join(lines)


def _own(rule: Rule) -> str:
    """What only this remedy's rule says."""
    match rule:
        case PurgeMemcg():
            caches = "may" if rule.drop_caches else "may not"
            return f"; {rule.kernel_seconds:g} s in the kernel at a time, {caches} cost others their page cache"
        case DisableUnit():
            return f"; masks: {rule.mask}"
        case ResetUnit():
            return "; starts it again" if rule.start else ""
        case PruneImages():
            return f"; images unused for {span(rule.unused_for)}"
    return ""


def _of_day(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def read_span(text: str) -> float:
    """A span as the command line takes it, such as ``7d``; BadValue else."""
    if found := _SPAN.match(text):
        return float(found.group(1)) * _UNITS[found.group(2)]
    try:
        return values.duration(text)
    except BadValue:
        raise BadValue("say a span such as 30m, 12h or 7d") from None
