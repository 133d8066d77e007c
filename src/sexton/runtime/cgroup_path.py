"""Where an engine puts a container's cgroup, from the two conventions that exist.

``cgroupfs`` makes a directory named by the id below the parent. ``systemd`` makes a scope unit below a slice, and
the name of a slice spells its whole path: ``a-b.slice`` is found at ``/a.slice/a-b.slice``.
"""

from __future__ import annotations


def container_cgroup(container_id: str, parent: str, driver: str) -> str:
    """The path below a hierarchy's mount; an empty parent is the engine's default."""
    if driver == "systemd":
        return f"{_slice_path(parent or 'system.slice')}/docker-{container_id}.scope"
    return f"/{(parent or 'docker').strip('/')}/{container_id}"


def _slice_path(name: str) -> str:
    unit = name.rstrip("/").rpartition("/")[2]
    stem = unit.removesuffix(".slice")
    if stem == "-":
        return ""
    words = stem.split("-")
    return "".join(f"/{'-'.join(words[: count + 1])}.slice" for count in range(len(words)))
