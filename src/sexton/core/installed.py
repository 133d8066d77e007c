"""The units of one root file system, and what starts them: values and the walk from the boot's goal.

``host/unitfiles.py`` reads them. Here is the question an audit begins with: starting from the default target, which
units does a boot reach, and through what: a link in ``.wants`` or ``.requires``, a dependency, a timer, a socket, a
path, the message bus, a generator.
"""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from sexton.core.unitfile import Directive, Settings, expand, instance_of, is_unit_name, kind_of, template_of

# What pulls another unit in when it starts. Upholds starts it again for as long as it runs itself.
PULLS = ("Requires", "Wants", "BindsTo", "Upholds", "Requisite")
# Of a unit that has these on another which does not start, systemd does not start it either.
NEEDS_STARTED = ("Requires", "BindsTo", "Requisite")


class Link(msgspec.Struct, frozen=True):
    """A link that makes ``owner`` pull ``unit`` in. ``vendor``: shipped with the unit, not made by enabling it."""

    owner: str
    how: str
    unit: str
    path: str
    vendor: bool


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit as the service manager would load it. ``fragment`` is empty when there is none, ``mask`` the path that
    masks it, ``made_by`` the generator that makes it at boot."""

    name: str
    fragment: str = ""
    settings: Settings = Settings()
    aliases: tuple[str, ...] = ()
    drop_ins: tuple[str, ...] = ()
    mask: str = ""
    made_by: str = ""

    @property
    def exists(self) -> bool:
        return bool(self.fragment or self.made_by or self.mask)


class PresetRule(msgspec.Struct, frozen=True):
    """One line of a preset file."""

    action: str
    pattern: str
    instances: tuple[str, ...]
    source: str
    line: int


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What system.conf sets for units that say nothing."""

    restart_sec: float = 0.1
    limit_interval: float = 10.0
    limit_burst: int = 5


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the service manager would find. ``aliases``: name -> canonical name; ``bus``: unit -> the file by
    which the message bus starts it; ``unseen``: what decides at boot and cannot be known from files."""

    default_target: str
    units: Mapping[str, Unit]
    links: tuple[Link, ...] = ()
    aliases: Mapping[str, str] = {}
    alias_paths: Mapping[str, str] = {}
    presets: tuple[PresetRule, ...] = ()
    defaults: Defaults = Defaults()
    bus: Mapping[str, str] = {}
    unseen: tuple[str, ...] = ()

    def canonical(self, name: str) -> str:
        return self.aliases.get(name, name)

    def unit(self, name: str) -> Unit | None:
        return self.units.get(self.canonical(name))


class Way(StrEnum):
    """How a unit comes to be started."""

    LINK = "link"  # made by enabling it
    VENDOR_LINK = "vendor link"  # shipped in its package
    DEPENDENCY = "dependency"
    DROP_IN = "drop-in"  # a dependency that a drop-in adds
    TIMER = "timer"
    SOCKET = "socket"
    PATH = "path"
    BUS = "bus"
    ALIAS = "alias"  # pulled in under another of its names
    GENERATOR = "generator"
    PRESET = "preset"  # not a cause by itself: what would enable it again


class Origin(msgspec.Struct, frozen=True):
    """One way in which a unit is started. ``by`` is the other unit or the rule, ``path`` the file that says so."""

    way: Way
    by: str
    path: str = ""

    @property
    def says(self) -> str:
        where = f" ({self.path})" if self.path else ""
        return f"{self.way}: {self.by}{where}" if self.by else f"{self.way}{where}"


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that is started, or set up to be. ``at_boot``: on the way from the boot's goal; else it is enabled for
    something which only a generator or a person starts."""

    unit: Unit
    origins: tuple[Origin, ...]
    at_boot: bool
    enabled: bool


_TRIGGERS = {
    "timer": ("Timer", "Unit", Way.TIMER),
    "path": ("Path", "Unit", Way.PATH),
    "socket": ("Socket", "Service", Way.SOCKET),
}


def pulled_by(unit: Unit) -> Iterator[tuple[str, Directive]]:
    """The units that start with this one by its own settings, specifiers of its name filled in."""
    listed = [("Unit", key) for key in PULLS] + [("Service", "Sockets")]
    for section, key in listed:
        for word, one in unit.settings.words(section, key):
            name = expand(word, unit.name)
            if name is not None:
                yield name, one


def triggered_by(unit: Unit) -> str:
    """The unit that this timer, path or socket stands ready to start; empty for what is none of them."""
    stem, _, kind = unit.name.rpartition(".")
    if kind not in _TRIGGERS:
        return ""
    section, key, _ = _TRIGGERS[kind]
    accepts = kind == "socket" and unit.settings.value(section, "Accept").lower() in ("yes", "true", "on", "1")
    plain = f"{stem}@.service" if accepts else f"{stem}.service"
    return expand(unit.settings.value(section, key, plain), unit.name) or ""


