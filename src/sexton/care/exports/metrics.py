"""The caretaker's metrics in Prometheus' text format.

Names, labels and help texts are those of ``care/metric_names.py``. The library is loaded at the first scrape: a host
that nobody scrapes does not carry it. What is served is what the last round knew; a scrape never looks at the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sexton.care import metric_names as names
from sexton.care.metric_names import Kind, Metric
from sexton.care.snapshot import Snapshot
from sexton.core.ledger import Record, Sight

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The word for a shape in a finding's evidence is the label's value; a loop whose shape is not told has this one.
SHAPE_UNKNOWN = "restart"


def render(snapshot: Snapshot) -> bytes:
    """The page."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    return bytes(generate_latest(registry))


class _Collector:
    """Turns one snapshot into families; made anew for each scrape."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        for metric, samples in samples_of(self._snapshot):
            yield _family(metric, samples)


Samples = Mapping[tuple[str, ...], float]


def samples_of(seen: Snapshot) -> Iterator[tuple[Metric, Samples]]:
    """Each metric with its values by label; a metric without a value is left out."""
    memcg = seen.figures.get("memcg", {})
    for metric, key in ((names.MEMCG_TRACKED, "tracked"), (names.MEMCG_LIVE, "live"), (names.MEMCG_ZOMBIES, "zombies")):
        if key in memcg:
            yield metric, {(): float(memcg[key])}
    if seen.zombie_growth is not None:
        yield names.MEMCG_GROWTH, {(): seen.zombie_growth}
    heard = [record for record in seen.records if record.open and not record.is_muted(seen.now)]
    yield (
        names.FINDINGS,
        {(one.fingerprint, one.finding.severity.value, one.fingerprint.partition("/")[0]): 1.0 for one in heard},
    )
    yield names.LOOPS, {(one.fingerprint.partition("/")[2], shape_of(one)): 1.0 for one in heard if _is_loop(one)}
    yield names.UNIT_RESTARTS, {(unit,): float(many) for unit, many in seen.figures.get("units", {}).items()}
    yield names.PROBE_SECONDS, {(probe,): spent for probe, spent in seen.seconds.items()}
    yield names.PROBE_UP, {(eye.probe,): float(eye.sight is not Sight.BLIND) for eye in seen.eyes}
    yield names.CARE_CPU, {(): seen.cpu_seconds}
    yield names.CARE_ROUNDS, {(): float(seen.rounds)}
    counts: dict[tuple[str, ...], float] = {}
    for action in seen.actions:
        key_of = (action.plan.remedy, action.outcome.value)
        counts[key_of] = counts.get(key_of, 0.0) + 1
    yield names.CARE_ACTIONS, counts


def _is_loop(record: Record) -> bool:
    return record.fingerprint.startswith(("unit-loop/", "container-loop/"))


def shape_of(record: Record) -> str:
    """Which kind of loop it is, in one word."""
    told = next((item.value for item in record.finding.evidence if item.what == "shape"), "")
    for word, shape in (
        ("however", "always"),
        ("each time it fails", "on-failure"),
        ("triggered", "timer"),
        ("somebody", "by-hand"),
        ("inside", "inside"),
    ):
        if word in told:
            return shape
    return SHAPE_UNKNOWN


def _family(metric: Metric, samples: Samples) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in sorted(samples.items()):
        family.add_metric(labels, value)
    return family
