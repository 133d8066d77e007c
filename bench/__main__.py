"""``make bench``: every benchmark, one after the other, each beside its floor."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

MODULES = ("launch", "network", "vpc", "metrics", "readings", "api", "peers", "fleet", "footprint", "zombies", "logs")


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table."""
    print(f"\n{title}")
    headings = list(dict.fromkeys(key for row in rows for key in row))
    cells = [headings] + [[str(row.get(key, "")) for key in headings] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    for line in cells:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def main() -> int:
    # Whoever ends a benchmark that takes too long wants its engine and its containers gone as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    chosen = sys.argv[1:] or MODULES
    for name in chosen:
        module = importlib.import_module(f"bench.{name}")
        story = (module.__doc__ or "").partition("\n")[0]
        show(story, module.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
