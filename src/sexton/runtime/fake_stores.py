"""The part of the fake engine that is its disk: images, the registry they are pulled from, and volumes.

A test puts references into ``registry`` and images on the host; digests follow from a counter, as ids do. A pull by
digest finds the image of that digest, whatever it is called.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import msgspec

from sexton.runtime.contract import Conflict, DiskUse, ImageInfo, NotFound, Progress, VolumeInfo
from sexton.runtime.fake_script import Script
from sexton.runtime.references import repository_and_tag

IMAGE_SIZE = 1_000_000


class FakeStores(Script):
    """Images and volumes of an engine a test scripts."""

    def __init__(
        self, images: Iterable[str] = (), registry: Iterable[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._images: dict[str, ImageInfo] = {}
        self.registry = set(registry)
        self.auths: list[Mapping[str, str] | None] = []  # what each pull and each digest was asked with
        self.measured = DiskUse()  # what a test says lies on the disk
        self._digests: dict[str, str] = {}
        self._digests_made = 0
        self._pushed: set[str] = set()
        self._volumes: dict[str, VolumeInfo] = {}
        self._clock = clock
        for ref in images:
            self.add_image(ref)

    # What a test scripts.

    def add_image(self, ref: str, *, size: int = IMAGE_SIZE, variables: tuple[str, ...] = ()) -> ImageInfo:
        """The image is on this host from now on."""
        repository = repository_and_tag(ref)[0]
        digest = self._digest_of(ref)
        info = ImageInfo(
            id=digest,
            tags=() if "@" in ref else (_whole(ref),),
            digests=(f"{repository}@{digest}",),
            size=size,
            created_at=self._clock(),
            variables=variables,
        )
        if "@" not in ref:
            self._lose_name(_whole(ref))
        known = self._images.get(digest)
        if known is not None:
            info = msgspec.structs.replace(known, tags=tuple(dict.fromkeys(known.tags + info.tags)))
        self._images[digest] = info
        return info

    def push(self, ref: str) -> str:
        """The registry has a new image under this name; its digest."""
        self.registry.add(ref)
        self._digests.pop(ref, None)
        digest = self._digest_of(ref)
        self._pushed.add(digest)  # a registry keeps what a name was taken from
        return digest

    # The contract.

    async def image(self, ref: str) -> ImageInfo:
        async with self.call("image", ref):
            return self._image(ref)

    async def images(self) -> tuple[ImageInfo, ...]:
        async with self.call("images"):
            return tuple(self._images.values())

    async def pull(self, ref: str, auth: Mapping[str, str] | None = None) -> AsyncIterator[Progress]:
        async with self.call("pull", ref):
            self.auths.append(auth)
            yield Progress(status=f"Pulling from {ref}")
            if not self._offered(ref):
                raise NotFound(f"manifest for {ref} not found: manifest unknown: manifest unknown", 404)
            yield Progress(layer="1", status="Downloading", current=1, total=1)
            self.add_image(ref)

    async def digest(self, ref: str, auth: Mapping[str, str] | None = None) -> str:
        async with self.call("digest", ref):
            self.auths.append(auth)
            if not self._offered(ref):
                raise NotFound(f"manifest for {ref} not found: manifest unknown: manifest unknown", 404)
            self._pushed.add(self._digest_of(ref))
            return self._digest_of(ref)

    async def tag(self, ref: str, name: str) -> None:
        async with self.call("tag", ref):
            image = self._image(ref)
            self._lose_name(_whole(name))
            image = self._images[image.id]
            self._images[image.id] = msgspec.structs.replace(image, tags=(*image.tags, _whole(name)))

    async def load_image(self, archive: bytes) -> None:
        async with self.call("load_image"):
            with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
                manifest = opened.extractfile("manifest.json")
                assert manifest is not None
                for image in json.load(manifest):
                    for name in image["RepoTags"]:
                        self.add_image(name, size=len(archive))

    async def remove_image(self, ref: str) -> None:
        async with self.call("remove_image", ref):
            try:
                image = self._image(ref)
            except NotFound:
                return
            left = tuple(name for name in image.tags if name != _whole(ref))
            if left and ref != image.id:
                self._images[image.id] = msgspec.structs.replace(image, tags=left)
                return
            if image.id in self._used_images():
                raise Conflict(f"conflict: unable to remove {ref}: container is using its image", 409)
            del self._images[image.id]

    async def volume(self, name: str) -> VolumeInfo:
        async with self.call("volume", name):
            if name not in self._volumes:
                raise NotFound(f"get {name}: no such volume", 404)
            return self._volumes[name]

    async def create_volume(
        self, name: str, *, driver: str, options: Mapping[str, str], labels: Mapping[str, str]
    ) -> VolumeInfo:
        async with self.call("create_volume", name):
            if driver != "local":
                raise NotFound(f'create {name}: error looking up volume plugin {driver}: plugin "{driver}" not found')
            return self._volumes.setdefault(
                name,
                VolumeInfo(
                    name=name,
                    driver=driver,
                    options=dict(options),
                    labels=dict(labels),
                    mountpoint=f"/var/lib/fake/volumes/{name}/_data",
                ),
            )

    async def remove_volume(self, name: str) -> None:
        async with self.call("remove_volume", name):
            if name in self._used_volumes():
                raise Conflict(f"remove {name}: volume is in use", 409)
            self._volumes.pop(name, None)

    async def volumes(self, labels: Mapping[str, str]) -> tuple[VolumeInfo, ...]:
        async with self.call("volumes"):
            return tuple(
                one
                for one in self._volumes.values()
                if all(key in one.labels and value in ("", one.labels[key]) for key, value in labels.items())
            )

    async def disk_use(self) -> DiskUse:
        async with self.call("disk_use"):
            return self.measured

    # What containers hold fast; the engine that has them says.

    def _used_images(self) -> set[str]:
        return set()

    def _used_volumes(self) -> set[str]:
        return set()

    def _image(self, ref: str) -> ImageInfo:
        for image in self._images.values():
            if ref in (image.id, *image.digests) or _whole(ref) in image.tags:
                return image
        raise NotFound(f"No such image: {ref}", 404)

    def _offered(self, ref: str) -> bool:
        digest = ref.partition("@")[2]
        return ref in self.registry or digest in self._pushed or digest in map(self._digest_of, self.registry)

    def _digest_of(self, ref: str) -> str:
        if "@" in ref:
            return ref.partition("@")[2]
        if ref not in self._digests:
            self._digests_made += 1
            self._digests[ref] = f"sha256:{self._digests_made:064x}"
        return self._digests[ref]

    def _lose_name(self, name: str) -> None:
        for image in list(self._images.values()):
            if name in image.tags:
                left = tuple(one for one in image.tags if one != name)
                self._images[image.id] = msgspec.structs.replace(image, tags=left)


def _whole(ref: str) -> str:
    """A name with its tag; digests and ids as they are."""
    if "@" in ref or ref.startswith("sha256:"):
        return ref
    repository, tag = repository_and_tag(ref)
    return f"{repository}:{tag}"
