"""A control plane inside the test's own process: its port, its key, and nothing that has to be waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

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


class Running:
    """A control plane in a thread, for clients that block."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._directory = directory
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self.plane: Plane

    async def _run(self) -> None:
        async with open_plane(self._directory, **self._options) as self.plane:
            self._up.set()
            await self._stop.wait()

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def client(self, service: str, region: str = REGION, extra: str | None = None) -> Any:
        """``extra`` is what it says of itself beside its name."""
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=f"http://{self.plane.host}",
            aws_access_key_id=self.plane.key.access_key_id,
            aws_secret_access_key=self.plane.key.secret_access_key,
            config=Config(retries={"max_attempts": 0}, user_agent_extra=extra),
        )
