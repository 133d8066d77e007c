"""Tasks with a network of their own, on a real engine: what they see, what they reach, and what is left of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from node import until
from vpcagent import VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VpcAgent]:
    with VpcAgent(tmp_path_factory.mktemp("vpc")) as agent:
        yield agent


def test_a_task_has_its_own_address_and_reaches_its_neighbour(host):
    host.run(5, 6)

    addresses = json.loads(host.in_task(5, "ip", "-json", "addr", "show", "eth0"))[0]
    assert [one["local"] for one in addresses["addr_info"] if one["family"] == "inet"] == ["10.77.0.5"]
    assert addresses["address"] == "0a:77:00:00:00:05"
    assert host.exec(5, "ping", "-c1", "-W2", "10.77.0.6")
    assert "10.77.0.5\tip-10-77-0-5.ec2.internal" in host.exec(5, "cat", "/etc/hosts")

    host.stop(5, 6)
    host.until_told("STOPPED", 5, 6)
    host.networks()
    until(lambda: not host.devices() and not host.routers(), "nothing is left")
