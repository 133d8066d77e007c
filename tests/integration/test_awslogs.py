"""The log driver awslogs end to end: real containers on a real engine, the relay, the agent, the control plane.

Long forms of the same with SEXTON_SOAK=1.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine import PrivateEngine
from images import build_busybox
from node import Node, until

SOAK = os.environ.get("SEXTON_SOAK") == "1"
TASKS = 20 if SOAK else 6
MEGABYTES = 50 if SOAK else 12
FROZEN_SECONDS = 30 if SOAK else 4
KILLS = 20 if SOAK else 3

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900 if SOAK else 150)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with PrivateEngine(tmp_path_factory.mktemp("engine"), live_restore=True) as engine:
        build_busybox(engine.url)
        yield engine


@pytest.fixture
def node(engine: PrivateEngine, tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "node", engine.url, split=True) as node:
        yield node


def run(
    node: Node, script: str, group: str = "/tasks", count: int = 1, volume: Path | None = None, **options: str
) -> list[str]:
    """Run tasks that log to a group; their ids. ``volume`` is at /go."""
    ecs = node.ecs()
    given = {"awslogs-group": group, "awslogs-region": "us-east-1", "awslogs-stream-prefix": "p"} | {
        name.replace("_", "-"): value for name, value in options.items()
    }
    container = {
        "name": "main",
        "image": "sexton/busybox:latest",
        "command": ["sh", "-c", script],
        "memory": 64,
        "logConfiguration": {"logDriver": "awslogs", "options": given},
    }
    volumes = []
    if volume is not None:
        container["mountPoints"] = [{"sourceVolume": "go", "containerPath": "/go"}]
        volumes = [{"name": "go", "host": {"sourcePath": str(volume)}}]
    family = f"f{time.time_ns()}"
    ecs.register_task_definition(family=family, networkMode="none", containerDefinitions=[container], volumes=volumes)
    arns: list[str] = []
    while len(arns) < count:
        answer = ecs.run_task(taskDefinition=family, count=min(10, count - len(arns)))
        assert answer["failures"] == []
        arns += [one["taskArn"] for one in answer["tasks"]]
    return [arn.rpartition("/")[2] for arn in arns]


def status(node: Node, task: str) -> str:
    return str(node.ecs().describe_tasks(tasks=[task])["tasks"][0]["lastStatus"])


def lines(node: Node, task: str, group: str = "/tasks") -> list[str]:
    """Everything in a task's stream."""
    logs, found, token = node.client("logs"), [], None
    while True:
        more = {"nextToken": token} if token else {}
        try:
            page = logs.get_log_events(logGroupName=group, logStreamName=f"p/main/{task}", startFromHead=True, **more)
        except logs.exceptions.ResourceNotFoundException:
            return []
        found += [one["message"] for one in page["events"]]
        if page["nextForwardToken"] == token:
            return found
        token = page["nextForwardToken"]


def test_a_line_is_seen_within_two_seconds_and_the_rest_after_the_end(node: Node) -> None:
    logs = node.client("logs")
    logs.create_log_group(logGroupName="/tasks")
    (task,) = run(node, "while read -t 1 x < /dev/zero; do :; done; for i in 1 2 3; do date +%s.$i; sleep 1; done")
    until(lambda: status(node, task) in ("RUNNING", "STOPPED"), "it runs")
    seen: dict[str, float] = {}

    def poll() -> bool:
        for one in lines(node, task):
            seen.setdefault(one, time.time())
        return len(seen) == 3

    until(poll, "all lines are there", 20)
    # The shell's clock has whole seconds only.
    assert all(at - float(line.partition(".")[0]) < 3.0 for line, at in seen.items()), seen
    until(lambda: status(node, task) == "STOPPED", "it stopped")
    stream = logs.describe_log_streams(logGroupName="/tasks")["logStreams"][0]["logStreamName"]
    assert stream == f"p/main/{task}"


