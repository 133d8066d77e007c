"""Alert rules and dashboard, held against Debian's Prometheus and against what a caretaker really publishes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from sexton.care.exports.metrics import CONTENT_TYPE, render
from sexton.care.metric_names import METRICS, Kind
from sexton.care.snapshot import Snapshot
from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.ledger import Eye, Record, Sight

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus/sexton.rules.yml"
DASHBOARD = PACKAGING / "grafana/sexton-fleet.json"
# Loading and the first scrape take a second or two on a quiet machine.
DEADLINE = 45.0

PUBLISHED = {metric.name + ("_total" if metric.kind is Kind.COUNTER else ""): metric for metric in METRICS}
# Labels that the scrape configuration adds.
GIVEN = {"image", "zone", "instance", "job"}


def promtool(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, words)], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    """What the dashboard asks, its variables filled in as Grafana does for "all"."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        target["expr"].replace("$image", ".*").replace("$zone", ".*") for panel in panels for target in panel["targets"]
    ]


@pytest.mark.timeout(60)
def test_the_rules_are_sound_and_do_what_their_tests_say():
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", RULES.with_suffix(".test.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_tested():
    told = yaml.safe_load(RULES.with_suffix(".test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in told for case in test.get("alert_rule_test", ()) if case["exp_alerts"]}

    assert {rule["alert"] for rule in rules() if "alert" in rule} == fired


@pytest.mark.timeout(60)
def test_the_dashboards_queries_are_sound(tmp_path):
    made = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(queries())]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    checked = promtool("check", "rules", path)

    assert made
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_rules_and_dashboard_name_only_what_is_published():
    for expr in [rule["expr"] for rule in rules()] + queries():
        for name in re.findall(r"(?<![:\w])sexton_[a-z_]+", expr):
            assert name in PUBLISHED, expr
        labels = {label for metric in PUBLISHED.values() for label in metric.labels} | GIVEN
        for listed in re.findall(r"\b(?:by|on|group_left|group_right|without) \(([^)]*)\)", expr):
            assert {label.strip() for label in listed.split(",") if label.strip()} <= labels, expr
        for listed in re.findall(r"\{([^}]*)\}", expr):
            assert set(re.findall(r"(\w+)\s*[=!]", listed)) <= labels, expr


def test_the_dashboard_can_be_imported():
    board = json.loads(DASHBOARD.read_text())
    numbers = [panel["id"] for panel in board["panels"]]

    assert len(set(numbers)) == len(numbers)
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "image", "zone"}
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in board["panels"])
    places = {(x, y) for panel in board["panels"] for x, y in cells(panel["gridPos"])}
    assert len(places) == sum(
        panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in board["panels"]
    )  # none overlap


def cells(place: dict[str, int]) -> list[tuple[int, int]]:
    return [
        (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
    ]


FIGURES = {
    "/sick": {"tracked": 68680, "live": 240, "zombies": 68440},
    "/well": {"tracked": 250, "live": 240, "zombies": 10},
}
SEEN = 1_000_000.0


def page(path: str) -> bytes:
    """What a caretaker of such a host serves, written by its own exporter."""
    loop = Finding(
        fingerprint="unit-loop/ecs.service",
        severity=Severity.CRITICAL,
        title="ecs.service crash-loops",
        culprit="ecs.service",
        evidence=(Evidence("shape", "the unit stays up and what it starts inside dies young", "test"),),
        next_step="",
    )
    sick = path == "/sick"
    record = Record(finding=loop, views={}, open=True, first_seen=SEEN, last_seen=SEEN, opened=SEEN)
    return render(
        Snapshot(
            now=SEEN,
            records=(record,) if sick else (),
            actions=(),
            eyes=(Eye(probe="memcg", sight=Sight.LOOKED, says="", since=SEEN),),
            figures={"memcg": FIGURES[path], "units": {"ecs.service": 360}},
            seconds={"memcg": 0.001},
            zombie_growth=300.0 if sick else 0.0,
            cpu_seconds=1.0,
            rounds=1,
        )
    )


@pytest.fixture
def caretakers() -> Iterator[int]:
    """The metrics ports of two hosts, as one server with two paths."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page(self.path)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.timeout(90)
def test_a_real_prometheus_scrapes_a_caretakers_page_and_answers_every_panel(tmp_path, caretakers):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jobs = [
        {
            "job_name": f"sexton-{name}",
            "metrics_path": f"/{name}",
            "static_configs": [
                {"targets": [f"127.0.0.1:{caretakers}"], "labels": {"image": "dlami", "zone": zone, "instance": name}}
            ],
        }
        for name, zone in (("sick", "1a"), ("well", "1b"))
    ]
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    command = [
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            wait_for(port, "count(sexton:memcg_ratio) == 2 and on() count(image_zone:sexton_memcg_ratio:avg) == 2")
            ratio = ask(port, "sexton:memcg_ratio")
            assert {row["metric"]["instance"]: round(float(row["value"][1]), 1) for row in ratio} == {
                "sick": 286.2,
                "well": 1.0,
            }
            (loop,) = ask(port, "sexton_loops == 1")
            assert (loop["metric"]["unit"], loop["metric"]["shape"], loop["metric"]["zone"]) == (
                "ecs.service",
                "inside",
                "1a",
            )
            wait_for(port, 'ALERTS{alertname="SextonLoop", alertstate="pending"}')
            for expr in queries():  # a rate needs two scrapes, whenever they come
                wait_for(port, expr)
        finally:
            server.terminate()
    checked = promtool("check", "metrics", stdin=page("/sick").decode())
    assert checked.returncode in (0, 3), checked.stderr  # 3: opinions about style
    assert "error while linting" not in checked.stderr


def ask(port: int, expr: str) -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return list(json.load(answer)["data"]["result"])


def wait_for(port: int, expr: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            if ask(port, expr):
                return
        except OSError:  # not listening yet, or not ready
            pass
        assert time.monotonic() < deadline, expr
        time.sleep(0.1)
