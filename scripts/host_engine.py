"""A Docker engine for ``make run`` on a machine where none answers, and its removal without a trace.

An engine that answers is used and never touched. One that is started here is stopped at the end, and what it changed
on the machine (packet filter rules, its bridge, two kernel settings) is put back as it was found. Its images stay
where any engine of this machine would look for them.

How the machine was found is written down before anything is changed, and removed when it is put back: whoever comes
after one that was killed, or that is still leaving, restores what that one found and not what it left.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from local_image import EngineFailed, engine_call

START_SECONDS = 30.0
STOP_SECONDS = 20.0
BRIDGE = "docker0"
_SETTINGS = (
    Path("/proc/sys/net/ipv4/ip_forward"),
    Path("/proc/sys/net/bridge/bridge-nf-call-iptables"),
    Path("/proc/sys/net/bridge/bridge-nf-call-ip6tables"),
)
_FILTERS = ("iptables", "ip6tables")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def answers(url: str) -> bool:
    """Whether an engine answers there."""
    try:
        return engine_call(url, "GET", "/_ping", seconds=3.0) == b"OK"
    except (OSError, EngineFailed):
        return False


class HostEngine:
    """A dockerd of ours on the usual socket."""

    def __init__(self, log: Path, options: Sequence[str] = ()) -> None:
        self._log = log
        self._found = log.with_name("machine-before.json")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._settings: dict[Path, str] = {}
        self._rules: dict[str, set[str]] = {}
        self._had_bridge = False

    def start(self, url: str) -> None:
        """Start it and wait until it answers; EngineFailed with the end of its log when it does not."""
        program = shutil.which("dockerd", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
        if program is None:
            raise EngineFailed("cannot start a container engine: dockerd is not installed; install docker.io")
        self._remember()
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C must reach it only after the containers have been seen to.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", program, "-H", url, *self._options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not answers(url):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace").strip().splitlines()[-3:]
                self.stop()
                raise EngineFailed("cannot start a container engine; it said: " + " / ".join(said))
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it and put the machine back as it was."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        self._restore()

    def _remember(self) -> None:
        boot = _BOOT.read_text().strip()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = json.loads(self._found.read_text())
            if before["boot"] == boot:  # of the kernel that runs: another one has nothing of it
                self._settings = {Path(path): value for path, value in before["settings"].items()}
                self._had_bridge = bool(before["bridge"])
                self._rules = {program: set(before["rules"][program]) for program in _FILTERS}
                return
        for path in _SETTINGS:
            with contextlib.suppress(OSError):
                self._settings[path] = path.read_text()
        self._had_bridge = Path("/sys/class/net", BRIDGE).exists()
        self._rules = {program: set(_lines(program)) for program in _FILTERS}
        before = {
            "boot": boot,
            "settings": {str(path): value for path, value in self._settings.items()},
            "bridge": self._had_bridge,
            "rules": {program: sorted(lines) for program, lines in self._rules.items()},
        }
        draft = self._found.with_suffix(".new")
        draft.write_text(json.dumps(before))
        draft.replace(self._found)

    def _restore(self) -> None:
        for program in _FILTERS:
            _undo(program, self._rules.get(program, set()))
        if not self._had_bridge:
            subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True, check=False)
        for path, value in self._settings.items():
            with contextlib.suppress(OSError):
                path.write_text(value)
        self._found.unlink(missing_ok=True)


def _lines(program: str) -> list[str]:
    """Every table's rules, each line with its table in front."""
    lines = []
    for table in ("filter", "nat"):
        listed = subprocess.run([program, "-t", table, "-S"], capture_output=True, text=True, check=False)
        lines += [f"{table} {line}" for line in listed.stdout.splitlines()]
    return lines


def _undo(program: str, before: set[str]) -> None:
    """Remove the rules and chains that are new and are the engine's, and put changed policies back."""
    new = [line for line in _lines(program) if line not in before]

    def run(table: str, *words: str) -> None:
        subprocess.run([program, "-t", table, *words], capture_output=True, check=False)

    for line in new:
        table, verb, *rest = line.split()
        if verb == "-A" and any("DOCKER" in word or word == BRIDGE or word.startswith("172.17.") for word in rest):
            run(table, "-D", *rest)
    for line in new:
        table, verb, *rest = line.split()
        if verb == "-N" and rest[0].startswith("DOCKER"):
            run(table, "-F", rest[0])
            run(table, "-X", rest[0])
    for line in before:
        table, verb, *rest = line.split()
        if verb == "-P":
            run(table, "-P", *rest)
