"""The VPC, subnet and group that every region has from the start, so that the first task needs no preparation.

Made when a region is first asked for its networks, with ids that follow from the account and the region: whoever looks
first, on whichever control plane, finds the same. What somebody deletes of them stays deleted.
"""

from __future__ import annotations

import hashlib

from sexton.control.context import CONFLICT_TRIES, Context
from sexton.control.networkrecords import (
    Associated,
    GroupRecord,
    RuleRecord,
    SubnetRecord,
    UseRecord,
    VpcRecord,
)
from sexton.core import addresses

# Neither the networks that Docker takes nor those of a default VPC on AWS, in which a host may really be.
VPC_CIDR = "10.213.0.0/16"
SUBNET_CIDR = "10.213.0.0/20"

MADE = "default"
"""The key of the mark that a region's defaults were made."""

# Numbers of VXLANs begin here, away from those of other programs on a host.
FIRST_VNI = 0x5E0000
LAST_VNI = (1 << 24) - 1
ANYWHERE, ANYWHERE6 = "0.0.0.0/0", "::/0"


async def ensure(context: Context, region: str) -> None:
    """Have the defaults of a region, if they never were there."""
    for _ in range(CONFLICT_TRIES):
        if context.records.uses.get(region, MADE) is not None or context.trouble():
            return
        await _make(context, region)


async def _make(context: Context, region: str) -> None:
    """One try: of several that begin at once one makes them, and all find them."""
    records = context.records

    def name(kind: str, which: str = "") -> str:
        return f"{kind}-{hashlib.sha256(f'{context.account}/{region}/{kind}{which}'.encode()).hexdigest()[:17]}"

    vpc = VpcRecord(
        region=region,
        id=name("vpc"),
        cidrs=(Associated(id=name("vpc-cidr-assoc"), cidr=VPC_CIDR),),
        default=True,
        dns_hostnames=True,
    )
    vni = free_vni(context)
    subnet = SubnetRecord(
        region=region, id=name("subnet"), vpc=vpc.id, cidr=SUBNET_CIDR, zone=f"{region}a", vni=vni, default=True
    )
    group = default_group(region, vpc, name("sg"), (name("sgr", "-in"), name("sgr", "-out")))
    by = UseRecord(by="the control plane")
    await records.commit(
        [records.unchanged(records.uses, None, region, MADE), records.unchanged(records.uses, None, *vni_key(vni))],
        [
            records.put(records.uses, by, region, MADE),
            records.put(records.uses, UseRecord(by=subnet.id), *vni_key(vni)),
            records.put(records.vpcs, vpc, region, vpc.id),
            records.put(records.subnets, subnet, region, subnet.id),
            records.put(records.groups, group, region, group.id),
        ],
    )


def default_group(region: str, vpc: VpcRecord, group_id: str, rules: tuple[str, str]) -> GroupRecord:
    """The group of what is given none: its members reach each other, and everything outside."""
    return GroupRecord(
        region=region,
        id=group_id,
        vpc=vpc.id,
        name="default",
        description="default VPC security group",
        ingress=(RuleRecord(id=rules[0], protocol="-1", group=group_id),),
        egress=(RuleRecord(id=rules[1], protocol="-1", cidr=ANYWHERE),),
    )


def vni_key(vni: int) -> tuple[str, str]:
    return "vni", str(vni)


def free_vni(context: Context) -> int:
    """The lowest number that no subnet of any region has."""
    taken = {entry.value.vni for entry in context.records.subnets.all()}
    return next(number for number in range(FIRST_VNI, LAST_VNI + 1) if number not in taken)


def default_vpc(context: Context, region: str) -> VpcRecord | None:
    return next((one.value for _, one in context.records.vpcs.under(region) if one.value.default), None)


def default_group_of(context: Context, region: str, vpc: str) -> GroupRecord | None:
    groups = (one.value for _, one in context.records.groups.under(region))
    return next((one for one in groups if one.vpc == vpc and one.name == "default"), None)


def blocks(vpc: VpcRecord) -> list[addresses.Block]:
    """All blocks of a VPC."""
    found: list[addresses.Block | None] = [addresses.block4(one.cidr) for one in vpc.cidrs]
    found += [addresses.block6(one.cidr) for one in vpc.cidrs6]
    return [one for one in found if one is not None]
