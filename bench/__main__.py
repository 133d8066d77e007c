"""``make bench``: every benchmark, one after the other, each beside its floor.

Each part is a process of its own with a time that it must not exceed, so that one which fails or hangs says so and
costs the others nothing; whoever ends the whole ends the part that runs, and what it started goes with it.
Run: ``python -m bench [PART ...]``
"""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

# Seconds, so many that a loaded machine gets there as well; nothing here takes longer than eight minutes on a calm one.
PARTS = {
    "launch": 480,
    "network": 480,
    "vpc": 480,
    "metrics": 600,
    "api": 240,
    "peers": 240,
    "fleet": 480,
    "footprint": 240,
    "zombies": 480,
    "logs": 240,
}
# An engine with fifty containers is gone by then.
LEAVE_SECONDS = 90.0


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table."""
    print(f"\n{title}")
    headings = list(dict.fromkeys(key for row in rows for key in row))
    cells = [headings] + [[str(row.get(key, "")) for key in headings] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    for line in cells:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    sys.stdout.flush()


def part(name: str) -> None:
    """Run one of them here."""
    # Whoever ends a benchmark that takes too long wants its engine and its containers gone as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    module = importlib.import_module(f"bench.{name}")
    began = time.monotonic()
    rows = module.run()
    show(f"{(module.__doc__ or '').partition(chr(10))[0]} ({time.monotonic() - began:.0f} s)", rows)


def all_of(names: Sequence[str]) -> int:
    """One after the other; how many failed."""
    running: list[subprocess.Popen[bytes]] = []

    def leave(number: int, _: FrameType | None) -> None:
        for one in running:
            _end(one)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    failed = []
    for name in names:
        one = subprocess.Popen([sys.executable, "-m", "bench", "--part", name])
        running[:] = [one]
        try:
            code = one.wait(PARTS.get(name))
        except subprocess.TimeoutExpired:
            print(f"\n{name}: not done after {PARTS[name]} s, ended", flush=True)
            _end(one)
            code = 1
        except KeyboardInterrupt:  # the part has heard it as well
            one.wait(LEAVE_SECONDS)
            return 130
        if code:
            failed.append(name)
            print(f"\n{name}: failed, exit code {code}", flush=True)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", flush=True)
    return len(failed)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--part"]:
        part(arguments[1])
        return 0
    return min(all_of(arguments or list(PARTS)), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
