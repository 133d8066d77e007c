"""What a Docker engine keeps on its disk: images and volumes, how they come, are named, measured and go.

Halves of ``DockerRuntime``: they share its wire and deadlines. A pull's "no" and a registry's are the same words from
the same place, so both are judged by ``docker_faults.pull_fault``.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from urllib.parse import quote

import msgspec

from sexton.runtime import docker_decode as wire
from sexton.runtime.contract import DiskUse, ImageInfo, NotFound, Progress, Refused, VolumeInfo
from sexton.runtime.deadlines import Deadlines
from sexton.runtime.docker_faults import pull_fault
from sexton.runtime.docker_http import EngineHttp
from sexton.runtime.docker_lines import JsonLines
from sexton.runtime.references import repository_and_tag

DISTRIBUTION_API = (1, 30)
"""The first version with which an engine can be asked what a registry has."""

_WITHOUT_DIGEST = frozenset(
    {
        "application/vnd.docker.distribution.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
    }
)
"""The oldest kinds of manifests: a digest of theirs is of no use in a pull."""

_DANGLING = "<none>"


class _Docker(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """As in ``docker_decode``."""


class _ImageRow(_Docker, frozen=True):
    id: str
    repo_tags: tuple[str, ...] | None = None
    repo_digests: tuple[str, ...] | None = None
    size: int = 0
    created: float = 0.0


class _Volume(_Docker, frozen=True):
    name: str
    driver: str = "local"
    options: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    mountpoint: str = ""


class _VolumeList(_Docker, frozen=True):
    volumes: tuple[_Volume, ...] | None = None


class _Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""
    digest: str = ""


class _Distribution(_Docker, frozen=True):
    descriptor: _Descriptor = _Descriptor()


class _Measured(_Docker, frozen=True):
    size: int = 0


class _DiskImage(_Docker, frozen=True):
    id: str
    size: int = 0
    shared_size: int = 0


class _DiskContainer(_Docker, frozen=True):
    id: str
    size_rw: int = 0


class _DiskVolume(_Docker, frozen=True):
    name: str
    usage_data: _Measured | None = None


class DiskReply(_Docker, frozen=True):
    images: tuple[_DiskImage, ...] | None = None
    containers: tuple[_DiskContainer, ...] | None = None
    volumes: tuple[_DiskVolume, ...] | None = None


images_reply = msgspec.json.Decoder(tuple[_ImageRow, ...])
distribution_reply = msgspec.json.Decoder(_Distribution)
volume_reply = msgspec.json.Decoder(_Volume)
volumes_reply = msgspec.json.Decoder(_VolumeList)
disk_reply = msgspec.json.Decoder(DiskReply)


class DockerImages:
    """The engine's images."""

    _http: EngineHttp
    _deadlines: Deadlines

    async def image(self, ref: str) -> ImageInfo:
        body = await self._http.call("GET", f"{_image(ref)}/json", self._deadlines.inspect)
        return wire.image_info(wire.decode(wire.image_reply, body))

    async def images(self) -> tuple[ImageInfo, ...]:
        body = await self._http.call("GET", "/images/json", self._deadlines.images)
        return tuple(
            ImageInfo(
                id=row.id,
                tags=tuple(name for name in row.repo_tags or () if _DANGLING not in name),
                digests=tuple(name for name in row.repo_digests or () if _DANGLING not in name),
                size=max(row.size, 0),
                created_at=row.created,
            )
            for row in wire.decode(images_reply, body)
        )

    async def pull(self, ref: str, auth: Mapping[str, str] | None = None) -> AsyncIterator[Progress]:
        repository, tag = repository_and_tag(ref)
        limits = self._deadlines
        try:
            async with self._http.stream(
                "POST",
                "/images/create",
                limits.pull_begin,
                {"fromImage": repository, "tag": tag},
                _auth_header(auth),
                silence=limits.pull_silence,
                total=limits.pull,
            ) as pieces:
                async for raw in json_lines(pieces):
                    line = wire.decode(wire.pull_line, raw)
                    if line.error:
                        raise Refused(line.error)
                    yield wire.progress(line)
        except Refused as no:
            raise pull_fault(no) from None

    async def digest(self, ref: str, auth: Mapping[str, str] | None = None) -> str:
        newest = (await self._http.agreement()).versions[-1]
        if tuple(map(int, newest.split("."))) < DISTRIBUTION_API:
            return ""
        repository, tag = repository_and_tag(ref)
        name = f"{repository}{'@' if ':' in tag else ':'}{tag}"
        path = f"/distribution/{quote(name, safe='/:@')}/json"
        try:
            body = await self._http.call("GET", path, self._deadlines.manifest, headers=_auth_header(auth))
        except Refused as no:
            raise pull_fault(no) from None
        found = wire.decode(distribution_reply, body).descriptor
        return "" if found.media_type in _WITHOUT_DIGEST else found.digest

    async def tag(self, ref: str, name: str) -> None:
        repository, tag = repository_and_tag(name)
        await self._http.call("POST", f"{_image(ref)}/tag", self._deadlines.tag, {"repo": repository, "tag": tag})

    async def load_image(self, archive: bytes) -> None:
        body = await self._http.call("POST", "/images/load", self._deadlines.load, {"quiet": "1"}, archive)
        for line in body.splitlines():
            said = wire.decode(wire.pull_line, line) if line.strip() else None
            if said is not None and said.error:
                raise Refused(said.error)

    async def remove_image(self, ref: str) -> None:
        with suppress(NotFound):
            await self._http.call("DELETE", _image(ref), self._deadlines.remove_image)


