"""What systemd wrote into the journal about its service units, found by message id and never by its wording.

The ids are part of systemd's interface and have been the same for a decade; the English sentences beside them change.
Only the first process's own messages count: any program may write one that looks like them. Read through
``journalctl``, bounded in number and time. Flows out: moments of units' runs, which the book of lives puts together.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sexton.core.lives import Moment, UnitMoment
from sexton.host.errors import Absent, Unreadable

# Newest messages of those kinds: a loop of three messages a turn shows its last thousand turns.
MESSAGES = 4000
# Of a journal that is split into very many files, the newest.
FILES = 64
# A journal of some gigabytes answers in a few hundred milliseconds; on a sick disk this is enough.
DEADLINE = 2.0

KINDS = {
    "7d4958e842da4a758f6c1cdc7b36dcc5": Moment.BEGAN,  # starting
    "39f53479d3a045ac8e11786248231fbf": Moment.BEGAN,  # started
    "5eb03494b6584870a536b337290809b3": Moment.RESTART_PLANNED,
    "de5b426a63be47a7b6ac3eaac82e2f6f": Moment.STOPPING,
    "d9b373ed55a64feb8242e02dbe79a49c": Moment.FAILED,
    "7ad2d189f7e94e70a38c781354912448": Moment.ENDED,  # deactivated successfully
    "9d1aaa27d60140bd96365438aad20286": Moment.ENDED,  # stopped
}
_FIELDS = "MESSAGE_ID,UNIT,INVOCATION_ID"
_HELP = "Run it as root, or as a member of the group systemd-journal."
_FOLDERS = ("var/log/journal", "run/log/journal")


class _Line(msgspec.Struct):
    at: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    kind: str = msgspec.field(name="MESSAGE_ID")
    unit: str = msgspec.field(name="UNIT", default="")
    run: str = msgspec.field(name="INVOCATION_ID", default="")


_decoder = msgspec.json.Decoder(_Line)


def unit_moments(root: Path, since: float, program: str = "journalctl") -> tuple[UnitMoment, ...]:
    """Moments of service units since then, the newest few thousand, in order."""
    folders = [root / folder for folder in _FOLDERS if (root / folder).is_dir()]
    if not folders:
        raise Absent("systemd keeps no journal here")
    files = [f"--file={file}" for file in _newest(folders)]
    if not files:
        raise Unreadable("cannot read the journal: no file of it can be seen", _HELP)
    command = [program, "-q", "--no-pager", "-o", "json", f"--output-fields={_FIELDS}", "-n", str(MESSAGES)]
    command += [*files, f"--since=@{int(since)}", "_PID=1", *(f"MESSAGE_ID={kind}" for kind in KINDS)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise Unreadable("cannot read the journal: journalctl is not here", "Install systemd's journalctl.") from None
    except subprocess.TimeoutExpired:
        raise Unreadable(f"cannot read the journal within {DEADLINE:g} s", "Look at the disk it lies on.") from None
    except OSError as error:
        raise Unreadable(f"cannot start journalctl: {error.strerror}", _HELP) from error
    if done.returncode != 0 and not done.stdout:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        if not said or "No journal files were found" in said:
            raise Unreadable("cannot read the journal: no file of it may be opened", _HELP)
        raise Unreadable(f"cannot read the journal: {said}", _HELP)
    return tuple(_moments(done.stdout))


def _newest(folders: list[Path]) -> list[Path]:
    found: list[tuple[float, Path]] = []
    for folder in folders:
        for file in folder.glob("*/*.journal"):
            with contextlib.suppress(OSError):
                found.append((file.stat().st_mtime, file))
    return [file for _, file in sorted(found, reverse=True)[:FILES]]


def _moments(lines: bytes) -> Iterator[UnitMoment]:
    for line in lines.splitlines():
        try:
            told = _decoder.decode(line)
        except msgspec.MsgspecError:
            continue  # a field that is binary or missing: not one of systemd's own
        what = KINDS.get(told.kind)
        if what is not None and told.unit.endswith(".service") and told.run and told.at.isdigit():
            yield UnitMoment(unit=told.unit, run=told.run, at=int(told.at) / 1e6, what=what)
