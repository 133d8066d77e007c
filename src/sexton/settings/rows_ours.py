"""Settings that Amazon's agent does not have."""

from __future__ import annotations

import re

from sexton.core import values
from sexton.core.values import BadValue
from sexton.settings.row import Setting


def _account(raw: str) -> str:
    if not re.fullmatch(r"[0-9]{12}", raw):
        raise BadValue("must be twelve digits")
    return raw


ROWS: tuple[Setting, ...] = (
    Setting("SEXTON_LISTEN", "listen", values.text, "address and port of the control plane"),
    Setting(
        "SEXTON_INTROSPECTION",
        "introspection",
        values.address,
        "address and port of the agent's introspection and metrics; off means none",
    ),
    Setting("SEXTON_ACCOUNT_ID", "account", _account, "account id in the control plane's ARNs", strict=True),
    Setting(
        "SEXTON_SERVICE_SETTLE",
        "service_settle",
        values.duration,
        "how long a service's task runs before it counts as healthy",
        "seconds",
        minimum=0.1,
    ),
    Setting("SEXTON_DEBUG_LOOP", "debug_loop", values.boolean, "warn of anything that blocks the event loop"),
)
