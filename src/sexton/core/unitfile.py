"""What a unit file says: text in, directives out, with the service manager's own rules for merging.

A unit is its fragment and then its drop-ins, line after line. A later line of a single-valued setting wins; an empty
one resets what came before, except for dependencies, which can only be added; an empty condition resets all conditions.
Every directive keeps the file and line it came from, so that a verdict can name it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

import msgspec

# Settings that systemd documents as impossible to reset.
DEPENDENCIES = frozenset(
    {
        "Wants",
        "Requires",
        "Requisite",
        "BindsTo",
        "PartOf",
        "Upholds",
        "Conflicts",
        "Before",
        "After",
        "OnFailure",
        "OnSuccess",
        "WantedBy",
        "RequiredBy",
        "Also",
        "Alias",
    }
)
# The longest thing that is read as one name; longer ones are not unit names to systemd either.
LONGEST_NAME = 255
UNIT_KINDS = frozenset(
    {"service", "socket", "timer", "path", "target", "mount", "automount", "swap", "slice", "scope", "device"}
)
_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+")


class Directive(msgspec.Struct, frozen=True):
    """One assignment. ``source`` is the path of its file, ``line`` where it begins there."""

    section: str
    key: str
    value: str
    source: str
    line: int


def parse(text: str, source: str) -> tuple[Directive, ...]:
    """The assignments of one file, in order. What is no assignment is passed over, as systemd does."""
    found = []
    section = ""
    for number, line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and section:
            key, _, value = line.partition("=")
            found.append(Directive(section, key.strip(), value.strip(), source, number))
    return tuple(found)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined over a trailing backslash; comments vanish, between the parts of a joined line as well."""
    held = ""
    begun = 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t\r")
        if line.startswith(("#", ";")) or (not line and not held):
            continue
        if not held:
            begun = number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        whole, held = (held + line).strip(), ""
        if whole:
            yield begun, whole
    if held.strip():
        yield begun, held.strip()


class Settings:
    """The directives of one unit, merged."""

    def __init__(self, directives: Iterable[Directive] = ()) -> None:
        self._kept: dict[tuple[str, str], list[Directive]] = {}
        for one in directives:
            self._add(one)

    def _add(self, one: Directive) -> None:
        if one.value or one.key in DEPENDENCIES:
            if one.value:
                self._kept.setdefault((one.section, one.key), []).append(one)
            return
        for family in ("Condition", "Assert"):
            if one.key.startswith(family):
                for place in [place for place in self._kept if place[1].startswith(family)]:
                    del self._kept[place]
                return
        self._kept.pop((one.section, one.key), None)

    def all(self, section: str, key: str) -> tuple[Directive, ...]:
        return tuple(self._kept.get((section, key), ()))

    def last(self, section: str, *keys: str) -> Directive | None:
        """The directive in force of a single-valued setting that has had several names."""
        named = [kept[-1] for key in keys if (kept := self._kept.get((section, key)))]
        return named[0] if named else None

    def value(self, section: str, key: str, default: str = "") -> str:
        one = self.last(section, key)
        return default if one is None else one.value

    def words(self, section: str, key: str) -> tuple[tuple[str, Directive], ...]:
        """The words of a list of names, each with its directive."""
        return tuple((word, one) for one in self.all(section, key) for word in one.value.split())

    def matching(self, section: str, prefix: str) -> tuple[Directive, ...]:
        """All directives whose key begins so, in the order of their keys."""
        places = sorted(place for place in self._kept if place[0] == section and place[1].startswith(prefix))
        return tuple(one for place in places for one in self._kept[place])

    def has(self, section: str) -> bool:
        return any(place[0] == section for place in self._kept)

    def lines(self) -> tuple[str, ...]:
        """Everything in force, in a fixed order: two units that behave alike give the same lines."""
        return tuple(
            f"[{section}] {key}={one.value}" for (section, key), kept in sorted(self._kept.items()) for one in kept
        )


def is_unit_name(name: str) -> bool:
    return kind_of(name) in UNIT_KINDS and len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


def kind_of(name: str) -> str:
    return name.rpartition(".")[2]


def template_of(name: str) -> str | None:
    """``getty@.service`` for ``getty@tty1.service``; None for what is no instance."""
    stem, _, kind = name.rpartition(".")
    prefix, at, instance = stem.partition("@")
    return f"{prefix}@.{kind}" if at and instance else None


def is_template(name: str) -> bool:
    return name.rpartition(".")[0].endswith("@")


def instance_of(name: str) -> str:
    return name.rpartition(".")[0].partition("@")[2]


def expand(text: str, name: str) -> str | None:
    """A value with the specifiers that depend on the unit's name alone; None when it has others."""
    stem, _, _ = name.rpartition(".")
    prefix, _, instance = stem.partition("@")
    plain = _unescape(instance)
    known = {
        "%%": "%",
        "%n": name,
        "%N": stem,
        "%p": prefix,
        "%P": _unescape(prefix),
        "%i": instance,
        "%I": plain,
        "%j": prefix.rpartition("-")[2],
        "%f": "/" + (plain or _unescape(prefix)).lstrip("/"),
        "%t": "/run",
        "%S": "/var/lib",
        "%C": "/var/cache",
        "%L": "/var/log",
        "%E": "/etc",
    }
    parts = re.split(r"(%.)", text)
    if any(part.startswith("%") and len(part) == 2 and part not in known for part in parts):
        return None
    return "".join(known.get(part, part) for part in parts)


def _unescape(text: str) -> str:
    """systemd's escaping of names: ``-`` stands for a slash, ``\\xNN`` for a byte."""
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), text.replace("-", "/"))


_SPAN_UNITS = {
    **dict.fromkeys(("us", "usec", "µs"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86400.0),
    **dict.fromkeys(("M", "month", "months"), 30.44 * 86400.0),
    **dict.fromkeys(("y", "year", "years"), 365.25 * 86400.0),
}
_SPAN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Zµ]*)\s*")


def seconds(text: str) -> float | None:
    """A time span as unit files write it; None for what is none."""
    if text.strip() == "infinity":
        return float("inf")
    total, at = 0.0, 0
    while at < len(text):
        part = _SPAN.match(text, at)
        if part is None or part[2] not in _SPAN_UNITS:
            return None
        total += float(part[1]) * _SPAN_UNITS[part[2]]
        at = part.end()
    return total if text.strip() else None


class Command(msgspec.Struct, frozen=True):
    """One Exec line. ``may_fail``: a failure of it is not the unit's."""

    words: tuple[str, ...]
    may_fail: bool
    directive: Directive

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""


EXEC_START = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost")
EXEC_ALL = (*EXEC_START, "ExecReload", "ExecStop", "ExecStopPost")


def commands(settings: Settings, keys: Iterable[str] = EXEC_START) -> tuple[Command, ...]:
    """The commands of a service, prefixes read and taken off."""
    found = []
    for key in keys:
        for one in settings.all("Service", key):
            for part in re.split(r"\s;\s", one.value):
                marks = re.match(r"[-@:+!|]*", part)
                prefix = marks[0] if marks else ""
                words = list(_words(part[len(prefix) :]))
                if "@" in prefix and len(words) > 1:
                    del words[1]  # the name the process gives itself
                if words:
                    found.append(Command(tuple(words), "-" in prefix or key == "ExecCondition", one))
    return tuple(found)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an odd number of quotes
        return tuple(text.split())
