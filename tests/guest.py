"""A throw-away machine with Debian's kernel and cgroup v2 only: qemu without acceleration, this checkout's own code
inside.

The kernel comes from Debian's package (downloaded and unpacked once into ``.cache/``, never installed). Its first
file system is made here: busybox, this Python with its standard library, the third-party modules that are asked for,
``src`` and the test's own helpers. A script runs as the only program; what it writes to standard output after a mark
comes back as JSON. Nothing of the host is visible inside and nothing is left behind.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
CACHE = CHECKOUT / ".cache"
# Downloading the kernel takes some seconds; emulating the machine some twenty on a busy host.
GUEST_TIMEOUT = 300
_RUN_SECONDS = 200
_MARK = "=== told ==="
_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "turtledemo",
}
_APPLETS = ("sh", "mount", "umount", "mkdir", "insmod", "poweroff", "sync", "losetup", "cat", "head", "sleep")

_INIT = """#!/bin/sh
export PATH=/bin HOME=/ PYTHONHOME={home} PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/checkout/src:/checkout/tests:/checkout/more
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
insmod /loop.ko
mount -o loop /disk.img /disk
{python} /checkout/tests/{script} || echo "the script failed"
sync
poweroff -f
"""


def kernel() -> Path:
    """The unpacked kernel package, downloaded now if this is the first time."""
    if platform.machine() != "x86_64":
        import pytest  # not inside

        pytest.skip("the guest is an x86-64 machine")
    CACHE.mkdir(exist_ok=True)
    ready = CACHE / "guest-kernel"
    with (CACHE / "guest-kernel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.is_dir():
            draft = CACHE / f".draft-kernel-{os.getpid()}"
            draft.mkdir()
            try:
                package = _package("linux-image-cloud-amd64")
                _run(["apt-get", "-q", "download", package], draft)
                (archive,) = draft.glob("*.deb")
                _run(["dpkg", "-x", archive.name, "unpacked"], draft)
                (draft / "unpacked").rename(ready)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return ready


def _package(meta: str) -> str:
    """The package with the kernel itself, which the one with the lasting name depends on."""
    for refresh in (False, True):
        if refresh:
            _run(["apt-get", "-q", "update"], CACHE)
        said = subprocess.run(["apt-cache", "depends", meta], capture_output=True, text=True, check=False).stdout
        if found := re.search(r"Depends: (linux-image-\S+)", said):
            return found.group(1)
    raise AssertionError(f"Debian's package {meta} cannot be found")


def _run(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"cannot run {' '.join(command)}: {done.stderr[-2000:]}"


def run_in_guest(script: str, scratch: Path, modules: Sequence[str] = ("msgspec",), memory: int = 768) -> Any:
    """Run ``tests/SCRIPT`` there; the JSON it printed after the mark."""
    boot = kernel()
    (image,) = (boot / "boot").glob("vmlinuz-*")
    _run(["mke2fs", "-q", "-t", "ext4", "disk.img", "24M"], scratch)
    archive = scratch / "initrd"
    with archive.open("wb") as file:
        for piece in _archive(list(_contents(boot, scratch, script, modules))):
            file.write(piece)
    command = ["qemu-system-x86_64", "-accel", "tcg", "-m", str(memory), "-smp", "1", "-nographic", "-no-reboot"]
    command += ["-nodefaults", "-serial", "stdio", "-net", "none", "-kernel", str(image), "-initrd", str(archive)]
    # Without a check of its timer: a busy host lets an emulated one look broken.
    words = "console=ttyS0 quiet panic=-1 cgroup_no_v1=all mitigations=off random.trust_cpu=on no_timer_check"
    command += ["-append", words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_RUN_SECONDS, errors="replace"
    )
    _, mark, told = done.stdout.partition(_MARK)
    assert mark, f"the guest told nothing: {done.stdout[-4000:]}{done.stderr[-1000:]}"
    return json.loads(told.strip().splitlines()[0])


def tell(what: object) -> None:
    """For the script inside: hand the answer out."""
    print(f"\n{_MARK}\n{json.dumps(what)}", flush=True)


# (path in the guest, permissions and kind, bytes)
_Entry = tuple[str, int, bytes]
_FOLDER, _FILE, _LINK = 0o040755, 0o100755, 0o120777


def _contents(boot: Path, scratch: Path, script: str, modules: Sequence[str]) -> Iterator[_Entry]:
    for folder in ("bin", "dev", "proc", "sys", "tmp", "disk", "run", "var", "var/tmp", "checkout"):
        yield folder, _FOLDER, b""
    yield "bin/busybox", _FILE, Path("/bin/busybox").read_bytes()
    for name in _APPLETS:
        yield f"bin/{name}", _LINK, b"busybox"
    (loop,) = boot.rglob("loop.ko*")
    yield "loop.ko", _FILE, loop.read_bytes()
    yield "disk.img", _FILE, (scratch / "disk.img").read_bytes()
    python = os.path.realpath(sys.executable)
    init = _INIT.format(python=python, home=sys.base_prefix, script=script)
    yield "init", _FILE, init.encode()
    standard = Path(sysconfig.get_path("stdlib"))
    yield from _tree(standard, str(standard))
    yield from _tree(CHECKOUT / "src", "/checkout/src")
    for name in (script, "zombies.py", "guest.py"):
        yield f"checkout/tests/{name}", _FILE, (CHECKOUT / "tests" / name).read_bytes()
    needed = [Path(python), *standard.glob("lib-dynload/*.so")]
    for name in modules:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        yield from _tree(Path(found.origin).parent, f"/checkout/more/{name}")
        needed += Path(found.origin).parent.rglob("*.so")
    for library in sorted(_libraries(needed)):
        yield library.lstrip("/"), _FILE, Path(library).read_bytes()
    yield python.lstrip("/"), _FILE, Path(python).read_bytes()


def _tree(folder: Path, where: str) -> Iterator[_Entry]:
    for here, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if name not in _LEFT_OUT and not name.startswith("config-"))
        inside = where + here.removeprefix(os.fspath(folder))
        for name in sorted(files):
            if not name.endswith((".a", ".exe", ".pyi")):
                yield f"{inside}/{name}".lstrip("/"), _FILE, Path(here, name).read_bytes()


def _libraries(programs: Sequence[Path]) -> set[str]:
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    return {
        found
        for found in re.findall(r"(/\S+\.so[\w.]*)", said)
        if not found.startswith(sys.base_prefix + "/lib/python")
    }


def _archive(entries: Sequence[_Entry]) -> Iterator[bytes]:
    """The format the kernel unpacks its first file system from (cpio, newc)."""
    folders = {str(parent) for path, _, _ in entries for parent in Path(path).parents if str(parent) != "."}
    known = {path for path, _, _ in entries}
    made = [(path, _FOLDER, b"") for path in sorted(folders - known)]
    whole = sorted([*made, *{entry[0]: entry for entry in entries}.values()], key=lambda entry: entry[0])
    for number, (path, mode, data) in enumerate([*whole, ("TRAILER!!!", 0, b"")], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        yield head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
