"""What holds a task's network namespace on an engine that can only join another container's: a sandbox.

A container of one program of a hundred bytes that waits for ever, in an image made here, without rights, files or
network of its own. Its names say whose it is and which task has it, so that after a crash nothing needs to be
remembered: a sandbox of the pool is claimed for a task by one change of its name. It carries no label of ECS, so no
one takes it for a container of a task.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
from typing import Any

# Value: the container instance's ARN. And what tells sandboxes apart before they have a task.
LABEL = "dev.sexton.sandbox"
ID_LABEL = "dev.sexton.sandbox-id"
PROGRAM = "/sandbox"
NOBODY = "65534:65534"

# sigaction(SIGCHLD, ignore): orphans of a process namespace it may be the first of are buried; then wait for ever.
_CODE = {
    # mov eax,13; mov edi,17; lea rsi,[act]; xor edx,edx; mov r10d,8; syscall; 1: mov eax,34; syscall; jmp 1b
    # act: 1,0,0,0
    "x86_64": (
        0x3E,
        "b80d000000bf11000000488d351700000031d241ba080000000f05b8220000000f05ebf70f1f4000"
        "0100000000000000000000000000000000000000000000000000000000000000",
    ),
    # mov x8,134; mov x0,17; adr x1,act; mov x2,0; mov x3,8; svc 0; 1: mov x8,73 (ppoll); mov x0..x4,0; svc 0; b 1b
    "aarch64": (
        0xB7,
        "c81080d2200280d281010010020080d2030180d2010000d4280980d2000080d2010080d2020080d2030080d2040080d2010000d4"
        "f9ffff170100000000000000000000000000000000000000000000000000000000000000",
    ),
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class NoProgram(Exception):  # noqa: N818 - becomes a reason
    """There is no sandbox for this kind of machine."""


def program(machine: str) -> bytes:
    """A static ELF program: one header, one segment, the code."""
    if machine not in _CODE:
        raise NoProgram(f"there is no sandbox program for {machine} machines")
    kind, code = _CODE[machine]
    body = bytes.fromhex(code)
    base, headers = 0x400000, 64 + 56
    size = headers + len(body)
    elf = b"\x7fELF\x02\x01\x01" + bytes(9)
    elf += (2).to_bytes(2, "little") + kind.to_bytes(2, "little") + (1).to_bytes(4, "little")
    elf += b"".join(one.to_bytes(8, "little") for one in (base + headers, 64, 0))
    elf += bytes(4) + b"".join(one.to_bytes(2, "little") for one in (64, 56, 1, 0, 0, 0))
    segment = (1).to_bytes(4, "little") + (5).to_bytes(4, "little")
    segment += b"".join(one.to_bytes(8, "little") for one in (0, base, base, size, size, 0x1000))
    return elf + segment + body


def is_there() -> bool:
    """Whether this machine's kind has a program."""
    return platform.machine() in _CODE


def image_name(machine: str = "") -> str:
    """What the image is called in the engine; another program has another name."""
    digest = hashlib.sha256(program(machine or platform.machine())).hexdigest()[:12]
    return f"sexton/sandbox:{digest}"


def image(machine: str = "") -> bytes:
    """The image as an archive that an engine loads; made twice it is the same one."""
    machine = machine or platform.machine()
    layer = _tar({PROGRAM.lstrip("/"): (program(machine), 0o555)})
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES[machine],
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Entrypoint": [PROGRAM], "User": NOBODY, "Labels": {LABEL: ""}},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "sexton"}],
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [image_name(machine)], "Layers": ["layer.tar"]}]).encode()
    return _tar({name: (config, 0o644), "layer.tar": (layer, 0o644), "manifest.json": (manifest, 0o644)})


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    import tarfile  # brings every kind of compression along, and most agents never make an image

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def pool_name(tag: str, sandbox_id: str) -> str:
    return f"sexton-sandbox-{tag}-{sandbox_id}"


def task_name(tag: str, task_id: str) -> str:
    """The name of the sandbox that a task has; one name, so a task never has two."""
    return f"sexton-sandbox-{tag}-task-{task_id}"


def task_of(tag: str, name: str) -> str:
    """The task that has the sandbox of this name; nothing for one of the pool."""
    prefix = task_name(tag, "")
    return name.removeprefix(prefix) if name.startswith(prefix) else ""


def cgroup_of(tag: str, sandbox_id: str) -> str:
    """The name of the sandbox's directory beside those of tasks; without a dash, which would nest it as a slice."""
    return f"sandbox{tag}{sandbox_id}"


def create_body(instance_arn: str, sandbox_id: str, cgroup_parent: str, hostname: str = "") -> dict[str, Any]:
    """The engine's create request of a sandbox."""
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "LogConfig": {"Type": "none"},
    }
    if cgroup_parent:
        host["CgroupParent"] = cgroup_parent
    body: dict[str, Any] = {
        "Image": image_name(),
        "Entrypoint": [PROGRAM],
        "User": NOBODY,
        "HostConfig": host,
        "Labels": {LABEL: instance_arn, ID_LABEL: sandbox_id},
    }
    if hostname:
        body["Hostname"] = hostname
    return body


def hosts_file(hostnames: tuple[str, ...], addresses: tuple[str, ...]) -> str:
    """/etc/hosts of a task: itself by its names, and the usual ones."""
    lines = [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "ff00::0\tip6-mcastprefix",
        "ff02::1\tip6-allnodes",
        "ff02::2\tip6-allrouters",
    ]
    names = " ".join(dict.fromkeys(one for one in hostnames if one))
    lines += [f"{address}\t{names}" for address in addresses if names]
    return "\n".join([*lines, ""])


def resolver_file(servers: tuple[str, ...], search: tuple[str, ...], options: tuple[str, ...] = ()) -> str:
    """/etc/resolv.conf of a task."""
    lines = [f"search {' '.join(search)}"] if search else []
    lines += [f"nameserver {one}" for one in servers]
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join([*lines, ""])


def resolver_of_host(text: str) -> str:
    """A host's resolver file as a task can use it: a server on the host's own loopback is none for a task."""
    kept = [
        line
        for line in text.splitlines()
        if not line.startswith(("#", ";")) and line.split()[1:2] not in (["::1"],) and " 127." not in line
    ]
    return "\n".join([*(line for line in kept if line.strip()), ""])
