"""Docker's JSON into the values of the contract: only the fields that are used, everything else skipped unread.

In: bodies of the Engine API (version, info, inspect, list, image, events, pull progress). Out: ``EngineInfo``,
``ContainerInfo``, ``ContainerBrief``, ``ImageInfo``, ``Event``, ``Progress``. Engines differ: any field may be
absent or null, times may be zero or empty, and events of 1.21 carry less than today's. What is not the expected
JSON at all did not come from an engine and counts as no answer (``Unavailable``).
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import msgspec

from sexton.runtime.contract import (
    ContainerBrief,
    ContainerInfo,
    EngineInfo,
    Event,
    EventKind,
    ImageInfo,
    Joined,
    Mounted,
    PortBinding,
    Progress,
    State,
    Unavailable,
)

T = TypeVar("T")


class _Docker(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Docker spells its fields LikeThis; a reply is read once and never changed."""


class VersionReply(_Docker, frozen=True):
    version: str = ""
    api_version: str = ""
    min_api_version: str = msgspec.field(name="MinAPIVersion", default="")


class _LogPlugins(_Docker, frozen=True):
    log: tuple[str, ...] | None = None
    volume: tuple[str, ...] | None = None


class InfoReply(_Docker, frozen=True):
    plugins: _LogPlugins = _LogPlugins()
    cgroup_driver: str = "cgroupfs"
    cgroup_version: str = "1"
    docker_root_dir: str = ""


class CreateReply(_Docker, frozen=True):
    id: str


class _Check(_Docker, frozen=True):
    exit_code: int = 0
    output: str = ""


class _Health(_Docker, frozen=True):
    status: str = ""
    log: tuple[_Check, ...] | None = None


class _State(_Docker, frozen=True):
    running: bool = False
    dead: bool = False
    pid: int = 0
    exit_code: int = 0
    error: str = ""
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)
    started_at: str = ""
    finished_at: str = ""
    health: _Health | None = None


class _Config(_Docker, frozen=True):
    image: str = ""
    labels: dict[str, str] | None = None


class _HostPort(_Docker, frozen=True):
    host_ip: str = ""
    host_port: str = ""


class _Endpoint(_Docker, frozen=True):
    ip_address: str = msgspec.field(name="IPAddress", default="")
    ipv6_address: str = msgspec.field(name="GlobalIPv6Address", default="")


class _Network(_Docker, frozen=True):
    ports: dict[str, tuple[_HostPort, ...] | None] | None = None
    networks: dict[str, _Endpoint | None] | None = None


class _Mount(_Docker, frozen=True):
    name: str = ""
    source: str = ""
    destination: str = ""


class InspectReply(_Docker, frozen=True):
    id: str
    name: str = ""
    image: str = ""
    created: str = ""
    log_path: str = ""
    hosts_path: str = ""
    resolv_conf_path: str = ""
    state: _State = _State()
    config: _Config = _Config()
    network_settings: _Network = _Network()
    mounts: tuple[_Mount, ...] | None = None


class NetworkReply(_Docker, frozen=True):
    options: dict[str, str] | None = None


class ListRow(_Docker, frozen=True):
    id: str
    names: tuple[str, ...] | None = None
    image: str = ""
    state: str = ""
    labels: dict[str, str] | None = None
    created: float = 0.0
    image_id: str = msgspec.field(name="ImageID", default="")


class _ImageConfig(_Docker, frozen=True):
    env: tuple[str, ...] | None = None


class ImageReply(_Docker, frozen=True):
    id: str
    repo_tags: tuple[str, ...] | None = None
    repo_digests: tuple[str, ...] | None = None
    size: int = 0
    created: str | None = None
    config: _ImageConfig | None = None


class _Actor(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="ID", default="")
    attributes: dict[str, str] | None = msgspec.field(name="Attributes", default=None)


class EventLine(msgspec.Struct, frozen=True):
    """``status``, ``id`` and ``from`` are the oldest spelling; ``Action`` and ``Actor`` came with 1.22."""

    status: str = ""
    id: str = ""
    image: str = msgspec.field(name="from", default="")
    action: str = msgspec.field(name="Action", default="")
    actor: _Actor = msgspec.field(name="Actor", default=_Actor())
    time: int = 0
    time_nano: int = msgspec.field(name="timeNano", default=0)


class _Amount(msgspec.Struct, frozen=True):
    current: int = 0
    total: int = 0


class PullLine(msgspec.Struct, frozen=True):
    id: str = ""
    status: str = ""
    error: str = ""
    detail: _Amount | None = msgspec.field(name="progressDetail", default=None)


version_reply = msgspec.json.Decoder(VersionReply)
info_reply = msgspec.json.Decoder(InfoReply)
create_reply = msgspec.json.Decoder(CreateReply)
inspect_reply = msgspec.json.Decoder(InspectReply)
network_reply = msgspec.json.Decoder(NetworkReply)
list_reply = msgspec.json.Decoder(tuple[ListRow, ...])
image_reply = msgspec.json.Decoder(ImageReply)
event_line = msgspec.json.Decoder(EventLine)
pull_line = msgspec.json.Decoder(PullLine)

_KINDS = {
    "create": EventKind.CREATE,
    "start": EventKind.START,
    "die": EventKind.DIE,
    "destroy": EventKind.DESTROY,
    "oom": EventKind.OOM,
    "health_status": EventKind.HEALTH,
    "pause": EventKind.PAUSE,
    "unpause": EventKind.UNPAUSE,
}

