"""Why an agent has nothing to do here.

An agent that cannot be of use says so once, with cause and cure, and ends with a code that no supervisor restarts.
Coming back every few seconds would help nobody and would wear out the host.
"""

from __future__ import annotations

# Every unit file that ships with this program has RestartPreventExitStatus set to it.
EXIT_CODE = 5


class StandDown(Exception):  # noqa: N818 - a decision, not a failure
    """Trying again without somebody changing something is useless."""

    def __init__(self, cause: str, cure: str) -> None:
        super().__init__(f"{cause}. {cure}")
        self.cause = cause
        self.cure = cure
