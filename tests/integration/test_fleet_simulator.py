"""The fleet simulator that everybody can run: it connects, places, runs and describes, and says what that cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AGENTS, TASKS = 4, 120


@pytest.mark.timeout(120)
def test_a_small_fleet_runs_all_of_its_tasks():
    command = [sys.executable, "-m", "bench.fleet", "--agents", str(AGENTS), "--tasks", str(TASKS)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

    assert said.returncode == 0, said.stderr
    table = said.stdout.splitlines()
    headings = next(line for line in table if "placed/s" in line)
    row = next(line for line in table if line.split()[:2] == [str(AGENTS), str(TASKS)])
    cells = {name: row[headings.index(name) :].split()[0] for name in ("placed/s", "running/s", "CPU per task (us)")}
    assert all(float(value) > 0 for value in cells.values()), cells
    assert "budget" in said.stdout
