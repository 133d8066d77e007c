"""How a host is wired for its tasks' own networks: names, addresses, and the orders given to the helper that wires.

Each VPC with tasks here has a router, a network namespace of this agent (ADR 11). From the control plane's message
follow its devices, its routes to tasks of other hosts, and whom the host must hear from. Every name follows from the
agent's instance and from an id, so that what a process left that died anywhere is found again by the next one, and two
agents on a machine never meet. An order says how things shall be, not what to change: given twice it does no harm.

    router (a namespace per VPC)              the host
      e<id>  a task's veth <--> eth0 in the     sxu<tag><hash> <--> up, the way outside
             task's namespace                   v<vni> sends from here, and lives in the router
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from sexton.wire import acs_task, network
from sexton.wire.ownnetwork import Count as Counted

# What every task's own network answers at: metadata and keys. No group judges it.
ENDPOINT = "169.254.170.2"
# The way outside from a router: pairs of addresses from here, the host's end first. Beside the addresses that Amazon's
# agent uses (169.254.170.2, 169.254.172.0/22), and no use to anybody beyond this host.
UPLINKS = "169.254.176.0/20"
UPLINK_DEVICE = "up"
_ANY_UPLINK = "sxu"  # of whichever agent
TASK_DEVICE = "eth0"
# Every router has this address towards its tasks: one that moves elsewhere finds the same next hop.
ROUTER_MAC = "02:53:58:00:00:01"
# Bytes that VXLAN takes from each packet, over IPv4 and over IPv6.
OVERHEAD, OVERHEAD6 = 50, 70


def tag_of(instance_arn: str) -> str:
    """What tells one agent's things from another's."""
    return hashlib.sha256(instance_arn.encode()).hexdigest()[:8]


def router_prefix(tag: str) -> str:
    return f"sexton-{tag}-"


def router_of(tag: str, vpc: str) -> str:
    """The name of the namespace that routes for a VPC."""
    return router_prefix(tag) + vpc


def device_of(interface_id: str) -> str:
    """The router's end of a task's interface."""
    return "e" + interface_id.removeprefix("eni-")[-14:]


def uplink_prefix(tag: str) -> str:
    return f"{_ANY_UPLINK}{tag[:6]}"


def uplink_of(tag: str, vpc: str) -> str:
    """The host's end of a router's way outside."""
    return uplink_prefix(tag) + hashlib.sha256(vpc.encode()).hexdigest()[:6]


def tunnel_of(vni: int) -> str:
    """The router's device to other hosts' tasks of a subnet."""
    return f"v{vni}"


def host_mac(host: str) -> str:
    """The hardware address that a host's tunnels have, as every other host knows it from the host's address."""
    digest = hashlib.sha256(ipaddress.ip_address(host).packed).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def adopted_name(mac: str) -> str:
    """What a device that was announced by its hardware address is called while no task has it."""
    return "ecs" + mac.replace(":", "").lower()[6:]


class Tunnel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One VXLAN network, and which hosts it leads to."""

    vni: int
    hosts: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()  # in an order that is not whole


class Remote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task's addresses on another host."""

    addresses: tuple[str, ...]
    vni: int
    host: str


class Router(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One namespace as it shall be. ``rules`` is the text of its packet filter, applied whole."""

    name: str
    uplink: str
    gateways: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()  # of its subnets: what nobody in them has leads nowhere
    tunnels: tuple[Tunnel, ...] = ()
    remotes: tuple[Remote, ...] = ()
    gone: tuple[Remote, ...] = ()  # in an order that is not whole
    rules: str = ""


class Apply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="apply"):
    """The whole of a host's networks. A router that is not named goes, once no task is plugged into it. One that is not
    ``whole`` names of the other hosts and their tasks only those that are new, other, or gone (``core/wiringchange``).
    """

    tag: str
    whole: bool = True
    routers: tuple[Router, ...] = ()
    peers: tuple[str, ...] = ()  # in an order that is not whole: all other hosts, if they are not the same any more
    address: str = ""  # of this host, for traffic between hosts
    port: int = 4789


class Plug(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="plug"):
    """Give the namespace of a process its interface, wired to a router. ``addresses`` and ``gateways`` belong together,
    the former with the length of their subnet."""

    router: str
    uplink: str
    device: str
    namespace: str
    mac: str
    addresses: tuple[str, ...]
    gateways: tuple[str, ...]
    mtu: int = 0
    blackholes: tuple[str, ...] = ()


class Unplug(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="unplug"):
    """Remove a task's interface, if it is still there, and the host's routes to it."""

    tag: str
    device: str
    addresses: tuple[str, ...] = ()


class Adopt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="adopt"):
    """Move the device with a hardware address into the namespace of a process and configure it there. Without a gateway
    for IPv6 the network's routers are asked for one."""

    namespace: str
    mac: str
    addresses: tuple[str, ...]
    gateways: tuple[str, ...]
    blackholes: tuple[str, ...] = ()


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="release"):
    """Take an adopted device back into the host's namespace."""

    namespace: str
    mac: str


