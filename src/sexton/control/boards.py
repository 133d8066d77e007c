"""The hosts of each cluster, held ready for placing, kept up to date change by change.

In flow the changes of container instances and of what their tasks take of them. A change only marks its host; the
host is looked at anew when somebody next wants to place, so that a burst of reports costs one look. What was placed
is marked too: if it is promised, the sums say so at the next look, and if not, the host is as it was.

There is a board for each cluster, and one for each capacity provider whose hosts were asked for. Nothing survives a
restart: a board is made when it is first asked for, from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sexton.control.records import Entry, InstanceRecord, Records
from sexton.control.usage import Usage
from sexton.core import capacity, names
from sexton.core.board import Board
from sexton.core.placement import Host, Refusal, Wanted


class _Kept:
    """A board and the hosts on it that may have changed."""

    __slots__ = ("board", "marked", "provider")

    def __init__(self, provider: str) -> None:
        self.board = Board()
        self.provider = provider  # empty: every host of the cluster
        self.marked: set[str] = set()


class Boards:
    """All boards; ``seen`` makes of an instance's record the host as it stands now."""

    def __init__(self, records: Records, usage: Usage, seen: Callable[[Entry[InstanceRecord]], Host]) -> None:
        self._instances = records.instances
        self._seen = seen
        self._kept: dict[str, dict[str, _Kept]] = {}  # by cluster, then provider
        records.instances.listen(self._on_instance)
        usage.listen(self._mark)

    def of(self, region: str, cluster: str, provider: str = "") -> Board:
        """The cluster's hosts, or those of one capacity provider, as they are now."""
        place = f"{region}/{cluster}"
        boards = self._kept.setdefault(place, {})
        kept = boards.get(provider)
        if kept is None:
            kept = boards[provider] = _Kept(provider)
            kept.marked.update(entry.value.arn for entry in self._instances.group(place))
        self._refresh(place, kept)
        return kept.board

    def place(
        self, region: str, cluster: str, provider: str, wanted: Wanted, draws: Sequence[float]
    ) -> tuple[list[str], tuple[Refusal, ...]]:
        """Hosts for as many equal tasks as there are draws, by ARN; and, when there were fewer, why no host took the
        next one."""
        placed = self.of(region, cluster, provider).place(wanted, draws)
        for arn in placed.arns:
            self._mark(region, cluster, arn)
        return list(placed.arns), placed.refusals

    def _refresh(self, place: str, kept: _Kept) -> None:
        for arn in kept.marked:
            entry = self._instances.get(f"{place}/{names.last_part(arn)}")
            named = entry and (not kept.provider or kept.provider == _provider_of(entry))
            if entry is not None and named:
                kept.board.put(self._seen(entry))
            else:
                kept.board.drop(arn)
        kept.marked.clear()

    def _on_instance(self, key: str, before: Entry[InstanceRecord] | None, after: Entry[InstanceRecord] | None) -> None:
        known = after or before
        if known is not None:
            self._mark(known.value.region, known.value.cluster, known.value.arn)

    def _mark(self, region: str, cluster: str, arn: str) -> None:
        for kept in self._kept.get(f"{region}/{cluster}", {}).values():
            kept.marked.add(arn)


def _provider_of(entry: Entry[InstanceRecord]) -> str:
    return capacity.provider_of(entry.value.instance.attributes)
