"""The hosts of a board in the order in which one kind of task would take them.

A lane belongs to one ``Wanted``: it knows which hosts can take the task and keeps them ranked, and for every other
host why not. It is told of each host that changed and then answers without looking at the rest, so placing costs
the same on ten hosts as on a thousand, but for the logarithm of a search.

Hosts lie in buckets by the values of the attributes that are spread over, sorted inside by their own rank. A bucket
stands or falls as a whole with the group's tasks on its hosts, so only the first host of each bucket competes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from sexton.core.placement import Host, Refusal, Wanted, refuse
from sexton.core.strategy import Rank, Ranking

# The values of the spread attributes; hosts without one are together.
_Bucket = tuple[str | None, ...]
_Ranked = tuple[Rank, str]
# After every ARN in the order of texts.
_PAST_EVERY_ARN = "\U0010ffff"


class _Entry(NamedTuple):
    """What the lane knows of one host: its rank, or why it cannot take the task."""

    bucket: _Bucket
    of_group: int
    rank: Rank | None
    refusal: Refusal | None


class Lane:
    """Ranked hosts for one kind of task. ``seen`` is the board's latest change that it knows."""

    __slots__ = ("_buckets", "_entries", "_ranking", "_totals", "_wanted", "seen")

    def __init__(self, wanted: Wanted) -> None:
        self.seen = 0
        self._wanted = wanted
        self._ranking = Ranking(wanted.strategies)
        self._entries: dict[str, _Entry] = {}
        self._buckets: dict[_Bucket, list[_Ranked]] = {}
        self._totals: tuple[Counter[str | None], ...] = tuple(Counter() for _ in self._ranking.attributes)

    def put(self, host: Host) -> None:
        """The host as it is now."""
        wanted = self._wanted
        refusal = refuse(host, wanted.demand, wanted.required, wanted.rules, wanted.group)
        of_group = host.groups.get(wanted.group, 0)
        rank = self._ranking.own(host, of_group) if refusal is None else None
        bucket = tuple(
            [host.values.get(name, "" if name in host.attributes else None) for name in self._ranking.attributes]
        )
        entry = _Entry(bucket, of_group, rank, refusal)
        before = self._entries.get(host.arn)
        if before is not None:
            if before == entry:
                return
            self._out(host.arn, before)
        self._entries[host.arn] = entry
        for total, value in zip(self._totals, bucket, strict=True):
            total[value] += of_group
        if rank is not None:
            insort(self._buckets.setdefault(bucket, []), (rank, host.arn))

    def drop(self, arn: str) -> None:
        """The host is gone."""
        entry = self._entries.pop(arn, None)
        if entry is not None:
            self._out(arn, entry)

    def _out(self, arn: str, entry: _Entry) -> None:
        for total, value in zip(self._totals, entry.bucket, strict=True):
            total[value] -= entry.of_group
            if not total[value]:
                del total[value]
        if entry.rank is None:
            return
        ranked = self._buckets[entry.bucket]
        del ranked[bisect_left(ranked, (entry.rank, arn))]
        if not ranked:
            del self._buckets[entry.bucket]

    def best(self, draw: float) -> str | None:
        """The host to take, or None when none can. ``draw``, from 0 to below 1, decides where chance has to."""
        fronts = [(self._front(bucket, ranked), ranked) for bucket, ranked in self._buckets.items()]
        if not fronts:
            return None
        least = min([rank for rank, _ in fronts])
        tied = sorted([ranked for rank, ranked in fronts if rank == least], key=lambda ranked: ranked[0][1])
        if not self._ranking.random:
            return tied[0][0][1]
        return _nth(tied, draw)

    def _front(self, bucket: _Bucket, ranked: list[_Ranked]) -> Rank:
        totals = [total[value] for total, value in zip(self._totals, bucket, strict=True)]
        return self._ranking.full(totals, ranked[0][0])

    def refusals(self) -> tuple[Refusal, ...]:
        """Why not, for every host that cannot take the task, by ARN."""
        return tuple(sorted(self._refusals(), key=lambda refusal: refusal.arn))

    def _refusals(self) -> Iterator[Refusal]:
        for entry in self._entries.values():
            if entry.refusal is not None:
                yield entry.refusal


def _nth(tied: list[list[_Ranked]], draw: float) -> str:
    """One of all hosts that share the first rank of their bucket, each as likely as the other."""
    sizes = [bisect_right(ranked, (ranked[0][0], _PAST_EVERY_ARN)) for ranked in tied]
    number = min(int(draw * sum(sizes)), sum(sizes) - 1)
    for ranked, size in zip(tied, sizes, strict=True):
        if number < size:
            return ranked[number][1]
        number -= size
    return tied[0][0][1]
