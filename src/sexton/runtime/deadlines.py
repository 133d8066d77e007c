"""How long a container engine may take over each kind of call before it counts as not answering.

One value, handed to the driver when it is opened, so that an operator's settings (and tests in a hurry) can change
single figures. Nothing here survives a restart. Expiry is ``TimedOut``: an engine that is slow is not an engine that
said no, and the call may still have its effect.
"""

from __future__ import annotations

import msgspec


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    version: float = 10.0
    """What the engine is: answered from memory, so a longer silence means that it hangs."""

    inspect: float = 30.0
    """One container or image; it waits for the container's lock, which a slow start may hold."""

    list: float = 600.0
    """All containers; on a host with thousands and a busy disk this takes minutes."""

    create: float = 240.0
    """Copies image metadata and makes the writable layer and anonymous volumes."""

    start: float = 180.0
    """Mounts, network, runtime; log and volume plugins answer within it."""

    stop: float = 120.0
    """On top of the grace given to the container: the time the engine needs to see it gone and unmount."""

    signal: float = 30.0
    """Sending one signal waits for the container's lock and nothing else."""

    remove: float = 300.0
    """Deletes the writable layer, which takes as long as the disk takes over the files in it."""

    images: float = 600.0
    """All images; engines compute their sizes meanwhile."""

    manifest: float = 60.0
    """What a registry has for a reference: the engine logs in and asks for one manifest."""

    tag: float = 30.0
    """One more name for an image, in the engine's own files."""

    load: float = 120.0
    """An image of a few kilobytes; the engine may be busy with larger ones."""

    rename: float = 30.0
    """Waits for the container's lock."""

    remove_image: float = 180.0
    """Deletes layers, which takes as long as the disk takes over the files in them."""

    volume: float = 300.0
    """A volume is made, found or removed by its driver, which may be a plugin that asks a network."""

    disk_use: float = 600.0
    """Walks every volume and writable layer; nobody waits for it."""

    stream: float = 30.0
    """Until a stream (events, logs) is open, and between two pieces of a log that is not followed."""

    pull_begin: float = 300.0
    """Until the first word about a pull: the registry is asked for the manifest before the engine says anything."""

    pull_silence: float = 60.0
    """Between two words about a pull; layers report several times a second while anything moves."""

    pull: float = 7200.0
    """The whole pull, however steadily it crawls."""


DEFAULTS = Deadlines()