class Clear(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="clear"):
    """Remove what an agent's routers are, except those that are to be kept, and interfaces of no task."""

    tag: str
    devices: tuple[str, ...] = ()  # that belong to tasks
    addresses: tuple[str, ...] = ()  # that belong to tasks
    everything: bool = False


class Count(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="count"):
    """What the tables of this name in these routers have counted."""

    routers: tuple[str, ...]
    table: str


Order = Apply | Plug | Unplug | Adopt | Release | Clear | Count


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an order: an error in one sentence, or what was counted. What is ``partly`` done is in force but
    for the way to other hosts, and this says why."""

    error: str = ""
    partly: str = ""
    counts: dict[str, Counted] = {}


def apply(message: network.SextonNetworkMessage, tag: str, address: str, port: int, rules: Mapping[str, str]) -> Apply:
    """The host's networks as a message wants them. ``rules`` are packet filters by VPC."""
    subnets = {one.id: one for one in message.subnets}
    routers = []
    for vpc in sorted(
        {subnets[one.subnet].vpc for one in message.interfaces if _is_here(one, address) and one.subnet in subnets}
    ):
        blocks = tuple(one for one in message.subnets if one.vpc == vpc)
        remotes = tuple(
            Remote(addresses=_addresses(one), vni=subnets[one.subnet].vni, host=one.host)
            for one in message.interfaces
            if not _is_here(one, address) and one.subnet in subnets and subnets[one.subnet].vpc == vpc
        )
        hosts: dict[int, dict[str, None]] = {}
        for one in remotes:
            hosts.setdefault(one.vni, {})[one.host] = None
        here = {
            subnets[one.subnet].vni for one in message.interfaces if _is_here(one, address) and one.subnet in subnets
        }
        for block in blocks:
            if block.vni in here or block.vni in hosts:
                hosts.setdefault(block.vni, {})
        everyone = tuple(sorted({one.host for one in remotes}))
        routers.append(
            Router(
                name=router_of(tag, vpc),
                uplink=uplink_of(tag, vpc),
                gateways=tuple(text for one in blocks for text in (one.gateway, one.ipv6_gateway) if text),
                blocks=tuple(text for one in blocks for text in (one.cidr, one.ipv6_cidr) if text),
                # Whoever has a task here may be answered from any other host of the VPC.
                tunnels=tuple(Tunnel(vni=vni, hosts=everyone) for vni in sorted(hosts)) if everyone and address else (),
                remotes=remotes if address else (),
                rules=rules.get(vpc, ""),
            )
        )
    return Apply(tag=tag, routers=tuple(routers), address=address, port=port)


def _is_here(one: network.Interface, address: str) -> bool:
    return not one.host or one.host == address


def adopt(given: acs_task.ElasticNetworkInterface, namespace: str, blackholes: Iterable[str]) -> Adopt:
    """The order that gives a task a device of the host, as its payload describes it."""
    pairs = [
        (
            next((one.private_address or "" for one in given.ipv4_addresses or () if one.primary is not False), ""),
            given.subnet_gateway_ipv4_address or "",
            24,
        ),
        (
            next((one.address or "" for one in given.ipv6_addresses or () if one.primary is not False), ""),
            given.subnet_gateway_ipv6_address or "",
            64,
        ),
    ]
    return Adopt(
        namespace=namespace,
        mac=(given.mac_address or "").lower(),
        addresses=tuple(f"{own}/{gate.partition('/')[2] or length}" for own, gate, length in pairs if own),
        gateways=tuple(gate.partition("/")[0] for own, gate, _ in pairs if own and gate),
        blackholes=tuple(blackholes),
    )


