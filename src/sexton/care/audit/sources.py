"""Where an audit's root file system comes from: a directory, an archive, an engine's image, or this host.

A path that exists is taken as such; anything else is the name of an image. Of this host, what became of its units is
asked of its service manager as well.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from sexton.host.engine_image import read_image
from sexton.host.errors import HostFault
from sexton.host.image_archive import open_archive
from sexton.host.rootfs import Directory, Tree
from sexton.host.unit_states import read_states


def open_source(source: str, engine: str) -> Tree:
    """The tree of this name. Unreadable or Absent when there is none."""
    path = Path(source)
    if path.is_dir():
        return Directory(path)
    if path.exists():
        return open_archive(path)
    return read_image(source, engine)


def live_states(root: Path) -> dict[str, str]:
    """What became of each unit of a running host; nothing where no service manager answers."""
    try:
        return asyncio.run(read_states(root))
    except HostFault:
        return {}
