"""A control plane inside the test's own process: its port, its key, and nothing that has to be waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sexton.cloud.credentials import Credentials
from sexton.control.app import ControlPlane, Options
from sexton.kit.listener import LIMITS, Limits

ACCOUNT = "123456789012"
REGION = "us-east-1"


class Plane:
    """Where a running control plane is, and who may call it."""

    def __init__(self, control: ControlPlane) -> None:
        self.control = control
        self.port = control.port
        self.host = f"127.0.0.1:{control.port}"
        self.key = Credentials(control.admin_key.access_key_id, control.admin_key.secret_access_key)


@asynccontextmanager
async def open_plane(directory: Path, limits: Limits = LIMITS, **options: Any) -> AsyncIterator[Plane]:
    control = ControlPlane(Options("127.0.0.1", 0, directory, ACCOUNT, REGION, limits=limits, **options))
    await control.start()
    try:
        yield Plane(control)
    finally:
        await control.stop()
