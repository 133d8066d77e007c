"""Settings that only the caretaker reads."""

from __future__ import annotations

from urllib.parse import urlsplit

from sexton.core import values
from sexton.core.values import BadValue
from sexton.settings.row import Setting


def _webhook(raw: str) -> str:
    if raw:
        told = urlsplit(raw)
        if told.scheme not in ("http", "https") or not told.hostname:
            raise BadValue("must be a URL that begins with http:// or https://")
    return raw


ROWS: tuple[Setting, ...] = (
    Setting("SEXTON_CARE", "care", values.boolean, "the caretaker runs as a part of sexton up"),
    Setting(
        "SEXTON_CARE_ROOT",
        "care_root",
        values.text,
        "root directory of the host it looks at, where that is mounted elsewhere (in a container: /host)",
    ),
    Setting("SEXTON_CARE_POLICY", "care_policy", values.text, "file that says what it may do by itself"),
    Setting(
        "SEXTON_CARE_EVERY",
        "care_every",
        values.duration,
        "longest time between two looks of a probe; 0 means as each probe declares",
        "seconds",
    ),
    Setting(
        "SEXTON_CARE_METRICS",
        "care_metrics",
        values.text,
        "loopback address and port of its metrics, such as 127.0.0.1:9546; empty means none",
    ),
    Setting("SEXTON_CARE_JOURNAL", "care_journal", values.boolean, "what happens to findings is told to the journal"),
    Setting(
        "SEXTON_CARE_WEBHOOK",
        "care_webhook",
        _webhook,
        "URL to which what happens to findings is posted as JSON; empty means none",
        strict=True,
    ),
    Setting(
        "SEXTON_CARE_WEBHOOK_SECRET_FILE",
        "care_webhook_secret_file",
        values.text,
        "file with the secret that signs those posts; empty means unsigned",
    ),
)
