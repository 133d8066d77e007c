"""The credentials endpoint under load: many tasks that ask now and then, and one that asks all the time.

Each request is a connection of its own, as SDKs make them. Beside the greedy one what is asserted is a ratio to what
the same machine did a moment before. With ``SEXTON_SOAK=1`` and a machine of one's own the whole promise is: a real
agent, 20 containers with a role each, 2,000 requests a second for a minute from inside their networks, 99 of 100
within 20 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rolelab import ROLE, RoleLab, statement
from sexton.agent.metadata.server import PATHS_AT_ONCE

SOAK = os.environ.get("SEXTON_SOAK") == "1"
TASKS = 20
SECONDS = 60.0 if SOAK else 3.0
CONTAINERS, RATE = (20, 2000) if SOAK else (3, 200)
TESTS = Path(__file__).parent.parent

pytestmark = pytest.mark.timeout(300 if SOAK else 60)


@contextlib.contextmanager
def server(rate: float, burst: float) -> Iterator[int]:
    command = [sys.executable, str(TESTS / "credentials_server.py"), str(TASKS)]
    with subprocess.Popen([*command, str(rate), str(burst)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


class Load(NamedTuple):
    """How long answers took, sorted, and which there were."""

    seconds: list[float]
    answers: Counter[str]

    @property
    def p99(self) -> float:
        return self.seconds[int(len(self.seconds) * 0.99)]


async def ask(port: int, number: int, path: str = "") -> str:
    """One request of a task; the status, or the name of what went wrong."""
    try:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{number + 1}", 0))
            head = f"GET /v2/credentials/{path or f'id{number}'} HTTP/1.1\r\nHost: 169.254.170.2\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            return answer[9:12].decode() or "nothing"
    except (OSError, TimeoutError) as error:
        return type(error).__name__


async def steady(port: int, tasks: range, rate: float, seconds: float) -> Load:
    """So many requests a second of these tasks together, each at its time whatever became of those before."""
    loop = asyncio.get_running_loop()
    load = Load([], Counter())

    async def one(number: int, due: float) -> None:
        await asyncio.sleep(due - loop.time())
        load.answers[await ask(port, number)] += 1
        load.seconds.append(loop.time() - due)

    begin = loop.time() + 0.1
    many = int(rate * seconds)
    await asyncio.gather(*(one(tasks[n % len(tasks)], begin + n / rate) for n in range(many)))
    load.seconds.sort()
    return load


async def greedy(port: int, number: int, hands: int, enough: asyncio.Event, *, wander: bool) -> Counter[str]:
    """Ask as fast as it goes, with many connections at a time; ``wander`` from path to path."""
    found: Counter[str] = Counter()

    async def hand(mine: int) -> None:
        turn = 0
        while not enough.is_set():
            turn += 1
            found[await ask(port, number, f"wrong{mine}-{turn}" if wander else "")] += 1

    await asyncio.gather(*(hand(one) for one in range(hands)))
    return found


@pytest.mark.parametrize("wander", [False, True], ids=["its own path", "ever new paths"])
async def test_one_greedy_task_does_not_starve_the_others(wander):
    others, enough = range(1, TASKS), asyncio.Event()
    with server(4, 6) as port:
        alone = await steady(port, others, 40.0, SECONDS)
        began = asyncio.get_running_loop().time()
        taking = asyncio.ensure_future(greedy(port, 0, 60, enough, wander=wander))
        beside = await steady(port, others, 40.0, SECONDS)
        enough.set()
        took = await taking
        elapsed = asyncio.get_running_loop().time() - began

    assert alone.answers == {"200": len(alone.seconds)}
    assert beside.answers == {"200": len(beside.seconds)}, "nobody else is refused or forgotten"
    assert beside.p99 < 10 * alone.p99 + 0.25, (alone.p99, beside.p99)
    allowance = (4 * elapsed + 6) * (PATHS_AT_ONCE if wander else 1)
    assert 0 < took["200"] + took["400"] <= allowance + 1 and took["429"], took


@pytest.mark.docker
def test_many_tasks_are_answered_in_time(engine_session, tmp_path, capsys):
    """From inside real containers, by a real agent, with the audit log and every check of who asks."""
    roles = {"app": [statement("ecs:ListClusters")]}
    each = f"{RATE // CONTAINERS * 2},{RATE}"
    with RoleLab(tmp_path, engine_session, roles, ECS_TASK_METADATA_RPS_LIMIT=each) as lab:
        container = {"name": "main", "image": lab.image, "memory": 16, "command": ["sleep", "1000000"]}
        lab.ecs.register_task_definition(family="asks", containerDefinitions=[container], taskRoleArn=ROLE + "app")
        tasks = [lab.run("asks") for _ in range(CONTAINERS)]
        places = [
            {
                "path": lab.environment(task)["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"],
                "namespace": f"/proc/{lab.container(task)['State']['Pid']}/ns/net",
            }
            for task in tasks
        ]
        plan = {"address": ["169.254.170.2", 80], "rate": RATE, "seconds": SECONDS, "places": places}
        before = busy_seconds(lab.node.agent.pid)
        asked = subprocess.run(
            [sys.executable, str(TESTS / "credentials_load.py")],
            input=json.dumps(plan),
            capture_output=True,
            text=True,
            check=True,
        )
        cost = (busy_seconds(lab.node.agent.pid) - before) / (RATE * SECONDS)
        lines = (tmp_path / "agent/audit.log").read_text().count(" GetCredentials 2 ") if not SOAK else 0

    found = json.loads(asked.stdout)
    assert found["answers"] == {"200": RATE * SECONDS}
    assert SOAK or lines == RATE * SECONDS, "each has its line"
    if SOAK:
        with capsys.disabled():
            times = ", ".join(f"{name} {found[name] * 1000:.1f} ms" for name in ("p50", "p99", "longest"))
            print(f"\n{times}; {cost * 1e6:.0f} us of processor time a request")
        assert found["p99"] < 0.020, found


def busy_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
