"""Tasks of one subnet on two hosts, each with an engine, an agent and a network of its own, joined by a cable."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from nethosts import inside
from node import until
from vpcagent import VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

FIRST, SECOND = "10.98.0.2", "10.98.0.3"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VpcAgent, VpcAgent]]:
    root = tmp_path_factory.mktemp("hosts")
    with VpcAgent(root / "1", address=FIRST) as one, VpcAgent(root / "2", address=SECOND, beside=one) as two:
        yield one, two


def exchange(client: str, server: str, address: str, port: int) -> str:
    """What a client in one namespace says to a server in another and hears back."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(server):
        listening = socket.create_server(("", port), family=family)
    with listening:
        listening.settimeout(5)
        with inside(client):
            calling = socket.create_connection((address, port), timeout=5)
        with calling:
            served, _ = listening.accept()
            with served:
                calling.sendall(b"x" * 40_000)  # larger than any packet: sizes on the way fit
                calling.shutdown(socket.SHUT_WR)
                length = 0
                while data := served.recv(65536):
                    length += len(data)
                served.sendall(f"{length}".encode())
            return calling.recv(100).decode()


def test_tasks_of_two_hosts_reach_each_other_and_a_task_that_moves_is_found_again(hosts):
    one, two = hosts
    near, far = one.interface(5, ipv6=True), two.interface(6, ipv6=True)

    def elsewhere(interface, host):
        return msgspec.structs.replace(interface, host=host.address)

    one.networks(near, elsewhere(far, two))
    two.networks(far, elsewhere(near, one))
    one.plane.payload(one.task(5))
    two.plane.payload(two.task(6))
    one.until_told("RUNNING", 5)
    two.until_told("RUNNING", 6)
    for address, port in (("10.77.0.6", 7001), ("fd77::6", 7002)):
        assert exchange(one.space_of(5), two.space_of(6), address, port) == "40000"
    assert exchange(two.space_of(6), one.space_of(5), "10.77.0.5", 7003) == "40000"

    # Its host is gone: nobody answers, and nothing is sent there any more.
    one.networks(near)
    with pytest.raises(OSError), inside(one.space_of(5)):
        socket.create_connection(("10.77.0.6", 7004), timeout=0.5).close()
    one.networks(near, elsewhere(far, two))
    assert exchange(one.space_of(5), two.space_of(6), "10.77.0.6", 7005) == "40000"

    # Outside is reached with the host's address, also where the engine's filter drops what is not its own.
    one.namespace.run("iptables", "-P", "FORWARD", "DROP")
    one.networks(*one.interfaces)
    with inside(two.namespace.path):
        outside = socket.create_server(("", 7006))
    with outside:
        outside.settimeout(5)
        with inside(one.space_of(5)):
            calling = socket.create_connection((SECOND, 7006), timeout=5)
        served, peer = outside.accept()
        served.close()
        calling.close()
    assert peer[0] == FIRST

    # A packet that claims to be of the network, from a host that has no task in it, is not heard.
    counters = two.namespace.run("nft", "list", "table", "inet", f"sexton-{two.tag}")
    assert f"ip saddr != {FIRST} drop" in counters
    for host, number in ((one, 5), (two, 6)):
        host.stop(number)
        host.until_told("STOPPED", number)
        host.networks()
        until(lambda host=host: not host.routers(), "no router is left")
    assert "-j ACCEPT" not in one.namespace.run("iptables", "-S", "FORWARD")
