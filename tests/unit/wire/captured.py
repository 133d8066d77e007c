"""The recorded session of Amazon's agent, cut into the parts the tests of the wire look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SESSION = Path(__file__).parents[2] / "data" / "session-basic.jsonl"


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SESSION.read_text().splitlines()]


def calls() -> list[dict[str, Any]]:
    """API calls, with ``op``, the request's ``body`` and the answer's ``resp_body``."""
    return [line for line in lines() if line["kind"] == "http"]


def frames(which: str) -> list[bytes]:
    """Every websocket frame of one protocol, both directions, as it was on the wire."""
    return [line["data"].encode() for line in lines() if line.get("which") == which and "data" in line]
