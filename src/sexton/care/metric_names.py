"""The metrics a caretaker publishes: one table that the exporter, the alert rules, the dashboard and the manual share.

Whoever exports takes names, labels and help texts from here; ``docs/metrics.md`` is made from it; a test compares the
shipped rules and the dashboard with it. A name is never given another meaning: dashboards outlive versions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Metric(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


MEMCG_TRACKED = Metric("sexton_memcg_tracked", Kind.GAUGE, (), "memory cgroups that the kernel holds")
MEMCG_LIVE = Metric("sexton_memcg_live", Kind.GAUGE, (), "memory cgroups that still have a directory")
MEMCG_ZOMBIES = Metric("sexton_memcg_zombies", Kind.GAUGE, (), "removed memory cgroups that the kernel still holds")
MEMCG_GROWTH = Metric(
    "sexton_memcg_growth_per_hour",
    Kind.GAUGE,
    (),
    "zombies more an hour, over the time since the earlier look; absent as long as that is not known",
)
FINDINGS = Metric(
    "sexton_findings",
    Kind.GAUGE,
    ("fingerprint", "severity", "kind"),
    "1 for each finding that is open and not muted; kind is the fingerprint up to its first slash",
)
LOOPS = Metric("sexton_loops", Kind.GAUGE, ("unit", "shape"), "1 for each loop that turns now, by its maker and shape")
UNIT_RESTARTS = Metric(
    "sexton_unit_restarts",
    Kind.GAUGE,
    ("unit",),
    "systemd's counter of automatic restarts, for service units that have restarted; a restart by hand clears it",
)
PROBE_SECONDS = Metric("sexton_probe_seconds", Kind.GAUGE, ("probe",), "how long the last look of this probe took")
PROBE_UP = Metric(
    "sexton_probe_up",
    Kind.GAUGE,
    ("probe",),
    "1 when the last look of this probe saw what it is for or found that this host has no such thing, 0 when it was "
    "blind",
)
CARE_CPU = Metric(
    "sexton_care_cpu_seconds",
    Kind.COUNTER,
    (),
    "processor time the caretaker has used, its children's included; within sexton up only that of its rounds",
)
CARE_ROUNDS = Metric("sexton_care_rounds", Kind.COUNTER, (), "rounds since the caretaker started")
CARE_ACTIONS = Metric(
    "sexton_care_actions", Kind.GAUGE, ("remedy", "outcome"), "actions on record, by remedy and how they ended"
)

METRICS: tuple[Metric, ...] = (
    MEMCG_TRACKED,
    MEMCG_LIVE,
    MEMCG_ZOMBIES,
    MEMCG_GROWTH,
    FINDINGS,
    LOOPS,
    UNIT_RESTARTS,
    PROBE_SECONDS,
    PROBE_UP,
    CARE_CPU,
    CARE_ROUNDS,
    CARE_ACTIONS,
)
