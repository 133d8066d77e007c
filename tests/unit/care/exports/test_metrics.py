"""Metrics: every name in the table is published, and labels may hold anything."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sexton.care.exports.metrics import render
from sexton.care.metric_names import METRICS
from sexton.care.snapshot import Snapshot
from sexton.core.action import Action, Outcome, Plan
from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.ledger import Eye, Mute, Record, Sight, View

NAME = 'unit-loop/a "quoted" \\ name\n.service'


def record(name: str = NAME, *, open_: bool = True, mute: Mute | None = None) -> Record:
    found = Finding(
        fingerprint=name,
        severity=Severity.CRITICAL,
        title="",
        culprit="",
        evidence=(Evidence("shape", "systemd restarts it however it ends", ""),),
        next_step="",
    )
    told = {"first_seen": 0.0, "last_seen": 0.0, "opened": 0.0, "mute": mute}
    return Record(finding=found, views={"p": View(found)} if open_ else {}, open=open_, **told)


PLAN = Plan(remedy="disable-unit", fingerprint=NAME, target="", says="", steps=())
SEEN = Snapshot(
    now=100.0,
    records=(
        record(),
        record("a/closed", open_=False),
        record("a/muted", mute=Mute(since=0.0, until=None, who="me")),
    ),
    actions=(Action(id="1", plan=PLAN, who="", why="", begun=0.0, outcome=Outcome.DONE),),
    eyes=(
        Eye(probe="memcg", sight=Sight.LOOKED, says="", since=0.0),
        Eye(probe="units", sight=Sight.BLIND, says="", since=0.0),
        Eye(probe="containers", sight=Sight.NOT_PRESENT, says="", since=0.0),
    ),
    figures={"memcg": {"tracked": 50, "live": 20, "zombies": 30}, "units": {"ecs.service": 360}},
    seconds={"memcg": 0.001},
    zombie_growth=12.5,
    cpu_seconds=1.25,
    rounds=7,
)


def values(seen: Snapshot) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(render(seen).decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def test_every_metric_of_the_table_is_there() -> None:
    names = {name.removesuffix("_total") for name, _ in values(SEEN)}

    assert names == {metric.name for metric in METRICS}


def test_what_they_say() -> None:
    found = values(SEEN)

    def value(name: str, **labels: str) -> float | None:
        return found.get((name, frozenset(labels.items())))

    assert value("sexton_memcg_zombies") == 30
    assert value("sexton_findings", fingerprint=NAME, severity="critical", kind="unit-loop") == 1
    assert len([name for name, _ in found if name == "sexton_findings"]) == 1
    assert value("sexton_loops", unit=NAME.partition("/")[2], shape="always") == 1
    assert value("sexton_unit_restarts", unit="ecs.service") == 360
    assert value("sexton_probe_up", probe="units") == 0
    assert value("sexton_probe_up", probe="containers") == 1
    assert value("sexton_care_actions", remedy="disable-unit", outcome="done") == 1
    assert value("sexton_care_cpu_seconds_total") == 1.25


def test_what_is_not_known_is_not_published() -> None:
    unknown = Snapshot(
        now=0.0,
        records=(),
        actions=(),
        eyes=(),
        figures={},
        seconds={},
        zombie_growth=None,
        cpu_seconds=0.0,
        rounds=0,
    )

    assert {name for name, _ in values(unknown)} == {"sexton_care_cpu_seconds_total", "sexton_care_rounds_total"}
