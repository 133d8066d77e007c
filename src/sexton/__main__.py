"""The ``sexton`` command: long-running roles go through the daemon's small door, all else to the command line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command; its exit code."""
    if len(sys.argv) > 1:
        from sexton.commandline import ROLES

        if sys.argv[1] in ROLES and sys.argv[2:3] not in (["export"], ["import"]):
            from sexton import daemon

            return daemon.main(sys.argv[1], sys.argv[2:])
    from sexton.cli.app import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
