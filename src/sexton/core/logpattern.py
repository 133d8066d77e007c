"""CloudWatch's filter patterns: from the text of one to a question that is asked of each log line.

    (nothing)                  every line
    word "two words" -word     lines with every one of these, and none that is excluded
    ?word ?"two words"         lines with any of these
    { $.status >= 500 }        lines that are JSON, by their fields (``logpattern_json``)
    [ip, user, status = 5*]    lines of fields between spaces (``logpattern_fields``)

Words match wherever they are in a line, as they are spelt. Beside words that must or must not be there, those with a
question mark say nothing, as with the service. Regular expressions are refused: what they cost is the writer's to
say, and the reader's to pay.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sexton.core.logpattern_fields import fields_pattern
from sexton.core.logpattern_json import json_pattern
from sexton.core.logpattern_words import BadPattern

__all__ = ["BadPattern", "Matches", "read_pattern"]

Matches = Callable[[str], bool]

_TERM = re.compile(r'\s*(?P<sign>[?-]?)(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s"]+))(?=\s|$)')
# Of a bare word: anything else is ambiguous without quotes.
_BARE = re.compile(r"\w+")


def read_pattern(text: str) -> Matches | None:
    """What a pattern asks of a line; None for one that takes all of them. BadPattern when it cannot be read."""
    pattern = text.strip()
    if not pattern:
        return None
    if pattern.startswith("{"):
        return json_pattern(pattern)
    if pattern.startswith("["):
        return fields_pattern(pattern)
    return _terms(pattern)


def _terms(pattern: str) -> Matches:
    wanted: list[str] = []
    excluded: list[str] = []
    optional: list[str] = []
    at = 0
    while at < len(pattern):
        found = _TERM.match(pattern, at)
        if found is None:
            raise BadPattern(f"cannot read the filter pattern at '{pattern[at : at + 20].strip()}': quotes must match")
        at = found.end()
        word = found["quoted"]
        if word is None:
            word = found["bare"]
            if word.startswith("%"):
                raise BadPattern("cannot use a regular expression in a filter pattern here; use words")
            if not _BARE.fullmatch(word):
                raise BadPattern(
                    f"cannot read '{word[:50]}' in the filter pattern: words with other characters than letters, "
                    "digits and underscores must be in double quotes"
                )
        else:
            word = re.sub(r"\\(.)", r"\1", word)
        {"": wanted, "-": excluded, "?": optional}[found["sign"]].append(word)
    if not wanted and not excluded:
        return lambda line: any(word in line for word in optional)
    return lambda line: all(word in line for word in wanted) and not any(word in line for word in excluded)
