"""Drivers are chosen by address and loaded only when chosen."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sexton.runtime.docker import DockerRuntime
from sexton.runtime.fake import FakeRuntime
from sexton.runtime.opening import open_runtime


async def test_the_address_chooses_the_driver() -> None:
    assert isinstance(open_runtime("unix:///var/run/docker.sock"), DockerRuntime)
    assert isinstance(open_runtime("tcp://127.0.0.1:2375"), DockerRuntime)
    assert isinstance(open_runtime("fake://"), FakeRuntime)


@pytest.mark.parametrize("url", ["", "/var/run/docker.sock", "ssh://host"])
def test_an_unknown_address_names_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match="begins with one of unix://"):
        open_runtime(url)


def test_no_driver_is_loaded_before_it_is_chosen() -> None:
    probe = "import sys, sexton.runtime.opening as o; assert not {'aiohttp', 'sexton.runtime.fake'} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", probe], check=True)
