"""What an agent needs of a container engine, and nothing more.

Every call has a deadline and ends in one of three ways: it worked, the engine said no (``Refused``: final, with
the engine's own words), or the engine could not be asked (``Unavailable``: try again later, nothing is known).
Telling the last two apart is what keeps a restarting engine from failing tasks.

Events are hints: the stream may break, repeat or lose some, and says so by ending. The truth is ``inspect`` and
``list``. A container outlives this process; ``inspect`` by the name recorded before ``create`` finds one whose
creation was interrupted.

The suite in ``tests/contract/test_runtime.py`` runs unchanged over every driver and over the scripted fake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec


class RuntimeFault(Exception):  # noqa: N818 - named for what the caller must handle
    """A call to the engine did not work; ``str()`` is the engine's or the transport's own text."""


class Unavailable(RuntimeFault):
    """The engine did not answer (not there, restarting, past the deadline): nothing is known, try again."""


class TimedOut(Unavailable):
    """The engine took the call and was silent for ``after`` seconds: the call may still have its effect."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class Refused(RuntimeFault):
    """The engine answered no; asking again in the same way changes nothing."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotFound(Refused):
    """There is no such container or image."""


class Conflict(Refused):
    """The name is taken, or the container is in a state that forbids the call."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What answers, and what it can do."""

    name: str  # "docker", "fake"
    version: str  # the engine's own version
    api_version: str  # the negotiated one
    api_versions: tuple[str, ...] = ()  # all that both ends speak, ascending ("1.17" ... )
    cgroup_driver: str = "cgroupfs"  # or "systemd"
    cgroup_version: int = 1
    log_drivers: tuple[str, ...] = ()
    volume_drivers: tuple[str, ...] = ("local",)
    root_dir: str = ""


class State(StrEnum):
    """Where a container is in the engine's eyes."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


class PortBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A published port as the engine reports it."""

    container_port: int
    host_port: int
    bind_ip: str = "0.0.0.0"  # noqa: S104 - a reported address, nothing listens here
    protocol: str = "tcp"


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A network of the engine's that a container is in, and its addresses there; it has none in the host's own."""

    name: str
    ipv4: str = ""
    ipv6: str = ""


class Mounted(msgspec.Struct, frozen=True, kw_only=True):
    """What a container has mounted: a volume by name, or a path of the host."""

    source: str
    destination: str
    name: str = ""


class ContainerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One container, as ``inspect`` finds it. Times are seconds since the epoch, 0 when it never happened."""

    id: str
    name: str
    image: str
    image_id: str
    state: State
    labels: Mapping[str, str]
    exit_code: int | None = None
    error: str = ""
    oom_killed: bool = False
    health: str = ""  # "", "starting", "healthy", "unhealthy"
    health_exit_code: int | None = None  # of the check that ran last
    health_output: str = ""
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    pid: int = 0
    ports: tuple[PortBinding, ...] = ()
    log_path: str = ""  # the file its log driver writes, where it writes one
    networks: tuple[Joined, ...] = ()
    mounts: tuple[Mounted, ...] = ()
    hosts_path: str = ""  # the engine's own files behind /etc/hosts and /etc/resolv.conf of the container
    resolver_path: str = ""