def _edges(installed: Installed, unit: Unit) -> Iterator[tuple[str, Way, str]]:
    """What this unit pulls in or stands ready to start: name, way, path."""
    for word, one in pulled_by(unit):
        way = Way.DROP_IN if one.source in unit.drop_ins else Way.DEPENDENCY
        yield word, way, one.source
    started = triggered_by(unit)
    if started:
        yield started, _TRIGGERS[unit.name.rpartition(".")[2]][2], unit.fragment


def reach(installed: Installed) -> tuple[Reached, ...]:
    """Every unit that is started from the boot's goal, waits for a timer, socket, path or message, or is enabled."""
    by_owner: dict[str, list[Link]] = {}
    for link in installed.links:
        by_owner.setdefault(installed.canonical(link.owner), []).append(link)
    origins: dict[str, dict[Origin, None]] = {}
    seen: dict[str, bool] = {}

    def walk(start: str, at_boot: bool) -> None:
        queue = deque([start])
        while queue:
            name = installed.canonical(queue.popleft())
            if name in seen:
                continue
            seen[name] = at_boot
            unit = installed.units.get(name)
            if unit is None or unit.mask:
                continue
            for target, origin in _pulled(installed, unit, by_owner):
                real = installed.canonical(target)
                if real != target:
                    alias = Origin(Way.ALIAS, target, installed.alias_paths.get(target, ""))
                    origins.setdefault(real, {})[alias] = None
                origins.setdefault(real, {})[origin] = None
                queue.append(target)

    walk(installed.default_target, True)
    enabled = {installed.canonical(link.unit) for link in installed.links if not link.vendor}
    enabled |= {
        installed.canonical(alias)
        for alias, path in installed.alias_paths.items()
        if path.startswith("/etc/") and alias in installed.aliases
    }
    for name in sorted(enabled):
        walk(name, False)
    for name, path in sorted(installed.bus.items()):
        origins.setdefault(installed.canonical(name), {})[Origin(Way.BUS, "message bus", path)] = None
        walk(name, False)
    for link in installed.links:
        way = Way.VENDOR_LINK if link.vendor else Way.LINK
        real = installed.canonical(link.unit)
        if real in seen:
            origins.setdefault(real, {})[Origin(way, f"{link.owner}.{link.how}", link.path)] = None
    found = []
    for name in sorted(seen):
        unit = installed.units.get(name)
        if unit is None:
            continue
        if unit.made_by:
            origins.setdefault(name, {})[Origin(Way.GENERATOR, unit.made_by)] = None
        found.append(
            Reached(unit=unit, origins=tuple(origins.get(name, {})), at_boot=seen[name], enabled=name in enabled)
        )
    return tuple(found)


def _pulled(installed: Installed, unit: Unit, by_owner: Mapping[str, list[Link]]) -> Iterator[tuple[str, Origin]]:
    for target, way, path in _edges(installed, unit):
        if is_unit_name(target):
            yield target, Origin(way, unit.name, path)
    for link in by_owner.get(unit.name, ()):
        yield link.unit, Origin(Way.VENDOR_LINK if link.vendor else Way.LINK, f"{link.owner}.{link.how}", link.path)


def preset_for(installed: Installed, name: str) -> tuple[bool, str]:
    """Would ``systemctl preset`` enable it, and by which rule? The first that matches decides; without one, yes."""
    template = template_of(name)
    for rule in installed.presets:
        whole = fnmatch.fnmatchcase(name, rule.pattern)
        listed = template is not None and fnmatch.fnmatchcase(template, rule.pattern)
        if not whole and not (listed and (not rule.instances or instance_of(name) in rule.instances)):
            continue
        where = f"{rule.action} {rule.pattern} ({rule.source}:{rule.line})"
        if rule.action == "ignore":
            return False, where
        return rule.action == "enable", where
    return True, "no rule: enable"


def is_installable(unit: Unit) -> bool:
    """Has it an [Install] section, so that enabling it does something?"""
    return any(unit.settings.all("Install", key) for key in ("WantedBy", "RequiredBy", "UpheldBy", "Alias", "Also"))


def needs_started(unit: Unit, links: tuple[Link, ...]) -> tuple[str, ...]:
    """Units without which this one does not start: required, and waited for."""
    required = {word for key in NEEDS_STARTED for word, _ in unit.settings.words("Unit", key)}
    required |= {link.unit for link in links if link.owner == unit.name and link.how == "requires"}
    waited = {word for word, _ in unit.settings.words("Unit", "After")}
    return tuple(sorted(name for name in required & waited if kind_of(name) in ("service", "mount")))
