"""The caretaker beside a real systemd: a unit that loops is found, ended and kept from coming back, also when whoever
does it is killed at any instant; and the journal hears of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from node import Role, until
from sexton.care.exports.journal import message_id
from sexton.care.policy import read_policy
from sexton.care.remedies import disable_unit, reset_unit
from sexton.care.remedy import Ground
from sexton.cli.app import app
from sexton.core.action import Cannot, Plan
from sexton.core.finding import Finding, Severity
from sexton.core.ledger import Kind
from systemd import FIRST_BOOT_TIMEOUT, Systemd

pytestmark = pytest.mark.timeout(FIRST_BOOT_TIMEOUT)

LOOP = """
[Unit]
Description=stand-in agent {name}
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'exit 5'
Restart=on-failure
RestartSec=100ms
[Install]
WantedBy=multi-user.target
"""
UNITS = {
    "ecs.service": LOOP.format(name="ecs"),
    "killed.service": LOOP.format(name="killed"),
    "wanted.service": LOOP.format(name="wanted"),
    "wanting.target": "[Unit]\nWants=wanted.service\n",
    "timed.service": LOOP.format(name="timed"),
    "timed.timer": "[Timer]\nOnBootSec=1h\n[Install]\nWantedBy=timers.target\n",
    "gaveup.service": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
    "witness.service": "[Service]\nExecStart=/bin/sleep infinity\n",
}


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with Systemd(UNITS, tmp_path_factory.mktemp("systemd")) as running:
        running.systemctl("start", "witness.service", "timed.timer")
        running.systemctl("start", "--no-block", "ecs.service", "killed.service", "wanting.target", "timed.service")
        yield running


def show(systemd: Systemd, unit: str, *members: str) -> list[str]:
    told = systemd.systemctl("show", unit, *(f"-p{member}" for member in members)).stdout.splitlines()
    found = dict(line.split("=", 1) for line in told)
    return [found[member] for member in members]


def standing(systemd: Systemd, unit: str) -> list[str]:
    return show(systemd, unit, "ActiveState", "LoadState")


def finding(unit: str) -> Finding:
    told = {"severity": Severity.WARNING, "title": "loops", "evidence": (), "next_step": ""}
    return Finding(fingerprint=f"unit-loop/{unit}", culprit=unit, **told)


def ground(systemd: Systemd) -> Ground:
    rule = read_policy(Path("/nowhere")).remedies.disable_unit
    return Ground(root=systemd.root, docker_host="unix:///nowhere", rule=rule, now=time.time())


async def plan_of(systemd: Systemd, unit: str) -> Plan:
    planned = await disable_unit.plan(ground(systemd), finding(unit))
    assert isinstance(planned, Plan)
    return planned


async def carry_out(systemd: Systemd, planned: Plan, done: frozenset[str] = frozenset()) -> list[str]:
    return [did.key async for did in disable_unit.carry_out(ground(systemd), planned, done)]


def loops(systemd: Systemd, unit: str) -> bool:
    return int(show(systemd, unit, "NRestarts")[0] or 0) >= 3


async def test_a_unit_wanted_by_others_is_stopped_disabled_and_masked(systemd: Systemd) -> None:
    until(lambda: loops(systemd, "wanted.service"), "it loops")
    planned = await plan_of(systemd, "wanted.service")

    assert [step.key for step in planned.steps] == [
        *("stop wanted.service", "reset wanted.service", "disable wanted.service", "mask wanted.service")
    ]
    assert "wanted by wanting.target" in planned.steps[-1].says
    await carry_out(systemd, planned)
    assert standing(systemd, "wanted.service") == ["inactive", "masked"]
    assert (await disable_unit.prove(ground(systemd), planned)).holds
    # What wants it cannot bring it back, nor can somebody who starts it.
    systemd.systemctl("restart", "wanting.target")
    assert systemd.systemctl("start", "wanted.service").returncode != 0
    assert standing(systemd, "wanted.service") == ["inactive", "masked"]
    # Done again it does no more, and the undo it named brings everything back.
    again = await plan_of(systemd, "wanted.service")
    await carry_out(systemd, again)
    assert standing(systemd, "wanted.service") == ["inactive", "masked"]
    for line in planned.undo:
        assert systemd.run(*line.split()).returncode == 0, line
    until(lambda: loops(systemd, "wanted.service"), "it loops again")
    systemd.systemctl("stop", "wanted.service")


async def test_what_triggers_it_is_stopped_and_disabled_as_well(systemd: Systemd) -> None:
    planned = await plan_of(systemd, "timed.service")

    assert planned.touches == 2
    assert "stop timed.timer" in [step.key for step in planned.steps]
    assert "systemctl start timed.timer" in planned.undo
    await carry_out(systemd, planned)
    assert standing(systemd, "timed.timer")[0] == "inactive"
    assert standing(systemd, "timed.service")[0] == "inactive"


async def test_a_unit_that_is_not_there_has_no_plan(systemd: Systemd) -> None:
    gone = await disable_unit.plan(ground(systemd), finding("nothing-of-that-name.service"))

    assert isinstance(gone, Cannot)
    assert "nothing-of-that-name.service" in gone.reason


async def test_a_failed_unit_is_reset_and_one_that_has_not_failed_is_left(systemd: Systemd) -> None:
    systemd.systemctl("start", "gaveup.service")
    assert standing(systemd, "gaveup.service")[0] == "failed"
    rules = read_policy(Path("/nowhere")).remedies
    here = Ground(root=systemd.root, docker_host="unix:///nowhere", rule=rules.reset_unit, now=time.time())
    planned = await reset_unit.plan(here, finding("gaveup.service"))

    assert isinstance(planned, Plan)
    assert [did.key async for did in reset_unit.carry_out(here, planned, frozenset())] == ["reset gaveup.service"]
    assert standing(systemd, "gaveup.service")[0] == "inactive"
    assert (await reset_unit.prove(here, planned)).holds
    left = await reset_unit.plan(here, finding("witness.service"))
    assert isinstance(left, Cannot)
    assert standing(systemd, "witness.service")[0] == "active"


# Forked anew for each instant: starting an interpreter takes longer than all that it does here.
FIX = textwrap.dedent("""
    import asyncio, os, signal, sys, time
    from pathlib import Path
    from dbus_fast.aio import MessageBus
    from sexton.care.acting import Actor
    from sexton.care.ledger import ledger_file, open_ledger
    from sexton.care.remedies import disable_unit
    from sexton.core.policy import Policy
    from sexton.host import unit_control
    from sexton.store.sqlite import store as loaded

    root, count, instant = Path(sys.argv[1]), 0, 0

    def maybe_die():
        global count
        if count == instant:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    # Before and after each call that changes something, and each time something is written down.
    for name in ("stop", "disable", "mask", "reset_failed"):
        def wrap(original):
            async def call(self, *args):
                maybe_die()
                answer = await original(self, *args)
                maybe_die()
                return answer
            return call
        setattr(unit_control.UnitManager, name, wrap(getattr(unit_control.UnitManager, name)))

    async def main(data):
        async def look_again(probe):
            return None
        async with open_ledger(ledger_file(data)) as ledger:
            store_txn = ledger._store.txn
            async def txn(*args):
                answer = await store_txn(*args)
                maybe_die()
                return answer
            ledger._store.txn = txn
            actor = Actor(ledger, Policy(), root=root, docker_host="unix:///nowhere", look_again=look_again)
            if ledger.actions:
                await actor.finish(time.time())
            else:
                record = ledger.find("unit-loop/killed.service")
                async for _ in actor.fix(record, "disable-unit", "test", "it loops"):
                    pass

    for line in sys.stdin:
        data, instant = Path(line.split()[0]), int(line.split()[1])
        child = os.fork()
        if not child:
            asyncio.run(main(data))
            (data / "instants").write_text(str(count))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""")


class Fixer:
    """A process that forks one child after another, each of which dies at the instant it is told."""

    def __init__(self, systemd: Systemd) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", FIX, str(systemd.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def fix(self, data: Path, instant: int) -> int:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{data} {instant}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


async def ledger_of(data: Path) -> list[str]:
    from sexton.care.ledger import ledger_file, open_ledger

    async with open_ledger(ledger_file(data)) as ledger:
        return [action.outcome.value for action in ledger.actions]


async def seed(data: Path) -> None:
    from sexton.care.ledger import ledger_file, open_ledger
    from sexton.core.ledger import Look, Sight

    async with open_ledger(ledger_file(data)) as ledger:
        await ledger.file(Look(probe="units", sight=Sight.LOOKED, findings=(finding("killed.service"),)), time.time())


NEVER = 10_000
# Each change has three instants (before, after, written down): every second one meets each kind.
STRIDE = 1 if os.environ.get("SEXTON_SOAK") else 2


@pytest.fixture
def fixer(systemd: Systemd) -> Iterator[Fixer]:
    made = Fixer(systemd)
    try:
        yield made
    finally:
        made.close()


async def test_killed_at_any_instant_nothing_is_half_done(systemd: Systemd, fixer: Fixer, tmp_path: Path) -> None:
    """Real kills of a real process, before and after every change and every write, then one that finishes."""
    instant, instants = 0, NEVER
    while instant < instants:
        data = tmp_path / str(instant)
        await seed(data)
        assert systemd.systemctl("enable", "killed.service").returncode == 0
        until(lambda: loops(systemd, "killed.service"), "it loops")
        ended = fixer.fix(data, instant)
        if ended == 0:
            instants = int((data / "instants").read_text())
        else:
            assert ended == -signal.SIGKILL
            # An instant before anything was written down is one before anything was touched.
            if not await ledger_of(data):
                assert standing(systemd, "killed.service")[1] == "loaded"
            assert fixer.fix(data, NEVER) == 0
        assert await ledger_of(data) == ["done"], f"killed at instant {instant}"
        assert standing(systemd, "killed.service") == ["inactive", "masked"], f"killed at instant {instant}"
        assert not (systemd.root / "etc/systemd/system/multi-user.target.wants/killed.service").is_symlink()
        systemd.systemctl("unmask", "killed.service")
        systemd.systemctl("start", "--no-block", "killed.service")
        instant += STRIDE
    assert instants > 10
    systemd.systemctl("stop", "killed.service")


@pytest.fixture
def care(systemd: Systemd, tmp_path: Path) -> Iterator[Role]:
    policy = tmp_path / "care.toml"
    policy.write_text('[remedies.disable-unit]\nmode = "act"\nonly = ["ecs.service"]\nafter = 0\nmask = "always"\n')
    words = ("--data-dir", f"{tmp_path}/data", "--root", str(systemd.root), "--policy", str(policy))
    role = Role(
        "care",
        tmp_path / "care.log",
        [*words, "--docker-host", "unix:///nowhere.sock"],
        {**os.environ, "SEXTON_CARE_EVERY": "1s"},
    )
    try:
        yield role
    finally:
        role.kill()


def said(tmp_path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, words, env={"ECS_DATADIR": f"{tmp_path}/data"})


def test_found_ended_proved_and_told_to_the_journal(systemd: Systemd, care: Role, tmp_path: Path) -> None:
    systemd.systemctl("start", "--no-block", "ecs.service")
    until(lambda: loops(systemd, "ecs.service"), "it loops")
    care.start()
    until(lambda: standing(systemd, "ecs.service") == ["inactive", "masked"], "it is masked", 60.0)

    def resolved() -> dict[str, Any] | None:
        answer = json.loads(said(tmp_path, "explain", "unit-loop/ecs.service", "--json").stdout)
        return answer if answer["state"] == "resolved" and answer["actions"][0]["ended"] else None

    told = until(resolved, "it is proved and closed", 60.0)
    kinds = [entry["kind"] for entry in told["history"]]
    assert kinds[0] == Kind.OPENED
    assert kinds.index(Kind.ACTING) < kinds.index(Kind.STEP) < kinds.index(Kind.PROVED)
    (action,) = told["actions"]
    assert (action["outcome"], action["who"]) == ("done", "policy")
    assert str(tmp_path / "care.toml") in action["why"]
    text = said(tmp_path, "explain", "unit-loop/ecs.service").stdout
    order = text.partition("what happened, in order:")[2]
    assert order.index("opened: ") < order.index("acting: ") < order.index("done: ")
    # The journal of that host has the same, in fields.
    for kind in (Kind.OPENED, Kind.DONE):
        matches = (f"MESSAGE_ID={message_id(kind)}", "SEXTON_FINGERPRINT=unit-loop/ecs.service")
        found = systemd.run("journalctl", "-o", "json", "--no-pager", *matches).stdout
        (entry,) = [json.loads(line) for line in found.splitlines()]
        assert entry["SYSLOG_IDENTIFIER"] == "sexton-care"
    # Nothing else was touched, and the rest of the units may go on.
    assert standing(systemd, "witness.service") == ["active", "loaded"]
    assert care.terminate(10.0) == 0


def test_units_it_may_not_touch_are_only_planned_for(systemd: Systemd, care: Role, tmp_path: Path) -> None:
    systemd.systemctl("start", "--no-block", "killed.service")
    until(lambda: loops(systemd, "killed.service"), "it loops")
    care.start()

    def refused() -> bool:
        told = said(tmp_path, "explain", "unit-loop/killed.service", "--json")
        return told.exit_code == 0 and "does not name killed.service" in told.stdout

    until(refused, "the policy's no is on record", 60.0)
    assert standing(systemd, "killed.service")[1] == "loaded"
    # By hand it is done, because somebody says yes.
    dry = said(tmp_path, "fix", "unit-loop/killed.service")
    assert dry.exit_code == 0
    assert "would: stop and disable" in dry.stdout
    assert "this was a dry run" in dry.stdout
    assert standing(systemd, "killed.service")[1] == "loaded"
    done = said(tmp_path, "fix", "unit-loop/killed.service", "--yes", "--reason", "not needed here")
    assert done.exit_code == 0, done.output
    assert "done: killed.service is inactive" in done.stdout
    assert standing(systemd, "killed.service") == ["inactive", "masked"]