def test_the_options_of_a_definition_have_their_meaning(node: Node) -> None:
    script = r"printf 'A one\n  more of one\nA two\n'; sleep 0.2; printf 'A three\n'"
    (task,) = run(node, script, "/made", awslogs_create_group="true", awslogs_multiline_pattern="^A")
    (dated,) = run(
        node, r"printf '[2026] x\ny\n[2027] z\n'", "/made", awslogs_datetime_format="[%Y]", awslogs_create_group="true"
    )
    (quick,) = run(node, "echo quick", "/made", mode="non-blocking", awslogs_create_group="true")
    until(lambda: len(lines(node, task, "/made")) == 3, "three events", 20)
    assert lines(node, task, "/made")[0].splitlines() == ["A one", "  more of one"]
    until(
        lambda: [one.splitlines() for one in lines(node, dated, "/made")] == [["[2026] x", "y"], ["[2027] z"]], "", 20
    )
    until(lambda: lines(node, quick, "/made") == ["quick"], "the line of the third", 20)


def test_a_group_that_does_not_exist_is_the_end_of_the_task_and_says_so(node: Node) -> None:
    (task,) = run(node, "echo never", "/none")
    until(lambda: status(node, task) == "STOPPED", "it stopped")
    told = node.ecs().describe_tasks(tasks=[task])["tasks"][0]
    text = json.dumps([told["stoppedReason"], told["containers"][0].get("reason")])
    assert "The specified log group does not exist" in text and "CannotStartContainerError" in text
    assert not list((node.root / "agent/logspool").glob("*/way.json"))


