"""Reading setting values as the ECS agent documents them: Go durations, Go booleans, JSON lists and maps, ranges.

Each parser takes the text and returns the value, or raises BadValue with what would have been right.
"""

from __future__ import annotations

import re

import msgspec


class BadValue(ValueError):  # noqa: N818 - caught and turned into a warning or a refusal
    """The text is no such value; the message says what it should look like."""


_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|ms|s|m|h)")
# Go counts a duration in 63 bits of nanoseconds; what does not fit is refused there as well.
MOST_SECONDS = 2**63 / 1e9
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def text(raw: str) -> str:
    return raw.strip()


def boolean(raw: str) -> bool:
    if raw in _TRUE:
        return True
    if raw in _FALSE:
        return False
    raise BadValue("must be true or false")


def duration(raw: str) -> float:
    """Seconds from text such as ``30s`` or ``1h30m``."""
    if raw == "0":
        return 0.0
    raw = raw.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    seconds = 0.0
    at = 0
    for part in _PART.finditer(raw):
        if part.start() != at:
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not raw or at != len(raw) or seconds >= MOST_SECONDS:
        raise BadValue("must be a duration with a unit, such as 30s, 10m or 1h30m")
    return seconds


def duration_within(raw: str, lowest: float, highest: float) -> float:
    """A duration that must lie between two others."""
    seconds = duration(raw)
    if not lowest <= seconds <= highest:
        raise BadValue(f"must be a duration from {lowest * 1000:g}ms to {highest * 1000:g}ms")
    return seconds


def positive(raw: str) -> float:
    """A number above zero, with or without a fraction."""
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", raw) or float(raw) == 0:
        raise BadValue("must be a number above 0, such as 5 or 0.5")
    return float(raw)


def address(raw: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:51678`` or ``[::1]:51678``; ``off`` is an address as well, of port 0."""
    if raw == "off":
        return "off", 0
    host, colon, port = raw.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
        raise BadValue("must be an address and a port, such as 127.0.0.1:51678, or off")
    return host, int(port)


def comma_list(raw: str) -> tuple[str, ...]:
    """Words between commas; blanks around them do not count."""
    return tuple(word.strip() for word in raw.split(",") if word.strip())


def integer(raw: str, lowest: int, highest: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", raw) or not lowest <= int(raw) <= highest:
        raise BadValue(f"must be a whole number from {lowest} to {highest}")
    return int(raw)


def port_list(raw: str) -> tuple[int, ...]:
    try:
        ports = msgspec.json.decode(raw, type=tuple[int, ...])
    except msgspec.MsgspecError:
        raise BadValue("must be a JSON list of ports, such as [22,80]") from None
    if any(not 0 < port < 65536 for port in ports):
        raise BadValue("must hold ports from 1 to 65535")
    return ports


def word_list(raw: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(raw, type=tuple[str, ...])
    except msgspec.MsgspecError:
        raise BadValue('must be a JSON list of words, such as ["json-file","none"]') from None


def word_map(raw: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(raw, type=dict[str, str])
    except msgspec.MsgspecError:
        raise BadValue('must be a JSON object of text to text, such as {"rack":"7"}') from None


def port_range(raw: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", raw)
    if found is None or not 0 < int(found[1]) <= int(found[2]) < 65536:
        raise BadValue("must be a range of ports, such as 32768-60999")
    return int(found[1]), int(found[2])


def port_or_off(raw: str) -> int:
    """A port, or -1 for ``off``: nothing would count as unset."""
    if raw == "off":
        return -1
    if not re.fullmatch(r"[0-9]{1,5}", raw) or not 0 < int(raw) < 65536:
        raise BadValue("must be a port, such as 51679, or off")
    return int(raw)


def rate_and_burst(raw: str) -> tuple[int, int]:
    """Two whole numbers above zero: so many a second, and so many at once."""
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*", raw)
    if found is None or not int(found[1]) or not int(found[2]):
        raise BadValue("must be two numbers above 0, such as 40,60")
    return int(found[1]), int(found[2])


def choice(raw: str, words: tuple[str, ...]) -> str:
    if raw not in words:
        raise BadValue(f"must be one of {', '.join(words)}")
    return raw
