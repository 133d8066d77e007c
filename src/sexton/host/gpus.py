"""Which GPUs this host has: what the vendor's driver says of itself, or what a file says.

The driver shows each device as a file below ``/proc``, which costs nothing to read; while nobody has used a device
since the driver was loaded, its id is not known there, and the vendor's own program is asked. A host that Amazon's
agent ran on has a file that was written at its last start; it is believed where the driver says nothing, and whoever
names a file of their own is believed before the driver. In all cases an id is what the vendor's runtime takes.

Drivers may take a while after a boot to show their devices: where there are some, their ids are waited for, once and
for a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import msgspec

log = logging.getLogger(__name__)

# Written by what starts Amazon's agent.
LEFT_BY_INIT = "var/lib/ecs/gpu/nvidia-gpu-info.json"
# As long as Amazon's agent's own start waits for devices to appear.
TRIES, TRY_SECONDS = 10, 3.0
# The vendor's program loads the driver when nobody has it loaded, which takes seconds for each device.
ASK_SECONDS = 20.0

_ID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)\s*$", re.MULTILINE)
_VERSION = re.compile(r"Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)\s")
_ASK = ("--query-gpu=uuid,driver_version", "--format=csv,noheader")


class Gpus(NamedTuple):
    """Ids in the driver's order, and the driver's version where it is known."""

    ids: tuple[str, ...] = ()
    driver: str = ""


NONE = Gpus()


class _Info(msgspec.Struct, frozen=True, rename={"driver": "DriverVersion", "ids": "GPUIDs"}):
    """The file as Amazon's agent has it."""

    driver: str = ""
    ids: tuple[str, ...] = ()


async def find(given: str = "", root: Path = Path("/"), *, pause: float = TRY_SECONDS) -> Gpus:
    """This host's GPUs; that there are none is said once, with where was looked. ``given`` names a file to believe."""
    if given:
        return _of_file(Path(given))
    for turn in range(TRIES):
        found = _of_driver(root)
        if not found.ids:
            found = await _of_program()
        if found.ids:
            return found
        if not any((root / "dev").glob("nvidia[0-9]*")):
            break  # nothing is on its way
        if turn + 1 < TRIES:
            await asyncio.sleep(pause)
    left = root / LEFT_BY_INIT
    if left.exists():
        return _of_file(left)
    log.warning("GPUs cannot be found, going on without", extra={"looked": f"driver, nvidia-smi, {left}"})
    return NONE


def _of_driver(root: Path) -> Gpus:
    """Every device the driver shows, or nothing while one of them has no id yet."""
    place = root / "proc/driver/nvidia"
    ids = []
    for device in sorted(place.glob("gpus/*/information")):
        said = _ID.search(_text(device))
        if said is None:
            return NONE
        ids.append(said[1])
    version = _VERSION.search(_text(place / "version"))
    return Gpus(tuple(ids), version[1] if version else "")


async def _of_program() -> Gpus:
    """What the vendor's program says, where it is installed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return NONE
    try:
        asked = await asyncio.create_subprocess_exec(
            program,
            *_ASK,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.warning("nvidia-smi cannot be run", extra={"reason": str(error)})
        return NONE
    try:
        said, _ = await asyncio.wait_for(asked.communicate(), ASK_SECONDS)
    except TimeoutError:
        asked.kill()
        await asked.wait()
        log.warning("nvidia-smi does not answer", extra={"seconds": ASK_SECONDS})
        return NONE
    rows = [line.split(", ") for line in said.decode(errors="replace").splitlines() if line.startswith("GPU-")]
    return Gpus(tuple(row[0].strip() for row in rows), rows[0][-1].strip() if rows else "")


def _of_file(path: Path) -> Gpus:
    try:
        info = msgspec.json.decode(path.read_bytes(), type=_Info)
    except (OSError, msgspec.MsgspecError) as error:
        log.error("list of GPUs cannot be read, going on without", extra={"path": str(path), "reason": str(error)})
        return NONE
    return Gpus(tuple(dict.fromkeys(info.ids)), info.driver)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