def test_everything_arrives_in_order_and_no_task_slows_down_while_the_log_store_stands_still(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same tasks write the same lines three times: while the store is well, while it stands still, and while it
    lives for a tenth of each second."""
    node.client("logs").create_log_group(logGroupName="/tasks")
    count = MEGABYTES * 1_000_000 // TASKS // 100 // len(ROUNDS if not SOAK else "1")
    lines_of = f"awk 'BEGIN{{for(i=0;i<{count};i++) printf \"%d {'x' * 90}\\n\", i}}'"
    script = "; ".join(
        f"while [ ! -e /go/{one} ]; do usleep 20000; done; read a b < /proc/uptime; {lines_of}; echo {one}; "
        f"read c b < /proc/uptime; echo $a $c > /go/{one}-$HOSTNAME"
        for one in ROUNDS
    )
    go = node.root / "go"
    go.mkdir()
    tasks = run(node, script, count=TASKS, volume=go)
    until(lambda: all(status(node, task) == "RUNNING" for task in tasks), "all run", 60)
    took = {}
    memory = [0, 0, 0]

    def written(one: str) -> list[Path]:
        found = [max(pair) for pair in zip(memory, _megabytes(node), strict=True)]
        memory[:] = found
        return [file for file in go.glob(f"{one}-*") if file.read_text().count(" ") == 1]

    for one in ROUNDS:
        with DISTURBED[one](node.control.pid) if one in DISTURBED else contextlib.nullcontext():
            begun = time.monotonic()
            (go / one).touch()
            until(lambda one=one: len(written(one)) == TASKS, f"all have written: {one}", 120)
            if one == "frozen":
                until(lambda begun=begun: time.monotonic() - begun > FROZEN_SECONDS, "", FROZEN_SECONDS + 5)
            times = [float(end) - float(start) for start, end in (file.read_text().split() for file in written(one))]
        took[one] = sorted(times)[len(times) // 2]
        until(lambda one=one: all(one in lines(node, task)[-1:] for task in tasks), "all of it arrived", 120)
    until(lambda: all(status(node, task) == "STOPPED" for task in tasks), "all stopped", 60)
    expected = [line for one in ROUNDS for line in (*map(str, range(count)), one)]
    for task in tasks:
        assert [one.partition(" ")[0] for one in lines(node, task)] == expected
    with capsys.disabled():
        if SOAK:
            print(f"\nseconds to write {count * 100 * TASKS / 1e6:.0f} MB: {took}; at most {memory} MiB")
    assert not (node.root / "agent/logspool/dropped").exists()
    assert all(took[one] < 2 * took["well"] + 0.5 for one in ROUNDS), took
    assert all(one < 160 for one in memory), memory  # MiB of control plane, agent and relay


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def slow(pid: int) -> Iterator[None]:
    enough = threading.Event()

    def disturb() -> None:
        while not enough.is_set():
            with standing_still(pid):
                enough.wait(0.9)
            enough.wait(0.1)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


ROUNDS = ("well", "frozen", "slow", "again") if SOAK else ("well", "frozen", "slow")
DISTURBED = {"frozen": standing_still, "slow": slow}


def _megabytes(node: Node) -> list[int]:
    """Resident memory of control plane, agent and relay."""
    return [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4 // 1024 for pid in _pids(node)]


def _pids(node: Node) -> list[int]:
    return [node.control.pid, node.agent.pid, node.relay()]


def test_kills_of_agent_relay_and_control_plane_lose_nothing_and_double_nothing(node: Node) -> None:
    node.client("logs").create_log_group(logGroupName="/tasks")
    rounds = KILLS * 3
    total = rounds * 20 + 20
    tasks = run(node, f"i=0; while [ $i -lt {total} ]; do echo $i; i=$((i+1)); sleep 0.05; done", count=2)
    for task in tasks:
        until(lambda task=task: lines(node, task), "its first lines", 30)
    for number in range(rounds):
        match number % 3:
            case 0:
                node.agent.kill()
                node.start_agent()
            case 1:
                os.kill(node.relay(), signal.SIGKILL)
                until(lambda: node.relay(), "another relay", 20)
            case 2:
                node.control.kill()
                node.start_control()
                until(node.agent_is_connected, "the agent is connected again", 60)
    for task in tasks:
        until(lambda task=task: status(node, task) == "STOPPED", "it stopped", 120)
        until(lambda task=task: len(lines(node, task)) >= total, "all its lines", 40)
        assert lines(node, task) == [str(number) for number in range(total)]


def test_a_restarted_engine_goes_on_writing(node: Node, engine: PrivateEngine) -> None:
    node.client("logs").create_log_group(logGroupName="/tasks")
    (task,) = run(node, "i=0; while true; do echo $i; i=$((i+1)); sleep 0.1; done")
    until(lambda: lines(node, task), "its first lines", 30)
    engine.terminate()
    engine.start()
    known = len(lines(node, task))
    until(lambda: len(lines(node, task)) > known + 20, "more lines", 60)
    node.ecs().stop_task(task=task)
    until(lambda: status(node, task) == "STOPPED", "it stopped", 60)


def test_what_finds_no_room_is_counted_and_its_place_marked(engine: PrivateEngine, tmp_path: Path) -> None:
    with Node(tmp_path / "node", engine.url, split=True, environment={"SEXTON_LOG_SPOOL_MB": "8"}) as node:
        node.client("logs").create_log_group(logGroupName="/tasks")
        line = "x" * 1000
        write = f"awk 'BEGIN{{for(i=0;i<14000;i++) print \"{line}\"}}'"
        (task,) = run(node, f"echo first; sleep 6; {write}; sleep 1; echo last; sleep 300")
        until(lambda: lines(node, task), "its first line", 30)
        until((node.root / "agent/logspool/standing.json").exists, "the agent says how deliveries are")
        assert doctor(node) == []
        node.control.kill()
        dropped = node.root / "agent/logspool/dropped"
        until(dropped.exists, "something is dropped", 60)
        until(lambda: sum(one.stat().st_size for one in dropped.parent.glob("*/*.spool")) > 5 << 20, "it is full", 20)
        assert sum(one.stat().st_size for one in dropped.parent.glob("*/*.spool")) < (8 << 20) + 4096
        (finding,) = until(lambda: doctor(node), "the caretaker knows of it", 30)
        assert (finding["fingerprint"], finding["severity"]) == ("logs/dropped", "critical")
        assert "the spool is full" in finding["title"]
        node.start_control()
        until(node.agent_is_connected, "the agent is connected again", 60)
        until(lambda: "last" in lines(node, task), "all that found room is delivered", 60)
        node.ecs().stop_task(task=task)
        until(lambda: status(node, task) == "STOPPED", "it stopped", 60)
        kept = [one for one in lines(node, task) if one.endswith(line)]
        lost = int(dropped.read_text().split()[0])
        assert 0 < lost < 14000 and len(kept) + lost == 14000
        marks = [one for one in lines(node, task) if one.endswith("lines found no room and are lost")]
        assert sum(int(one.split()[1]) for one in marks) == lost


def doctor(node: Node) -> list[dict[str, str]]:
    """What the caretaker finds when it looks at log lines only."""
    words = ("doctor", "--probe", "log lines", "--state-dir", f"{node.root}/agent", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "sexton", *words],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "DOCKER_HOST": node.engine_url,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return list(json.loads(done.stdout)["findings"])


def sexton(node: Node, *words: str, here: bool) -> str:
    """What the command line says, on the task's host or on another machine."""
    folder = node.root / ("agent" if here else "nowhere")
    done = subprocess.run(
        [sys.executable, "-m", "sexton", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(node.root)}
        | node.credentials()
        | {"ECS_DATADIR": str(folder), "AWS_ENDPOINT_URL": node.endpoint},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("here", [True, False], ids=["on its host", "from another machine"])
def test_sexton_logs_reads_a_task_from_its_host_and_from_its_group(node: Node, here: bool) -> None:
    node.client("logs").create_log_group(logGroupName="/tasks")
    (task,) = run(node, "for i in 1 2 3 4; do echo line $i; done; sleep 2; echo later 5; sleep 1")
    until(lambda: "line 4" in lines(node, task), "its first lines", 30)

    followed = sexton(node, "logs", task, "main", "--follow", here=True) if here else ""
    until(lambda: "later 5" in lines(node, task), "its last line", 30)
    assert followed.splitlines() == (["line 1", "line 2", "line 3", "line 4", "later 5"] if here else [])
    assert sexton(node, "logs", task, here=here).splitlines()[0] == "main | line 1"
    assert sexton(node, "logs", task, "main", "--tail", "2", here=here).split("\n")[:2] == ["line 4", "later 5"]
    assert sexton(node, "logs", task, "main", "--grep", "3|4$", here=here).splitlines() == ["line 3", "line 4"]
    events = node.client("logs").filter_log_events(logGroupName="/tasks", logStreamNames=[f"p/main/{task}"])["events"]
    last = next(one["timestamp"] for one in events if one["message"] == "later 5")
    moment = datetime.fromtimestamp(last / 1000 - 0.5, UTC).isoformat()
    assert sexton(node, "logs", task, "main", "--since", moment, here=here).splitlines() == ["later 5"]
    assert len(sexton(node, "logs", task, "main", "--since", "10m", here=here).splitlines()) == 5


def test_nothing_is_left_of_ways_that_are_over(engine: PrivateEngine, tmp_path: Path) -> None:
    quick = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s"}
    with Node(tmp_path / "node", engine.url, split=True, leave_nothing=True, environment=quick) as node:
        node.client("logs").create_log_group(logGroupName="/tasks")
        (task,) = run(node, "echo x")
        until(lambda: lines(node, task) == ["x"], "its line", 30)
        assert node.relay()
        until(lambda: not list((node.root / "agent/logspool").glob("*/way.json")), "its way is gone", 60)
        node.terminate()
        until(lambda: not node.relay(), "the relay ended", 10)
