"""Unit files of a root file system, found and merged the way its service manager would, without asking one.

    tree -> search path -> names -> fragment, aliases, masks, drop-ins -> units
                        -> links in .wants and .requires, presets, bus activation, sysv scripts

A name in a directory of higher rank hides the same name in all lower ones; a link to ``/dev/null`` or an empty file
there masks it; a link to another name makes an alias. Drop-ins of every rank are put together and read in the order of
their file names. What a generator would write at boot cannot be known without running it; those present are named.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import msgspec

from sexton.core.installed import Defaults, Installed, Link, PresetRule, Unit, pulled_by, triggered_by
from sexton.core.unitfile import (
    Directive,
    Settings,
    is_template,
    is_unit_name,
    kind_of,
    parse,
    seconds,
    template_of,
)
from sexton.host.errors import Unreadable
from sexton.host.rootfs import Kind, Tree

# Highest rank first.
SEARCH_PATH = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
# Links here are made by whoever enables a unit; elsewhere they are shipped, or made by a generator at boot.
ENABLING = ("/etc/", "/run/systemd/system")
PRESET_PATH = (
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
)
CONFIG_PATH = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
GENERATOR_PATH = (
    "/etc/systemd/system-generators",
    "/usr/local/lib/systemd/system-generators",
    "/usr/lib/systemd/system-generators",
    "/lib/systemd/system-generators",
)
BUS_PATH = "/usr/share/dbus-1/system-services"
INIT_SCRIPTS = "/etc/init.d"
SYSV_GENERATOR = "systemd-sysv-generator"
MOST_ALIASES = 8
# Generators whose effect is read from files here, or that make no services.
KNOWN_GENERATORS = frozenset(
    {
        SYSV_GENERATOR,
        "systemd-bless-boot-generator",
        "systemd-cryptsetup-generator",
        "systemd-debug-generator",
        "systemd-fstab-generator",
        "systemd-getty-generator",
        "systemd-gpt-auto-generator",
        "systemd-hibernate-resume-generator",
        "systemd-integritysetup-generator",
        "systemd-rc-local-generator",
        "systemd-run-generator",
        "systemd-system-update-generator",
        "systemd-veritysetup-generator",
    }
)


class _Place(msgspec.Struct, frozen=True):
    """Where a name was found first."""

    path: str
    target: str  # of a link, as written


class UnitReader:
    """Reads one tree. ``read()`` is the result. Without ``runtime`` what a boot or a person put below ``/run`` is
    passed over, so that a running host compares with the image it was made from."""

    def __init__(self, tree: Tree, *, runtime: bool = True) -> None:
        self._tree = tree
        places = [path for path in SEARCH_PATH if runtime or not path.startswith("/run/")]
        self._directories = tuple(dict.fromkeys(real for path in places if (real := tree.real(path)) is not None))
        self._places: dict[str, _Place] = {}
        self._drop_in_dirs: dict[str, list[str]] = {}
        self._links: dict[tuple[str, str, str], Link] = {}
        self._no_links: set[tuple[str, str, str]] = set()
        self._aliases: dict[str, str] = {}
        self._units: dict[str, Unit] = {}
        self._parsed: dict[str, tuple[Directive, ...]] = {}
        self._blind: list[str] = []

    def read(self) -> Installed:
        for directory in self._directories:
            self._survey(directory)
        for name in self._places:
            self._canonical(name)
        wanted = [name for name in self._places if not is_template(name)]
        wanted += [link.unit for link in self._links.values()]
        wanted += list(self._sysv_names())
        bus = dict(self._bus())
        wanted += list(bus)
        self._load_all(wanted)
        default = self._canonical("default.target")
        self._load_all([default])
        return Installed(
            default_target=default,
            units=self._units,
            links=tuple(self._links.values()),
            aliases={alias: real for alias, real in self._aliases.items() if alias != real},
            alias_paths={
                alias: self._places[alias].path
                for alias, real in self._aliases.items()
                if alias != real and alias in self._places
            },
            presets=tuple(self._presets()),
            defaults=self._defaults(),
            bus=bus,
            unseen=tuple(self._unseen()),
        )

    def _survey(self, directory: str) -> None:
        """Names, drop-in directories and links of one directory of the search path; earlier ones rank higher."""
        for name in self._listing(directory):
            path = posixpath.join(directory, name)
            stem, _, ending = name.rpartition(".")
            if ending == "d" and stem:
                self._drop_in_dirs.setdefault(stem, []).append(path)
            elif ending in ("wants", "requires", "upholds") and is_unit_name(stem):
                self._survey_links(stem, ending, path)
            elif is_unit_name(name) and name not in self._places:
                entry = self._tree.entry(path)
                if entry is not None and entry.kind in (Kind.FILE, Kind.LINK):
                    self._places[name] = _Place(path, entry.target)

    def _survey_links(self, owner: str, how: str, directory: str) -> None:
        for name in self._listing(directory):
            path = posixpath.join(directory, name)
            key = (owner, how, name)
            if not is_unit_name(name) or key in self._links or key in self._no_links:
                continue
            if self._tree.link(path) == "/dev/null":  # of higher rank: there is to be no such link
                self._no_links.add(key)
            else:
                vendor = not path.startswith(ENABLING) or "/generator" in path
                self._links[key] = Link(owner, how, name, path, vendor)

    def _canonical(self, name: str) -> str:
        """The unit a name stands for; itself when it is no alias."""
        known = self._aliases.get(name)
        if known is None:
            known = self._aliases[name] = self._look_up(name, MOST_ALIASES)
        return known

    def _look_up(self, name: str, left: int) -> str:
        place = self._places.get(name)
        template = template_of(name)
        if place is None and template is not None:
            place = self._places.get(template)
        if place is None or not place.target or left <= 0 or self._is_mask(place):
            return name
        pointed = posixpath.basename(place.target)
        if pointed in (name, template) or not is_unit_name(pointed) or kind_of(pointed) != kind_of(name):
            return name
        if is_template(pointed):
            if template is None:
                return name
            instance = name.rpartition(".")[0].partition("@")[2]
            pointed = pointed.replace("@.", f"@{instance}.")
        # A link out of the search path brings a unit in under this name; it makes no alias.
        if not any(self._points_into(place, directory) for directory in self._directories):
            return name
        return self._look_up(pointed, left - 1)

    def _points_into(self, place: _Place, directory: str) -> bool:
        target = posixpath.join(posixpath.dirname(place.path), place.target)
        above = posixpath.dirname(posixpath.normpath(target))
        return (self._tree.real(above) or above) == directory

    def _is_mask(self, place: _Place) -> bool:
        if place.target:
            return posixpath.normpath(posixpath.join(posixpath.dirname(place.path), place.target)) == "/dev/null"
        entry = self._tree.entry(place.path)
        return entry is not None and entry.kind is Kind.FILE and entry.size == 0

    def _load_all(self, names: list[str]) -> None:
        """These units, and all they name that an instance can be made for."""
        queue = list(names)
        while queue:
            name = self._canonical(queue.pop())
            if name in self._units or not is_unit_name(name) or is_template(name):
                continue
            unit = self._load(name)
            if unit is None:
                continue
            self._units[name] = unit
            queue += [word for word, _ in pulled_by(unit)]
            queue += [started] if (started := triggered_by(unit)) else []

    def _load(self, name: str) -> Unit | None:
        template = template_of(name)
        place = self._places.get(name) or (None if template is None else self._places.get(template))
        aliases = tuple(sorted(alias for alias, real in self._aliases.items() if real == name and alias != name))
        if place is None:
            return self._sysv_unit(name)
        if self._is_mask(place):
            return Unit(name=name, mask=place.path, aliases=aliases)
        fragment = self._tree.real(place.path) or place.path
        directives = list(self._directives(fragment))
        drop_ins = self._drop_ins([name, *aliases])
        for path in drop_ins:
            directives += self._directives(path)
        return Unit(
            name=name,
            fragment=fragment,
            settings=Settings(directives),
            aliases=aliases,
            drop_ins=tuple(drop_ins),
            made_by="at boot" if fragment.startswith("/run/systemd/generator") else "",
        )

    def _directives(self, path: str) -> tuple[Directive, ...]:
        if path not in self._parsed:
            self._parsed[path] = parse(self._text(path), path)
        return self._parsed[path]

    def _text(self, path: str) -> str:
        """A file's text; what may not be read is named, and counts as empty."""
        try:
            return self._tree.text(path) or ""
        except Unreadable as blind:
            self._blind.append(f"{blind}. {blind.next_step}")
            return ""

    def _listing(self, path: str) -> tuple[str, ...]:
        try:
            return self._tree.listing(path)
        except Unreadable as blind:
            self._blind.append(f"{blind}. {blind.next_step}")
            return ()

    def _drop_ins(self, names: list[str]) -> list[str]:
        """Drop-in files in the order they are read. Of equal file names that of the higher rank counts, then that of
        the more specific directory; one for a whole kind of units gives way to all others."""
        places = [
            place
            for name in names
            for rank in self._directories
            for stem in _drop_in_stems(name)
            for place in self._drop_in_dirs.get(stem, ())
            if posixpath.dirname(place) == rank
        ]
        places += self._drop_in_dirs.get(kind_of(names[0]), [])
        chosen: dict[str, str] = {}
        for place in places:
            for name in self._listing(place):
                if name.endswith(".conf"):
                    chosen.setdefault(name, posixpath.join(place, name))
        kept = (chosen[name] for name in sorted(chosen))
        return [real for path in kept if (real := self._tree.real(path)) is not None and real != "/dev/null"]

    def _presets(self) -> Iterator[PresetRule]:
        for path in self._config_files(PRESET_PATH, ".preset"):
            for number, line in enumerate(self._text(path).split("\n"), 1):
                words = line.split()
                if len(words) >= 2 and words[0] in ("enable", "disable", "ignore"):
                    yield PresetRule(words[0], words[1], tuple(words[2:]), path, number)

    def _config_files(self, places: tuple[str, ...], ending: str) -> list[str]:
        """Files of several ranked directories as one list: sorted by name, the highest rank's of each name."""
        chosen: dict[str, str] = {}
        for directory in places:
            for name in self._listing(directory):
                if name.endswith(ending):
                    chosen.setdefault(name, posixpath.join(directory, name))
        return [chosen[name] for name in sorted(chosen)]

    def _defaults(self) -> Defaults:
        files = [path for place in CONFIG_PATH if self._tree.exists(path := f"{place}/system.conf")][:1]
        files += self._config_files(tuple(f"{place}/system.conf.d" for place in CONFIG_PATH), ".conf")
        read = Settings(one for path in files for one in self._directives(path))
        plain = Defaults()
        restart = seconds(read.value("Manager", "DefaultRestartSec"))
        one = read.last("Manager", "DefaultStartLimitIntervalSec", "DefaultStartLimitInterval")
        interval = None if one is None else seconds(one.value)
        burst = read.value("Manager", "DefaultStartLimitBurst")
        return Defaults(
            restart_sec=plain.restart_sec if restart is None else restart,
            limit_interval=plain.limit_interval if interval is None else interval,
            limit_burst=int(burst) if burst.isdecimal() else plain.limit_burst,
        )

    def _bus(self) -> Iterator[tuple[str, str]]:
        for name in self._listing(BUS_PATH):
            path = posixpath.join(BUS_PATH, name)
            if name.endswith(".service"):
                read = Settings(self._directives(path))
                unit = read.value("D-BUS Service", "SystemdService")
                if unit and is_unit_name(unit):
                    yield self._canonical(unit), path

    def _sysv_names(self) -> Iterator[str]:
        """Services that the sysv generator would make: an init script, started in a run level, without a unit."""
        if not any(self._tree.exists(f"{place}/{SYSV_GENERATOR}") for place in GENERATOR_PATH):
            return
        started: set[str] = set()
        for level in "2345":
            for name in self._listing(f"/etc/rc{level}.d"):
                if re.match(r"S\d\d", name):
                    target = self._tree.link(f"/etc/rc{level}.d/{name}") or name[3:]
                    started.add(posixpath.basename(target))
        for script in sorted(started):
            name = f"{script.removesuffix('.sh')}.service"
            if is_unit_name(name) and name not in self._places and self._tree.is_executable(f"{INIT_SCRIPTS}/{script}"):
                self._links.setdefault(
                    ("multi-user.target", "wants", name),
                    Link("multi-user.target", "wants", name, f"{INIT_SCRIPTS}/{script}", True),
                )
                yield name

    def _sysv_unit(self, name: str) -> Unit | None:
        stem = name.removesuffix(".service")
        for script in (f"{INIT_SCRIPTS}/{stem}", f"{INIT_SCRIPTS}/{stem}.sh"):
            if ("multi-user.target", "wants", name) in self._links and self._tree.is_executable(script):
                says = (("Type", "forking"), ("Restart", "no"), ("ExecStart", f"{script} start"))
                read = Settings(Directive("Service", key, value, script, 0) for key, value in says)
                return Unit(name=name, settings=read, made_by=SYSV_GENERATOR)
        return None

    def _unseen(self) -> Iterator[str]:
        """What may not be read; and generators here that may add units at boot which no file tells of, unless this
        tree has already booted."""
        yield from dict.fromkeys(self._blind)
        if self._listing("/run/systemd/generator") or self._listing("/run/systemd/generator.late"):
            return
        found = {name for place in GENERATOR_PATH for name in self._listing(place)}
        for name in sorted(found - KNOWN_GENERATORS):
            yield f"the generator {name} may add units at boot"


def _drop_in_stems(name: str) -> Iterator[str]:
    """The names of drop-in directories of one unit, the most specific first."""
    stem, _, kind = name.rpartition(".")
    yield name
    template = template_of(name)
    if template is not None:
        yield template
    prefix = stem.partition("@")[0]
    at = len(prefix)
    while (at := prefix.rfind("-", 0, at)) > 0:
        yield f"{prefix[: at + 1]}.{kind}"


def read_units(tree: Tree, *, runtime: bool = True) -> Installed:
    """All units of this root file system."""
    return UnitReader(tree, runtime=runtime).read()
