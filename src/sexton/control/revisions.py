"""The numbers of task definitions: which revision of a family is the newest active one, and which comes next.

Fed by the tables of definitions and families, so that neither question looks at more than one family. The newest
known revision says which numbers were used, and where revisions were removed the family's own record does.
Registrations that arrive together get consecutive numbers at once, without waiting for each other's write; the write
itself is conditional on the number being free, so a number that another replica took is never used twice. One whose
write fails leaves a gap.

Nothing survives a restart: the table's first loading finds everything again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager

from sexton.control.records import DefinitionRecord, Entry, FamilyRecord, Table


class _Family:
    __slots__ = ("active", "handed_out", "newest", "present")

    def __init__(self) -> None:
        self.active: list[int] = []  # sorted
        self.handed_out: list[int] = []  # on their way to the store
        self.newest = 0
        self.present = 0  # how many revisions there are, of any status


class Revisions:
    """Follows both tables."""

    def __init__(self, definitions: Table[DefinitionRecord], families: Table[FamilyRecord]) -> None:
        self._families: dict[str, _Family] = {}
        definitions.listen(self._changed)
        families.listen(self._removed)

    def newest_active(self, region: str, family: str) -> int:
        """0 when the family has no active revision."""
        known = self._families.get(f"{region}/{family}")
        return known.active[-1] if known and known.active else 0

    def families(self, region: str, prefix: str, status: str) -> list[str]:
        """Names of families that begin with the prefix and are ACTIVE, INACTIVE or either (ALL), sorted."""
        start = f"{region}/"
        wanted = {"ACTIVE": (True,), "INACTIVE": (False,)}.get(status, (True, False))
        return sorted(
            key.removeprefix(start)
            for key, family in self._families.items()
            if key.startswith(start + prefix) and family.present and bool(family.active) in wanted
        )

    @contextmanager
    def next(self, region: str, family: str) -> Iterator[int]:
        """The number of a revision that is about to be written."""
        key = f"{region}/{family}"
        known = self._families.get(key)
        if known is None:
            known = self._families[key] = _Family()
        number = max(known.newest, known.handed_out[-1] if known.handed_out else 0) + 1
        known.handed_out.append(number)  # always the largest so far
        try:
            yield number
        finally:
            known.handed_out.remove(number)
            if not known.newest and not known.handed_out:
                del self._families[key]  # a family whose first registration failed

    def _changed(self, key: str, before: Entry[DefinitionRecord] | None, after: Entry[DefinitionRecord] | None) -> None:
        name, _, revision = key.rpartition("/")
        number = int(revision)
        known = self._families.get(name)
        if known is None:
            known = self._families[name] = _Family()
        known.newest = max(known.newest, number)
        known.present += (after is not None) - (before is not None)
        was = before is not None and before.value.definition.status == "ACTIVE"
        now = after is not None and after.value.definition.status == "ACTIVE"
        if now and not was:
            insort(known.active, number)
        elif was and not now:
            del known.active[bisect_left(known.active, number)]

    def _removed(self, key: str, before: Entry[FamilyRecord] | None, after: Entry[FamilyRecord] | None) -> None:
        """A family of which revisions were removed, each named in no other way any more."""
        if after is not None:
            known = self._families.setdefault(key, _Family())
            known.newest = max(known.newest, after.value.newest)