def _addresses(one: network.Interface) -> tuple[str, ...]:
    return tuple(text for text in (one.ipv4, one.ipv6) if text)


def plug(
    message: network.SextonNetworkMessage,
    interface: network.Interface,
    tag: str,
    namespace: str,
    blackholes: Iterable[str],
) -> Plug | None:
    """The order that wires a task; None when the message does not know its subnet."""
    subnet = next((one for one in message.subnets if one.id == interface.subnet), None)
    if subnet is None:
        return None
    pairs = [(interface.ipv4, subnet.cidr, subnet.gateway), (interface.ipv6, subnet.ipv6_cidr, subnet.ipv6_gateway)]
    given = [
        (f"{own}/{block.partition('/')[2]}", gateway) for own, block, gateway in pairs if own and block and gateway
    ]
    return Plug(
        router=router_of(tag, subnet.vpc),
        uplink=uplink_of(tag, subnet.vpc),
        device=device_of(interface.id),
        namespace=namespace,
        mac=interface.mac,
        addresses=tuple(own for own, _ in given),
        gateways=tuple(gateway for _, gateway in given),
        blackholes=tuple(blackholes),
    )


# A router's own filter beside the groups' rules: who goes outside does so as the router.
OUTSIDE = f"""table inet sexton-outside
delete table inet sexton-outside
table inet sexton-outside {{
  chain leaving {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{UPLINK_DEVICE}" masquerade
  }}
}}
"""


def host_table(tag: str) -> str:
    return f"sexton-{tag}"


def host_rules(tag: str, uplinks: Iterable[str], vnis: Iterable[int], peers: Iterable[str], port: int) -> str:
    """The host's own filter: routers go outside with the host's address, and tunnels hear nobody but their hosts."""
    table = host_table(tag)
    ours4 = ", ".join(sorted(one for one in uplinks if ":" not in one))
    ours6 = ", ".join(sorted(one for one in uplinks if ":" in one))
    networks = ", ".join(str(one) for one in sorted(vnis))
    lines = [f"table inet {table}", f"delete table inet {table}", f"table inet {table} {{", "chain leaving {"]
    lines.append("type nat hook postrouting priority srcnat; policy accept;")
    mine = f'oifname != "{uplink_prefix(tag)}*" masquerade'
    lines += [f"ip saddr {{ {ours4} }} {mine}"] if ours4 else []
    lines += [f"ip6 saddr {{ {ours6} }} {mine}"] if ours6 else []
    lines.append("}")
    if networks:
        # The number of the network is 24 bits, after eight bytes of UDP's header and four of VXLAN's.
        meant = f"udp dport {port} @th,96,24 {{ {networks} }}"
        four = ", ".join(sorted(one for one in peers if ":" not in one))
        six = ", ".join(sorted(one for one in peers if ":" in one))
        lines += ["chain arriving {", "type filter hook input priority filter; policy accept;"]
        lines.append(f"{meant} ip saddr != {{ {four} }} drop" if four else f"meta nfproto ipv4 {meant} drop")
        lines.append(f"{meant} ip6 saddr != {{ {six} }} drop" if six else f"meta nfproto ipv6 {meant} drop")
        lines.append("}")
    return "\n".join([*lines, "}", ""])


def removal(table: str) -> str:
    """A transaction after which a table is gone, whether or not it was there."""
    return f"table inet {table}\ndelete table inet {table}\n"


def metadata_table(tag: str) -> str:
    return f"sexton-{tag}-metadata"


def metadata_rules(tag: str) -> str:
    """No packet that is forwarded for others than tasks with a network of their own reaches the metadata service."""
    table = metadata_table(tag)
    return f"""table inet {table}
delete table inet {table}
table inet {table} {{
  chain passing {{
    type filter hook forward priority filter; policy accept;
    iifname != "{_ANY_UPLINK}*" ip daddr 169.254.169.254 counter drop
    iifname != "{_ANY_UPLINK}*" ip6 daddr fd00:ec2::254 counter drop
  }}
}}
"""
