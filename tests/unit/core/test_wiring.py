"""How a host's networks follow from the control plane's message: names, orders and rules."""

from __future__ import annotations

from sexton.core import wiring
from sexton.wire.network import Interface, SextonNetworkMessage, Subnet

HERE, THERE = "192.0.2.1", "192.0.2.2"
ONE = Subnet(id="s1", vpc="vpc-a", cidr="10.0.0.0/24", gateway="10.0.0.1", vni=7)
TWO = Subnet(
    id="s2", vpc="vpc-a", cidr="10.0.1.0/24", gateway="10.0.1.1", vni=8, ipv6_cidr="fd00::/64", ipv6_gateway="fd00::1"
)
OTHER = Subnet(id="s3", vpc="vpc-b", cidr="10.0.0.0/24", gateway="10.0.0.1", vni=9)


def interface(number: int, subnet: str = "s1", host: str = "") -> Interface:
    return Interface(
        id=f"eni-{number:017x}", subnet=subnet, mac="0a:00:00:00:00:01", ipv4=f"10.0.0.{number}", host=host
    )


def message(*interfaces: Interface) -> SextonNetworkMessage:
    return SextonNetworkMessage(subnets=(ONE, TWO, OTHER), interfaces=interfaces)


def order(*interfaces: Interface, address: str = HERE) -> wiring.Apply:
    return wiring.apply(message(*interfaces), "aaaabbbb", address, 4789, {"vpc-a": "rules of a"})


def test_each_vpc_with_a_task_here_has_a_router_with_its_rules():
    found = order(interface(5), interface(6, "s3")).routers

    assert [one.name for one in found] == ["sexton-aaaabbbb-vpc-a", "sexton-aaaabbbb-vpc-b"]
    assert found[0].gateways == ("10.0.0.1", "10.0.1.1", "fd00::1")
    assert found[0].rules == "rules of a" and found[1].rules == ""
    assert order(interface(5, host=THERE)).routers == ()


def test_other_hosts_tasks_are_reached_by_their_subnets_network():
    router = order(interface(5), interface(9, "s2", THERE)).routers[0]

    assert router.remotes == (wiring.Remote(addresses=("10.0.0.9",), vni=8, host=THERE),)
    assert router.tunnels == (wiring.Tunnel(vni=7, hosts=(THERE,)), wiring.Tunnel(vni=8, hosts=(THERE,)))


def test_tasks_of_this_host_alone_need_no_tunnel():
    assert order(interface(5)).routers[0].tunnels == ()
    assert order(interface(5), interface(6, host=HERE)).routers[0].remotes == ()


def test_a_host_without_an_address_reaches_no_other():
    router = order(interface(5), interface(9, host=THERE), address="").routers[0]

    assert router.tunnels == () and router.remotes == ()


def test_a_plug_carries_the_length_of_the_subnet():
    found = wiring.plug(
        message(), Interface(id="eni-1", subnet="s2", mac="m", ipv4="10.0.1.5", ipv6="fd00::5"), "t", "/n", ()
    )

    assert found is not None
    assert found.addresses == ("10.0.1.5/24", "fd00::5/64") and found.gateways == ("10.0.1.1", "fd00::1")
    assert (
        wiring.plug(message(), Interface(id="eni-1", subnet="unknown", mac="m", ipv4="10.0.1.5"), "t", "/n", ()) is None
    )


def test_names_fit_a_device_and_tell_interfaces_apart():
    names = {wiring.device_of(f"eni-{number:017x}") for number in range(1000)}

    assert len(names) == 1000 and all(len(one) <= 15 for one in names)
    assert len(wiring.uplink_of("aaaabbbb", "vpc-0123456789abcdef0")) <= 15
    assert len(wiring.adopted_name("0a:00:00:00:00:01")) <= 15


def test_hosts_know_each_others_hardware_address():
    assert wiring.host_mac(HERE) == wiring.host_mac(HERE) != wiring.host_mac(THERE)
    assert int(wiring.host_mac(HERE)[:2], 16) & 3 == 2  # of one device, and locally administered


def test_a_tunnel_hears_nobody_but_its_hosts():
    rules = wiring.host_rules("aaaabbbb", {"169.254.176.1"}, {7, 8}, {THERE}, 4789)

    assert "udp dport 4789 @th,96,24 { 7, 8 } ip saddr != { 192.0.2.2 } drop" in rules
    assert "meta nfproto ipv6 udp dport 4789 @th,96,24 { 7, 8 } drop" in rules
    assert "arriving" not in wiring.host_rules("aaaabbbb", {"169.254.176.1"}, (), (), 4789)
