"""What the files of a root file system tell about one unit: what it lacks, and which gates would hold it back.

Only what files can tell is told. A path below ``/run``, ``/proc``, ``/sys``, ``/dev`` or ``/tmp`` is made at boot, so
of an image that is not running it says nothing; conditions on the kernel or the machine are not evaluated either.
Such a gate is neither met nor unmet: it is unknown, and no verdict stands on it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from sexton.core.audit import Facts, Gate, Lack, Rule
from sexton.core.endless import can_loop, leaks
from sexton.core.installed import Defaults, Unit
from sexton.core.unitfile import Directive, commands, expand
from sexton.host.errors import Unreadable
from sexton.host.rootfs import Kind, Tree

VOLATILE = ("/run/", "/var/run/", "/proc/", "/sys/", "/dev/", "/tmp/", "/var/tmp/")  # noqa: S108 - names, never opened
PROGRAM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
SYSUSERS_PATH = ("/etc/sysusers.d", "/usr/local/lib/sysusers.d", "/usr/lib/sysusers.d")
# With one of these the unit's paths are not this root file system's.
ELSEWHERE = ("RootDirectory", "RootImage", "MountImages", "ExtensionImages", "ExtensionDirectories", "ExecSearchPath")
# Directories that the service manager itself makes for a unit, below the first.
OWN_DIRECTORIES = {
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
    "ConfigurationDirectory": "/etc",
}


class FactReader:
    """Reads facts from one tree; what all units share is read once."""

    def __init__(self, tree: Tree, defaults: Defaults, *, live: bool) -> None:
        self._tree = tree
        self._defaults = defaults
        self._live = live
        self._users: frozenset[str] | None = None

    def read(self, unit: Unit, rule: Rule | None) -> Facts:
        return Facts(
            loop=can_loop(unit, self._defaults),
            leaks=leaks(unit),
            lacks=tuple(self._lacks(unit)),
            gates=tuple(self._gates(unit)),
            config=tuple(self._config(rule)) if rule is not None else (),
        )

    def _lacks(self, unit: Unit) -> list[Lack]:
        settings = unit.settings
        if unit.mask or any(settings.all("Service", key) for key in ELSEWHERE):
            return []
        found = [
            Lack(lack, _place(command.directive))
            for command in commands(settings)
            if not command.may_fail and (lack := self._program(command.program, unit))
        ]
        for one in settings.all("Service", "EnvironmentFile"):
            file = None if one.value.startswith("-") else expand(one.value, unit.name)
            if file is not None and self._is_missing(file) and not any(sign in file for sign in "*?["):
                found.append(Lack(f"its environment file {file} is missing", _place(one)))
        for one in settings.all("Service", "LoadCredential"):
            name, _, path = one.value.partition(":")
            if path.startswith("/") and self._is_missing(path):
                found.append(Lack(f"its credential {name} is missing: {path}", _place(one)))
        user = settings.last("Service", "User")
        if user is not None and not _true(settings.value("Service", "DynamicUser")):
            who = expand(user.value, unit.name)
            if who is not None and not who.isdecimal() and who not in self._known_users(who):
                found.append(Lack(f"its user {who} does not exist", _place(user)))
        return found

    def _program(self, program: str, unit: Unit) -> str:
        """What is wrong with this program, or nothing."""
        path = expand(program, unit.name)
        if path is None or "$" in path or not path:
            return ""
        if not path.startswith("/"):
            there = any(self._tree.is_executable(f"{place}/{path}") for place in PROGRAM_PATH)
            return "" if there else f"its program {path} is missing"
        if self._is_own(path, unit) or not self._tells(path):
            return ""
        try:
            if not self._tree.exists(path):
                return f"its program {path} is missing"
            return "" if self._tree.is_executable(path) else f"its program {path} is not executable"
        except Unreadable:  # nothing may be concluded from what may not be looked at
            return ""

    def _is_own(self, path: str, unit: Unit) -> bool:
        """Is it in a directory that the service manager or the unit itself fills?"""
        return any(
            path.startswith(f"{above}/{word}/")
            for key, above in OWN_DIRECTORIES.items()
            for word, _ in unit.settings.words("Service", key)
        )

    def _tells(self, path: str) -> bool:
        """Can files tell whether this will be there?"""
        return self._live or not (path + "/").startswith(VOLATILE)

    def _is_missing(self, path: str) -> bool:
        try:
            return self._tells(path) and not self._tree.exists(path)
        except Unreadable:
            return False

    def _known_users(self, name: str) -> frozenset[str]:
        if self._users is None:
            users = {line.partition(":")[0] for line in (self._tree.text("/etc/passwd") or "").splitlines()}
            for place in SYSUSERS_PATH:
                for file in self._tree.listing(place):
                    for line in (self._tree.text(f"{place}/{file}") or "").splitlines():
                        words = line.split()
                        if len(words) > 1 and words[0].startswith("u"):
                            users.add(words[1])
            # Without a list of users nothing can be said of any.
            self._users = frozenset(users) if "root" in users else frozenset({""})
        return self._users if "" not in self._users else frozenset({name})

    def _config(self, rule: Rule) -> list[Lack]:
        """What is wrong with the configuration this rule knows of."""
        found = []
        for need in rule.config:
            if not self._tells(need.path):
                continue
            try:
                text = self._tree.text(need.path)
            except Unreadable:
                continue
            sets = re.compile(rf"^\s*{re.escape(need.holds)}\b", re.MULTILINE)
            if not self._tree.exists(need.path):
                found.append(Lack(f"its configuration {need.path} is missing"))
            elif text is not None and not text.strip():
                found.append(Lack(f"its configuration {need.path} is empty"))
            elif text is not None and need.holds and not sets.search(text):
                found.append(Lack(f"its configuration {need.path} does not set {need.holds}"))
        return found

    def _gates(self, unit: Unit) -> list[Gate]:
        found = []
        for family in ("Condition", "Assert"):
            either: list[tuple[str, bool | None, str]] = []
            for one in unit.settings.matching("Unit", family):
                sign, value = _sign(one.value)
                met = self._evaluate(one.key.removeprefix(family), value, unit.name)
                if met is not None and "!" in sign:
                    met = not met
                said = f"{one.key}={one.value}"
                if "|" in sign:
                    either.append((said, met, _place(one)))
                else:
                    found.append(Gate(said, met, _place(one)))
            if either:  # of these, one is enough
                mets = [met for _, met, _ in either]
                met = True if True in mets else None if None in mets else False
                found.append(Gate(" or ".join(said for said, _, _ in either), met, either[0][2]))
        return found

    def _evaluate(self, kind: str, value: str, name: str) -> bool | None:
        path = expand(value, name)
        check = _PATH_CHECKS.get(kind)
        if check is None or path is None or not self._tells(path):
            return None
        try:
            return check(self._tree, path)
        except Unreadable:
            return None


def _link_there(tree: Tree, path: str) -> bool:
    return tree.link(path) is not None


def _filled_directory(tree: Tree, path: str) -> bool:
    return bool(tree.listing(path))


def _filled_file(tree: Tree, path: str) -> bool:
    entry = tree.at(path)
    return entry is not None and entry.kind is Kind.FILE and entry.size > 0


_PATH_CHECKS: dict[str, Callable[[Tree, str], bool]] = {
    "PathExists": Tree.exists,
    "PathExistsGlob": Tree.glob,
    "PathIsDirectory": Tree.is_directory,
    "PathIsSymbolicLink": _link_there,
    "DirectoryNotEmpty": _filled_directory,
    "FileNotEmpty": _filled_file,
    "FileIsExecutable": Tree.is_executable,
}


def _sign(value: str) -> tuple[str, str]:
    """``|`` and ``!`` before a condition's value, and the value."""
    bare = value.lstrip("|!")
    return value[: len(value) - len(bare)], bare.strip()


def _place(one: Directive) -> str:
    return f"{posixpath.normpath(one.source)}:{one.line}" if one.line else one.source


def _true(value: str) -> bool:
    return value.lower() in ("yes", "true", "on", "1")
