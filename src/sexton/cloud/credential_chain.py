"""Which places the agent looks in for credentials, in which order.

The order is the one Amazon's agent has on EC2 and on external hosts; only the keys file of a control plane of ours
comes before, because whoever names it has chosen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from sexton.cloud.credential_endpoints import ContainerEndpoint, InstanceMetadata
from sexton.cloud.credential_files import ROTATING_FILE, Environment, KeysFile, RotatingFile, SharedFile
from sexton.cloud.credentials import Keyring, Provider


def agent_keyring(
    session: aiohttp.ClientSession,
    *,
    environ: Mapping[str, str] = os.environ,
    external: bool = False,
    keys_file: Path | None = None,
    rotating_file: Path = ROTATING_FILE,
    profile: str = "",
) -> Keyring:
    """Make the keyring of an agent; ``external`` is a host outside AWS, whose rotating file comes early."""
    shared = SharedFile.from_environment(environ)
    rotating = (
        RotatingFile(rotating_file, profile) if profile else RotatingFile.from_environment(environ, rotating_file)
    )
    role = InstanceMetadata(environ, session)
    chosen: list[Provider] = [KeysFile(keys_file)] if keys_file is not None else []
    if external:
        order: list[Provider] = [Environment(environ), rotating, shared, role]
    else:
        order = [Environment(environ), shared, ContainerEndpoint(environ, session), role, rotating]
    return Keyring([*chosen, *order])
