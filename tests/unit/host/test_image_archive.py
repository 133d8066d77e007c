"""Root file systems in archives: plain tars, and images whose layers hide and remove."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from sexton.care.audit.auditing import audit
from sexton.care.audit.rulebook import open_rulebook
from sexton.host.errors import Unreadable
from sexton.host.image_archive import open_archive
from sexton.host.rootfs import Directory
from unitroot import ecs_root, make_root


def tar_of(top: Path, *, mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:
        tar.add(top, arcname=".")
    return made.getvalue()


def image_of(*layers: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        names = [f"blobs/sha256/{number}" for number in range(len(layers))]
        parts = dict(zip(names, layers, strict=True)) | {
            "manifest.json": json.dumps([{"Config": "c", "RepoTags": None, "Layers": names}]).encode()
        }
        for name, data in reversed(parts.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def open_format_of(*layers: bytes) -> bytes:
    """The same in the open container format, without the engine's own list."""
    blobs: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return f"sha256:{digest}"

    manifest = {"schemaVersion": 2, "layers": [{"digest": keep(layer)} for layer in layers]}
    index = {"schemaVersion": 2, "manifests": [{"digest": keep(json.dumps(manifest).encode())}]}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in {"index.json": json.dumps(index).encode(), **blobs}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def verdicts(tree):
    return {one.name: one.assessment.verdict for one in audit(tree, open_rulebook("plain")).units}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_tells_the_same_as_the_directory_it_was_made_from(tmp_path, mode):
    top = ecs_root(tmp_path / "root")
    archive = open_archive(write(tmp_path / "x.tar", tar_of(top, mode=mode)))

    assert verdicts(archive) == verdicts(Directory(top))


@pytest.mark.parametrize("save", [image_of, open_format_of])
def test_later_layers_replace_and_remove_what_earlier_ones_brought(tmp_path, save):
    base = ecs_root(tmp_path / "base")
    above = make_root(
        tmp_path / "above", {"late.service": "[Service]\nExecStart=/bin/true\n"}, enabled=["late.service"]
    )
    (above / "usr/lib/systemd/system/.wh.ecs.service").write_text("")
    (above / "etc/systemd/system/multi-user.target.wants/.wh.ecs.service").write_text("")
    image = open_archive(write(tmp_path / "x.tar", save(tar_of(base), tar_of(above))))

    assert {"docker.service", "late.service"} <= set(verdicts(image))
    assert "ecs.service" not in verdicts(image)


def test_an_opaque_directory_hides_all_below_it_but_its_own_layers(tmp_path):
    base = ecs_root(tmp_path / "base")
    above = make_root(tmp_path / "above", enabled=["docker.service"])
    (above / "etc/systemd/system/multi-user.target.wants/.wh..wh..opq").write_text("")
    image = open_archive(write(tmp_path / "x.tar", image_of(tar_of(base), tar_of(above))))

    assert list(image.listing("/etc/systemd/system/multi-user.target.wants")) == ["docker.service"]


def test_hard_links_keep_their_text(tmp_path):
    top = make_root(tmp_path / "root", files={"etc/one": "text"})
    (top / "etc/two").hardlink_to(top / "etc/one")
    archive = open_archive(write(tmp_path / "x.tar", tar_of(top)))

    assert (archive.text("/etc/one"), archive.text("/etc/two")) == ("text", "text")


def test_names_that_would_lead_out_stay_inside(tmp_path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        member = tarfile.TarInfo("../../etc/passwd")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    archive = open_archive(write(tmp_path / "x.tar", made.getvalue()))

    assert archive.text("/etc/passwd") == "x"


@pytest.mark.parametrize("cut", [10, 3000])
def test_what_is_no_archive_or_a_damaged_one_is_said(tmp_path, cut):
    data = tar_of(ecs_root(tmp_path / "root"), mode="w:gz")[:cut] if cut > 100 else b"not a tar at all"
    path = write(tmp_path / "x.tar", data[: max(cut, 10)] if cut < 100 else data[: len(data) // 2])

    with pytest.raises(Unreadable, match="cannot read"):
        open_archive(path)