EVENT_ACTIONS = tuple(_KINDS)
"""What is asked of the engine: without this, health checks alone send three exec events each time they run."""

_ENGINE_ATTRIBUTES = frozenset({"image", "name", "exitCode", "execDuration", "signal"})
"""Attributes of an event that the engine adds to the container's labels."""


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Unavailable(
            f"cannot read the engine's answer ({error}): {body[:80]!r}; does a Docker engine answer at this address?"
        ) from error


def engine_info(engine: VersionReply, info: InfoReply, versions: tuple[str, ...]) -> EngineInfo:
    return EngineInfo(
        name="docker",
        version=engine.version,
        api_version=versions[-1],
        api_versions=versions,
        cgroup_driver=info.cgroup_driver,
        cgroup_version=2 if info.cgroup_version == "2" else 1,
        log_drivers=info.plugins.log or (),
        volume_drivers=info.plugins.volume or (),
        root_dir=info.docker_root_dir,
    )


def container_info(reply: InspectReply) -> ContainerInfo:
    state = reply.state
    started, finished = seconds(state.started_at), seconds(state.finished_at)
    checks = (state.health.log if state.health else None) or ()
    return ContainerInfo(
        id=reply.id,
        name=reply.name.removeprefix("/"),
        image=reply.config.image,
        image_id=reply.image,
        state=_inspected_state(state, started),
        labels=reply.config.labels or {},
        # A container that never finished shows 0 here, and 127 after a start that failed: neither was an exit.
        exit_code=None if state.running or not finished else state.exit_code,
        error=state.error,
        oom_killed=state.oom_killed,
        health="" if state.health is None or state.health.status == "none" else state.health.status,
        health_exit_code=checks[-1].exit_code if checks else None,
        health_output=checks[-1].output if checks else "",
        created_at=seconds(reply.created),
        started_at=started,
        finished_at=finished,
        pid=state.pid,
        ports=tuple(_ports(reply.network_settings.ports or {})),
        log_path=reply.log_path,
        networks=tuple(
            Joined(name=name, ipv4=one.ip_address, ipv6=one.ipv6_address)
            for name, one in sorted((reply.network_settings.networks or {}).items())
            if one is not None
        ),
        mounts=tuple(
            Mounted(name=one.name, source=one.source, destination=one.destination) for one in reply.mounts or ()
        ),
        hosts_path=reply.hosts_path,
        resolver_path=reply.resolv_conf_path,
    )


def container_brief(row: ListRow) -> ContainerBrief:
    return ContainerBrief(
        id=row.id,
        name=_own_name(row.names or ()),
        image=row.image,
        state=_listed_state(row.state),
        labels=row.labels or {},
        created_at=row.created,
        image_id=row.image_id,
    )


def image_info(reply: ImageReply) -> ImageInfo:
    return ImageInfo(
        id=reply.id,
        tags=reply.repo_tags or (),
        digests=reply.repo_digests or (),
        size=reply.size,
        created_at=seconds(reply.created or ""),
        variables=tuple(one.partition("=")[0] for one in (reply.config and reply.config.env) or ()),
    )


def event(line: EventLine) -> Event | None:
    """None for what is not one of ours (old engines ignore the filter)."""
    action, _, detail = (line.action or line.status).partition(":")
    kind = _KINDS.get(action.strip())
    if kind is None:
        return None
    attributes = line.actor.attributes or {}
    return Event(
        kind=kind,
        container_id=line.actor.id or line.id,
        time=line.time_nano / 1e9 if line.time_nano else float(line.time),
        labels={key: value for key, value in attributes.items() if key not in _ENGINE_ATTRIBUTES},
        name=attributes.get("name", ""),
        image=attributes.get("image", line.image),
        exit_code=_number(attributes.get("exitCode", "")),
        health=detail.strip(),
    )


def progress(line: PullLine) -> Progress:
    amount = line.detail or _Amount()
    layer = "" if line.status.startswith("Pulling from") else line.id
    return Progress(layer=layer, status=line.status, current=amount.current, total=amount.total)


def seconds(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 for Docker's "never" (the year 1) and for no time at all."""
    if not text or text.startswith("0001-"):
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _inspected_state(state: _State, started: float) -> State:
    if state.running:
        return State.RUNNING
    if not state.dead and not started and not state.error:
        return State.CREATED
    return State.EXITED


def _listed_state(word: str) -> State:
    if word == "created":
        return State.CREATED
    return State.RUNNING if word in {"running", "paused", "restarting"} else State.EXITED


def _own_name(names: tuple[str, ...]) -> str:
    """Links add names like "/other/alias" to a container's own."""
    own = [name for name in names if name.count("/") == 1]
    return (own or [*names, ""])[0].removeprefix("/")


def _ports(published: dict[str, tuple[_HostPort, ...] | None]) -> list[PortBinding]:
    ports = []
    for inside, bindings in published.items():
        number, _, protocol = inside.partition("/")
        for binding in bindings or ():
            container_port, host_port = _number(number), _number(binding.host_port)
            if container_port is not None and host_port is not None:
                ports.append(
                    PortBinding(
                        container_port=container_port,
                        host_port=host_port,
                        bind_ip=binding.host_ip or "0.0.0.0",  # noqa: S104 - reported, not listened on
                        protocol=protocol or "tcp",
                    )
                )
    return ports


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
