"""Tasks of one subnet on two hosts, each with an engine, an agent and a network of its own, joined by a cable."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nethosts import inside, run
from node import until
from sites import transfer
from vpcagent import VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

FIRST, SECOND = "10.98.0.2", "10.98.0.3"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VpcAgent, VpcAgent]]:
    root = tmp_path_factory.mktemp("hosts")
    with VpcAgent(root / "1", address=FIRST) as one, VpcAgent(root / "2", address=SECOND, beside=one) as two:
        yield one, two


def test_tasks_of_two_hosts_reach_each_other_and_a_task_that_moves_is_found_again(hosts):
    one, two = hosts
    near, far = one.interface(5, ipv6=True), two.interface(6, ipv6=True)

    def elsewhere(interface, host):
        return msgspec.structs.replace(interface, host=host.address)

    with inside(one.namespace.path):
        alone, whole = (Path("/proc/sys/net/ipv6/conf", one) for one in ("far/force_forwarding", "all/forwarding"))
        (alone if alone.exists() else whole).write_text("1")
        forwards = whole.read_text()
    one.networks(near, elsewhere(far, two))
    two.networks(far, elsewhere(near, one))
    one.plane.payload(one.task(5))
    two.plane.payload(two.task(6))
    one.until_told("RUNNING", 5)
    two.until_told("RUNNING", 6)
    for address, port in (("10.77.0.6", 7001), ("fd77::6", 7002)):
        assert transfer(one.space_of(5), two.space_of(6), address, port) == "40000"
    assert transfer(two.space_of(6), one.space_of(5), "10.77.0.5", 7003) == "40000"

    # Its host is gone: nobody answers, and nothing is sent there any more.
    one.networks(near)
    with pytest.raises(OSError), inside(one.space_of(5)):
        socket.create_connection(("10.77.0.6", 7004), timeout=0.5).close()
    one.networks(near, elsewhere(far, two))
    assert transfer(one.space_of(5), two.space_of(6), "10.77.0.6", 7005) == "40000"

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

    # By IPv6 as well: where the kernel can, without a host that forwards it for everybody.
    for host in (one, two):
        host.namespace.run(
            "ip", "-6", "addr", "add", f"fd98::{host.address.rpartition('.')[2]}/64", "dev", "eth0", "nodad"
        )
    one.namespace.run("ip", "-6", "addr", "add", "fd98::2/128", "dev", "far", "nodad")
    one.namespace.run("ip", "-6", "route", "replace", "fd98::3/128", "dev", "far")
    with inside(one.namespace.path):
        assert whole.read_text() == forwards
    with inside(two.namespace.path):
        outside = socket.create_server(("fd98::3", 7007), family=socket.AF_INET6)
    with outside:
        outside.settimeout(5)
        with inside(one.space_of(5)):
            calling = socket.create_connection(("fd98::3", 7007), timeout=5)
        served, peer = outside.accept()
        served.close()
        calling.close()
    assert peer[0] == "fd98::2"

    # A packet that claims to be of the network, from a host that has no task in it, is not heard.
    counters = two.namespace.run("nft", "list", "table", "inet", f"sexton-{two.tag}")
    assert f"ip saddr != {FIRST} drop" in counters
    for host, number in ((one, 5), (two, 6)):
        host.stop(number)
        host.until_told("STOPPED", number)
        host.networks()
        until(lambda host=host: not host.routers(), "no router is left")
    assert "-j ACCEPT" not in one.namespace.run("iptables", "-S", "FORWARD")


def remotes(host: VpcAgent) -> dict[str, object]:
    """Where a host's router sends what is meant for other hosts' tasks."""
    (router,) = host.routers()
    within = ("nsenter", f"--net=/run/netns/{router}")
    links = {one["ifname"]: one["address"] for one in json.loads(run("ip", "-json", "link", within=within))}
    (tunnel,) = [one for one in links if one.startswith("v")]
    routes = [
        one["dst"]
        for way in ("-4", "-6")
        for one in json.loads(run("ip", way, "-json", "route", "show", "dev", tunnel, "proto", "83", within=within))
    ]
    neighbours = json.loads(run("ip", "-json", "neigh", "show", "dev", tunnel, "nud", "permanent", within=within))
    ends = json.loads(run("bridge", "-json", "fdb", "show", "dev", tunnel, within=within))
    return {
        "routes": sorted(routes),
        "neighbours": sorted((one["dst"], one["lladdr"]) for one in neighbours if one["dst"] in routes),
        "ends": sorted((one["mac"], one["dst"]) for one in ends if "dst" in one),
        "heard": re.findall(r"ip saddr != (.*) drop", host.namespace.run("nft", "list", "ruleset")),
    }


def test_what_changes_elsewhere_leads_to_what_all_of_it_at_once_does(hosts):
    """A host of a large network is told, and does, only what is different; an agent that starts compares it all."""
    host, _ = hosts
    near = host.interface(40)

    def others(**places: str):
        """Tasks on other hosts, by number."""
        return [msgspec.structs.replace(host.interface(int(n[1:]), ipv6=True), host=at) for n, at in places.items()]

    host.networks(near, *others(t41="10.98.0.41", t42="10.98.0.42", t43="10.98.0.42"))
    host.plane.payload(host.task(40))
    host.until_told("RUNNING", 40)
    for places in (
        {"t41": "10.98.0.41", "t42": "10.98.0.42", "t43": "10.98.0.42", "t44": "10.98.0.43"},  # one more, elsewhere
        {"t41": "10.98.0.42", "t42": "10.98.0.42", "t43": "10.98.0.42", "t44": "10.98.0.43"},  # one moves, a host goes
        {"t42": "10.98.0.42", "t44": "10.98.0.43"},  # two go
    ):
        host.networks(near, *others(**places))
        done = remotes(host)
        assert done["routes"] == sorted(one for n in places for one in (f"10.77.0.{n[1:]}", f"fd77::{int(n[1:]):x}"))
        assert {at for _, at in done["ends"]} == set(places.values())
        host.agent.kill()
        host.start_agent()
        host.networks(near, *others(**places))
        assert remotes(host) == done
    host.stop(40)
    host.until_told("STOPPED", 40)
    host.networks()
    until(lambda: not host.routers(), "no router is left")
