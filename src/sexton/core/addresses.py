"""Pools of addresses: which blocks may be VPCs and subnets, what is reserved in them, and which address is next.

As in EC2, the first four addresses and the last one of a subnet belong to the network: the base, the gateway, two more,
and the broadcast address. The choice among the free ones is by a number from outside, so that two control planes that
choose at once seldom choose the same, and an address is seldom given again soon.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

Block4 = ipaddress.IPv4Network
Block6 = ipaddress.IPv6Network
Block = Block4 | Block6

LARGEST, SMALLEST = 16, 28
"""Prefix lengths of the largest and smallest block that a VPC or a subnet may have."""

VPC_BITS6, SUBNET_BITS6 = 56, 64
RESERVED_FIRST, RESERVED_LAST = 4, 1

# What can be no network of tasks: it means something else on every host.
_FOREIGN = tuple(
    map(ipaddress.IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"))
)
_FOREIGN6 = tuple(map(ipaddress.IPv6Network, ("::/8", "fe80::/10", "ff00::/8")))


def block4(text: str) -> Block4 | None:
    """An IPv4 block in canonical form; None for what is none. Bits behind the prefix are cleared, as EC2 does."""
    try:
        return Block4(text, strict=False) if _has_prefix(text) else None
    except ValueError:
        return None


def block6(text: str) -> Block6 | None:
    """The same of IPv6."""
    try:
        return Block6(text, strict=False) if _has_prefix(text) else None
    except ValueError:
        return None


def _has_prefix(text: str) -> bool:
    """Whether a length in bits follows the address: neither none, nor a mask, nor a zone."""
    address, _, bits = text.partition("/")
    return bits.isascii() and bits.isdecimal() and len(bits) <= 3 and "%" not in address


def fit_for_tasks(block: Block) -> bool:
    """Whether a block may be a network of tasks at all."""
    if isinstance(block, Block4):
        return LARGEST <= block.prefixlen <= SMALLEST and not any(block.overlaps(one) for one in _FOREIGN)
    return not any(block.overlaps(one) for one in _FOREIGN6)


def within(block: Block, blocks: Iterable[Block]) -> bool:
    """Whether one of the blocks holds all of this one."""
    return any(
        block.version == one.version and block.subnet_of(one)  # type: ignore[arg-type]
        for one in blocks
    )


def overlapping(block: Block, blocks: Iterable[Block]) -> Block | None:
    """The first of the blocks that shares addresses with this one."""
    return next((one for one in blocks if block.version == one.version and block.overlaps(one)), None)


def capacity(block: Block4) -> int:
    """How many interfaces a subnet has room for."""
    return block.num_addresses - RESERVED_FIRST - RESERVED_LAST


def gateway(block: Block) -> str:
    """The address at which a subnet's interfaces find the rest of the world."""
    return str(block.network_address + 1)


def usable(block: Block4, address: str) -> bool:
    """Whether an interface in this subnet may have this address."""
    try:
        place = int(ipaddress.IPv4Address(address)) - int(block.network_address)
    except ValueError:
        return False
    return RESERVED_FIRST <= place < block.num_addresses - RESERVED_LAST


def free(block: Block4, taken: Collection[str], draw: float) -> str | None:
    """A free address, the first one from where the draw (0 to 1) points; None when there is none."""
    room = capacity(block)
    first = int(block.network_address) + RESERVED_FIRST
    start = int(draw * room)
    for step in range(room):
        address = str(ipaddress.IPv4Address(first + (start + step) % room))
        if address not in taken:
            return address
    return None


def partner6(block: Block4, block_6: Block6, address: str) -> str:
    """The IPv6 address that goes with an IPv4 address: at the same place in its subnet, so as unique as that."""
    place = int(ipaddress.IPv4Address(address)) - int(block.network_address)
    return str(block_6.network_address + place)


def unique_local(seed: bytes) -> Block6:
    """A block of private IPv6 addresses for a VPC; the seed's first six bytes are its own part."""
    return Block6((b"\xfd" + seed[:6] + bytes(9), VPC_BITS6))


def mac(seed: bytes) -> str:
    """A locally administered address from five bytes."""
    return ":".join(f"{byte:02x}" for byte in b"\x02" + seed[:5])


def dns_name(region: str, address: str) -> str:
    """The name that EC2 gives an address."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"