class DockerVolumes:
    """The engine's volumes."""

    _http: EngineHttp
    _deadlines: Deadlines

    async def volume(self, name: str) -> VolumeInfo:
        body = await self._http.call("GET", _volume(name), self._deadlines.volume)
        return _volume_info(wire.decode(volume_reply, body))

    async def create_volume(
        self, name: str, *, driver: str, options: Mapping[str, str], labels: Mapping[str, str]
    ) -> VolumeInfo:
        wanted = {"Name": name, "Driver": driver, "DriverOpts": dict(options), "Labels": dict(labels)}
        body = await self._http.call(
            "POST", "/volumes/create", self._deadlines.volume, body=msgspec.json.encode(wanted)
        )
        return _volume_info(wire.decode(volume_reply, body))

    async def remove_volume(self, name: str) -> None:
        with suppress(NotFound):
            await self._http.call("DELETE", _volume(name), self._deadlines.volume)

    async def volumes(self, labels: Mapping[str, str]) -> tuple[VolumeInfo, ...]:
        query = None
        if labels:
            wanted = [f"{key}={value}" if value else key for key, value in labels.items()]
            query = {"filters": msgspec.json.encode({"label": wanted}).decode()}
        body = await self._http.call("GET", "/volumes", self._deadlines.volume, query)
        return tuple(_volume_info(row) for row in wire.decode(volumes_reply, body).volumes or ())


def disk_use(reply: DiskReply) -> DiskUse:
    """Engines say -1 for what they did not measure."""
    return DiskUse(
        images={row.id: max(row.size - max(row.shared_size, 0), 0) for row in reply.images or ()},
        containers={row.id: max(row.size_rw, 0) for row in reply.containers or ()},
        volumes={row.name: max(row.usage_data.size, 0) for row in reply.volumes or () if row.usage_data},
    )


async def json_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The values of a stream of JSON, one a line."""
    lines = JsonLines()
    async for piece in pieces:
        for line in lines.feed(piece):
            yield line
    for line in lines.finish():
        yield line


def _auth_header(auth: Mapping[str, str] | None) -> dict[str, str] | None:
    if auth is None:
        return None
    return {"X-Registry-Auth": base64.urlsafe_b64encode(msgspec.json.encode(dict(auth))).decode()}


def _image(ref: str) -> str:
    if not ref:
        raise NotFound("cannot find an image without a name", 404)
    return f"/images/{quote(ref, safe='/:@')}"


def _volume(name: str) -> str:
    if not name:
        raise NotFound("cannot find a volume without a name", 404)
    return f"/volumes/{quote(name, safe='')}"


def _volume_info(row: _Volume) -> VolumeInfo:
    return VolumeInfo(
        name=row.name,
        driver=row.driver,
        options=row.options or {},
        labels=row.labels or {},
        mountpoint=row.mountpoint,
    )