class ContainerBrief(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``list``."""

    id: str
    name: str
    image: str
    state: State
    labels: Mapping[str, str]
    created_at: float = 0.0
    image_id: str = ""


class EventKind(StrEnum):
    CREATE = "create"
    START = "start"
    DIE = "die"
    DESTROY = "destroy"
    OOM = "oom"
    HEALTH = "health"
    PAUSE = "pause"
    UNPAUSE = "unpause"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to a container. ``exit_code`` comes with DIE, ``health`` with HEALTH."""

    kind: EventKind
    container_id: str
    time: float
    labels: Mapping[str, str] = {}
    name: str = ""
    image: str = ""
    exit_code: int | None = None
    health: str = ""


class ImageInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()  # "repository@sha256:..."
    size: int = 0
    created_at: float = 0.0
    variables: tuple[str, ...] = ()  # names of the environment variables it sets; only ``image`` tells them


class VolumeInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    driver: str = "local"
    options: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    mountpoint: str = ""


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on the engine's disk: of an image what no other shares, of a container its own layer, of a volume all.

    By image id, container id and volume name.
    """

    images: Mapping[str, int] = {}
    containers: Mapping[str, int] = {}
    volumes: Mapping[str, int] = {}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pull is; layer is empty for messages about the whole image."""

    layer: str = ""
    status: str = ""
    current: int = 0
    total: int = 0


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    stream: str  # "stdout" or "stderr"
    text: str
    time: float = 0.0


class Images(Protocol):
    """What an engine does with images."""

    async def image(self, ref: str) -> ImageInfo:
        """NotFound when the image is not on this host."""
        ...

    async def images(self) -> tuple[ImageInfo, ...]:
        """All images that have a name or nothing built on them."""
        ...

    def pull(self, ref: str, auth: Mapping[str, str] | None = None) -> AsyncIterator[Progress]:
        """Pull, reporting progress. Ends when the image is here; NotFound, Refused or Unavailable else."""
        ...

    async def digest(self, ref: str, auth: Mapping[str, str] | None = None) -> str:
        """The digest the registry has for a reference now; "" when it is of a kind that has none or the engine
        cannot ask. NotFound, Refused or Unavailable as for a pull."""
        ...

    async def tag(self, ref: str, name: str) -> None:
        """Give an image one more name, which another one loses if it had it."""
        ...

    async def load_image(self, archive: bytes) -> None:
        """Have the images of an archive, as an engine saves them, under the names it says."""
        ...

    async def remove_image(self, ref: str) -> None:
        """Take a name away, and the image with its last one; an absent one is no error, one in use a Conflict."""
        ...


class Volumes(Protocol):
    """What an engine does with volumes."""

    async def volume(self, name: str) -> VolumeInfo:
        """NotFound when there is none of that name."""
        ...

    async def create_volume(
        self, name: str, *, driver: str, options: Mapping[str, str], labels: Mapping[str, str]
    ) -> VolumeInfo:
        """Create; one of that name that is already there and is made alike is taken as it is."""
        ...

    async def remove_volume(self, name: str) -> None:
        """Remove with everything in it; an absent one is no error, one that a container uses a Conflict."""
        ...

    async def volumes(self, labels: Mapping[str, str]) -> tuple[VolumeInfo, ...]:
        """Volumes that carry all these labels (an empty value matches any value)."""
        ...


class Runtime(Images, Volumes, Protocol):
    """One engine. ``create`` takes the Docker Engine API's create body, the vocabulary of ECS payloads."""

    async def describe(self) -> EngineInfo:
        """Negotiate the API version with the engine and say what it is; cheap after the first success."""
        ...

    async def list(self, labels: Mapping[str, str]) -> tuple[ContainerBrief, ...]:
        """Containers in any state that carry all these labels (an empty value matches any value)."""
        ...

    async def inspect(self, ref: str) -> ContainerInfo:
        """By id or by name; NotFound when there is none."""
        ...

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create, return the id. Conflict when the name is taken, and then ``inspect`` finds who has it; Unavailable
        while a creation of that name, interrupted or not, is still under way."""
        ...

    async def start(self, ref: str) -> None:
        """Start; starting a running container is no error. Refused carries the engine's words."""
        ...

    async def signal(self, ref: str, signal: str) -> None:
        """Send a signal; Conflict when the container does not run."""
        ...

    async def stop(self, ref: str, grace: float) -> None:
        """TERM (or the image's own stop signal), KILL after ``grace`` seconds; returns once it has stopped."""
        ...

    async def rename(self, ref: str, name: str) -> None:
        """Give a container another name, in one step. Conflict when that is taken, NotFound when it is gone."""
        ...

    async def remove(self, ref: str, *, force: bool = False) -> None:
        """Remove with its anonymous volumes; removing an absent one is no error."""
        ...

    async def bridge(self) -> str:
        """The interface of this host that containers in network mode ``bridge`` are behind; "" when there is none."""
        ...

    async def disk_use(self) -> DiskUse:
        """What lies on the engine's disk. The engine measures it now, which may take minutes."""
        ...

    def events(self, since: float = 0.0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Container events from ``since`` (0: from now). Entering returns once the engine is subscribed; the
        iterator ends, with Unavailable, when the stream breaks."""
        ...

    def logs(self, ref: str, *, follow: bool = False, tail: int = 0, since: float = 0.0) -> AsyncIterator[LogLine]:
        """Lines the container wrote; tail 0 means all. Refused when its log driver cannot be read back."""
        ...

    def cgroup(self, info: ContainerInfo, parent: str) -> str:
        """The path of the container's cgroup below a hierarchy's mount, given the parent it was made with."""
        ...

    async def close(self) -> None: ...
