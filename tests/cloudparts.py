"""Stand-ins of AWS for tests: moto's server as a process of its own, with a few things put into it.

The server is started on a free loopback port; clients reach it by the standard ``AWS_ENDPOINT_URL`` setting.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3

from node import free_port

START_SECONDS = 60.0
REGION = "us-east-1"
KEYS = {"aws_access_key_id": "AKIDTEST", "aws_secret_access_key": "secret-key-of-tests"}


class Moto:
    """moto's server; use as a context manager."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Moto:
        server = Path(sys.executable).with_name("moto_server")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [server, "-H", "127.0.0.1", "-p", str(self.port)], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(f"cannot start moto's server:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
        try:
            connection.request("GET", "/moto-api/")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def environment(self) -> dict[str, str]:
        """What a client needs to come here."""
        return {"AWS_ENDPOINT_URL": self.url}

    def client(self, service: str, region: str = REGION) -> Any:
        return boto3.client(service, endpoint_url=self.url, region_name=region, **KEYS)
