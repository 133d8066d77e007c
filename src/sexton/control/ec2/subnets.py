"""Subnets: the pools that tasks' addresses come from. Each is one network over all hosts, under a number of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sexton.control import network
from sexton.control.context import CONFLICT_TRIES, Call, Context
from sexton.control.ec2 import asking, defaults, vpcs, zones
from sexton.control.ec2.asking import Filters, Listing, Switch, TagSpecification
from sexton.control.networkrecords import SUBNET, Associated, SubnetRecord, UseRecord, VpcRecord
from sexton.control.query.service import Answer, Operation
from sexton.control.records import Entry
from sexton.core import addresses
from sexton.wire.query import DryRun, QueryError


class CreateSubnet(DryRun, frozen=True, kw_only=True):
    vpc_id: str
    cidr_block: str = ""
    ipv6_cidr_block: str = ""
    availability_zone: str = ""
    availability_zone_id: str = ""
    tag_specification: tuple[TagSpecification, ...] = ()


async def create(context: Context, call: Call, request: CreateSubnet) -> Answer:
    asking.required(request.cidr_block, "CidrBlock")
    records, region = context.records, call.region
    tags = asking.new_tags(request.tag_specification, SUBNET)
    zone = zones.chosen(context, region, request.availability_zone, request.availability_zone_id)
    subnet_id = asking.new_id(context, "subnet")
    association = asking.new_id(context, "subnet-cidr-assoc")
    for _ in range(CONFLICT_TRIES):
        home = vpcs.find(context, region, request.vpc_id)
        # Whoever makes another subnet at this moment makes this try fail.
        alone = network.unused_since(records, region, home.value.id)
        others = [one.value for _, one in records.subnets.under(region) if one.value.vpc == home.value.id]
        vni = defaults.free_vni(context)
        subnet = SubnetRecord(
            region=region,
            id=subnet_id,
            vpc=home.value.id,
            cidr=str(_block4(request.cidr_block, home.value, others)),
            zone=zone,
            vni=vni,
            tags=tags,
        )
        if request.ipv6_cidr_block:
            cidr6 = str(_block6(request.ipv6_cidr_block, home.value, others))
            subnet = msgspec.structs.replace(subnet, cidr6=Associated(id=association, cidr=cidr6))
        conditions = [
            records.unchanged(records.vpcs, home, region, home.value.id),
            alone,
            records.unchanged(records.uses, None, *defaults.vni_key(vni)),
        ]
        writes = [
            records.put(records.subnets, subnet, region, subnet_id),
            records.put(records.uses, UseRecord(by=subnet_id), *defaults.vni_key(vni)),
            *network.new_use(records, [home.value.id], region, subnet_id),
        ]
        if (await records.commit(conditions, writes)).succeeded:
            return {"subnet": shown(context, call, subnet)}
    raise asking.busy(f"The vpc '{request.vpc_id}'")


def _block4(text: str, vpc: VpcRecord, others: list[SubnetRecord]) -> addresses.Block4:
    block = addresses.block4(text)
    if block is None:
        raise asking.invalid(f"Value ({text}) for parameter cidrBlock is invalid. This is not a valid CIDR block.")
    if not addresses.fit_for_tasks(block) or not addresses.within(block, defaults.blocks(vpc)):
        text = f"The CIDR '{text}' is invalid: it must be a block of /16 to /28 inside {_all(vpc)}."
        raise QueryError("InvalidSubnet.Range", text)
    _no_conflict(block, [(one.id, one.cidr) for one in others])
    return block


def _block6(text: str, vpc: VpcRecord, others: list[SubnetRecord]) -> addresses.Block6:
    block = addresses.block6(text)
    if block is None:
        raise asking.invalid(f"Value ({text}) for parameter ipv6CidrBlock is invalid. This is not a valid CIDR block.")
    if block.prefixlen != addresses.SUBNET_BITS6 or not addresses.within(block, defaults.blocks(vpc)):
        text = f"The IPv6 CIDR '{text}' is invalid: it must be a block of /64 inside {_all(vpc)}."
        raise QueryError("InvalidSubnet.Range", text)
    _no_conflict(block, [(one.id, one.cidr6.cidr) for one in others if one.cidr6])
    return block


def _all(vpc: VpcRecord) -> str:
    return ", ".join(one.cidr for one in (*vpc.cidrs, *vpc.cidrs6))


def _no_conflict(block: addresses.Block, others: list[tuple[str, str]]) -> None:
    for subnet, cidr in others:
        other = addresses.block4(cidr) or addresses.block6(cidr)
        if other is not None and addresses.overlapping(block, [other]):
            text = f"The CIDR '{block}' conflicts with another subnet: {subnet} has {cidr}."
            raise QueryError("InvalidSubnet.Conflict", text)


class DescribeSubnets(Listing, frozen=True, kw_only=True):
    subnet_id: tuple[str, ...] = ()


FILTERS: Filters[SubnetRecord] = {
    "subnet-id": lambda one: [one.id],
    "vpc-id": lambda one: [one.vpc],
    "cidr": lambda one: [one.cidr],
    "cidr-block": lambda one: [one.cidr],
    "cidrBlock": lambda one: [one.cidr],
    "availability-zone": lambda one: [one.zone],
    "availabilityZone": lambda one: [one.zone],
    "availability-zone-id": lambda one: [zones.id_of(one.zone)],
    "availabilityZoneId": lambda one: [zones.id_of(one.zone)],
    "default-for-az": lambda one: [one.default],
    "defaultForAz": lambda one: [one.default],
    "map-public-ip-on-launch": lambda one: [one.public_address],
    "ipv6-cidr-block-association.ipv6-cidr-block": lambda one: [one.cidr6.cidr] if one.cidr6 else [],
    "ipv6-cidr-block-association.association-id": lambda one: [one.cidr6.id] if one.cidr6 else [],
    "ipv6-cidr-block-association.state": lambda one: ["associated"] if one.cidr6 else [],
    "ipv6-native": lambda _: [False],
    "state": lambda _: ["available"],
}


async def describe(context: Context, call: Call, request: DescribeSubnets) -> Answer:
    rows = {one.value.id: one.value for _, one in context.records.subnets.under(call.region)}
    found = asking.with_ids(rows, request.subnet_id, SUBNET)
    filters = {
        **FILTERS,
        "owner-id": lambda _: [context.account],
        "subnet-arn": lambda one: [asking.arn(context, call, f"subnet/{one.id}")],
        "available-ip-address-count": lambda one: [_left(context, one)],
    }
    found = asking.chosen(found, request.filter, filters, lambda one: one.tags)
    found, token = asking.page(request, found, lambda one: one.id)
    return asking.answer("subnetSet", [shown(context, call, one) for one in found], token)


def _left(context: Context, subnet: SubnetRecord) -> int:
    block = addresses.block4(subnet.cidr)
    return addresses.capacity(block) - context.network.in_subnet(subnet.id) if block else 0


def shown(context: Context, call: Call, subnet: SubnetRecord) -> dict[str, Any]:
    return {
        "subnetId": subnet.id,
        "subnetArn": asking.arn(context, call, f"subnet/{subnet.id}"),
        "state": "available",
        "ownerId": context.account,
        "vpcId": subnet.vpc,
        "cidrBlock": subnet.cidr,
        "ipv6CidrBlockAssociationSet": [_shown6(subnet.cidr6)] if subnet.cidr6 else [],
        "assignIpv6AddressOnCreation": subnet.ipv6_on_creation,
        "availableIpAddressCount": _left(context, subnet),
        "availabilityZone": subnet.zone,
        "availabilityZoneId": zones.id_of(subnet.zone),
        "defaultForAz": subnet.default,
        "mapPublicIpOnLaunch": subnet.public_address,
        "mapCustomerOwnedIpOnLaunch": False,
        "enableDns64": subnet.dns64,
        "ipv6Native": False,
        "privateDnsNameOptionsOnLaunch": {
            "hostnameType": subnet.hostname_type,
            "enableResourceNameDnsARecord": subnet.a_record,
            "enableResourceNameDnsAAAARecord": subnet.aaaa_record,
        },
        "tagSet": asking.shown_tags(subnet.tags),
    }


def _shown6(one: Associated) -> dict[str, Any]:
    return {"associationId": one.id, "ipv6CidrBlock": one.cidr, "ipv6CidrBlockState": vpcs.STATE}


class OfSubnet(DryRun, frozen=True, kw_only=True):
    subnet_id: str


def find(context: Context, region: str, subnet_id: str) -> Entry[SubnetRecord]:
    entry = context.records.subnets.get(region, subnet_id)
    if entry is None:
        raise asking.missing(SUBNET, subnet_id)
    return entry


async def delete(context: Context, call: Call, request: OfSubnet) -> Answer:
    records, region, subnet_id = context.records, call.region, request.subnet_id
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, subnet_id)
        conditions = [
            records.unchanged(records.subnets, entry, region, subnet_id),
            network.unused_since(records, region, subnet_id),
        ]
        inside = [one.value.id for _, one in records.interfaces.under(region, subnet_id)]
        if inside:
            text = f"The subnet '{subnet_id}' has dependencies and cannot be deleted: {', '.join(inside[:5])}."
            raise QueryError("DependencyViolation", text)
        gone = [
            records.delete(records.subnets, region, subnet_id),
            records.delete(records.uses, region, subnet_id),
            records.delete(records.uses, *defaults.vni_key(entry.value.vni)),
        ]
        if (await records.commit(conditions, gone)).succeeded:
            return {"return": True}
    raise asking.busy(f"The subnet '{subnet_id}'")


class ModifySubnetAttribute(OfSubnet, frozen=True, kw_only=True):
    assign_ipv6_address_on_creation: Switch | None = None
    map_public_ip_on_launch: Switch | None = None
    enable_dns64: Switch | None = None
    private_dns_hostname_type_on_launch: str | None = None
    enable_resource_name_dns_a_record_on_launch: Switch | None = msgspec.field(
        name="EnableResourceNameDnsARecordOnLaunch", default=None
    )
    enable_resource_name_dns_aaaa_record_on_launch: Switch | None = msgspec.field(
        name="EnableResourceNameDnsAAAARecordOnLaunch", default=None
    )


async def modify(context: Context, call: Call, request: ModifySubnetAttribute) -> Answer:
    given = {
        "ipv6_on_creation": request.assign_ipv6_address_on_creation,
        "public_address": request.map_public_ip_on_launch,
        "dns64": request.enable_dns64,
        "a_record": request.enable_resource_name_dns_a_record_on_launch,
        "aaaa_record": request.enable_resource_name_dns_aaaa_record_on_launch,
    }
    changes: dict[str, Any] = {name: one.value for name, one in given.items() if one is not None}
    if request.private_dns_hostname_type_on_launch is not None:
        if request.private_dns_hostname_type_on_launch not in ("ip-name", "resource-name"):
            raise asking.invalid("PrivateDnsHostnameTypeOnLaunch must be 'ip-name' or 'resource-name'.")
        changes["hostname_type"] = request.private_dns_hostname_type_on_launch
    if len(changes) != 1:
        raise vpcs.combination_of_one()

    def change(subnet: SubnetRecord) -> SubnetRecord:
        if changes.get("ipv6_on_creation") and subnet.cidr6 is None:
            raise asking.invalid(f"The subnet '{subnet.id}' has no IPv6 CIDR block that addresses could come from.")
        return msgspec.structs.replace(subnet, **changes)

    await _change(context, call.region, request.subnet_id, change)
    return {"return": True}


async def _change(
    context: Context, region: str, subnet_id: str, change: Callable[[SubnetRecord], SubnetRecord]
) -> SubnetRecord:
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, subnet_id)
        after = change(entry.value)
        unchanged = records.unchanged(records.subnets, entry, region, subnet_id)
        if (await records.commit([unchanged], [records.put(records.subnets, after, region, subnet_id)])).succeeded:
            return after
    raise asking.busy(f"The subnet '{subnet_id}'")


class AssociateSubnetCidrBlock(OfSubnet, frozen=True, kw_only=True):
    ipv6_cidr_block: str


async def associate(context: Context, call: Call, request: AssociateSubnetCidrBlock) -> Answer:
    records, region = context.records, call.region
    association = asking.new_id(context, "subnet-cidr-assoc")
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, request.subnet_id)
        subnet = entry.value
        if subnet.cidr6 is not None:
            raise asking.combination(f"The subnet '{subnet.id}' has an IPv6 CIDR block already: {subnet.cidr6.cidr}.")
        home = vpcs.find(context, region, subnet.vpc)
        alone = network.unused_since(records, region, subnet.vpc)
        others = [one.value for _, one in records.subnets.under(region) if one.value.vpc == subnet.vpc]
        made = Associated(id=association, cidr=str(_block6(request.ipv6_cidr_block, home.value, others)))
        after = msgspec.structs.replace(subnet, cidr6=made)
        conditions = [
            records.unchanged(records.subnets, entry, region, subnet.id),
            records.unchanged(records.vpcs, home, region, subnet.vpc),
            alone,
        ]
        writes = [
            records.put(records.subnets, after, region, subnet.id),
            *network.new_use(records, [subnet.vpc], region, subnet.id),
        ]
        if (await records.commit(conditions, writes)).succeeded:
            return {"subnetId": subnet.id, "ipv6CidrBlockAssociation": _shown6(made)}
    raise asking.busy(f"The subnet '{request.subnet_id}'")


class DisassociateSubnetCidrBlock(DryRun, frozen=True, kw_only=True):
    association_id: str


async def disassociate(context: Context, call: Call, request: DisassociateSubnetCidrBlock) -> Answer:
    records, region, given = context.records, call.region, request.association_id
    for _ in range(CONFLICT_TRIES):
        rows = (one for _, one in records.subnets.under(region))
        entry = next((one for one in rows if one.value.cidr6 and one.value.cidr6.id == given), None)
        if entry is None or entry.value.cidr6 is None:
            text = f"The subnet CIDR block association ID '{given}' does not exist"
            raise QueryError("InvalidSubnetCidrBlockAssociationID.NotFound", text)
        subnet, gone = entry.value, entry.value.cidr6
        unused = network.unused_since(records, region, subnet.id)
        holders = [one.value.id for _, one in records.interfaces.under(region, subnet.id) if one.value.ipv6]
        if holders:
            text = f"The IPv6 CIDR block '{gone.cidr}' is in use by {', '.join(holders[:5])}."
            raise QueryError("InvalidCidrBlock.InUse", text)
        after = msgspec.structs.replace(subnet, cidr6=None, ipv6_on_creation=False)
        unchanged = records.unchanged(records.subnets, entry, region, subnet.id)
        writes = [records.put(records.subnets, after, region, subnet.id)]
        if (await records.commit([unchanged, unused], writes)).succeeded:
            return {"subnetId": subnet.id, "ipv6CidrBlockAssociation": _shown6(gone)}
    raise asking.busy("The subnet")


OPERATIONS = {
    "CreateSubnet": Operation(CreateSubnet, create),
    "DescribeSubnets": Operation(DescribeSubnets, describe),
    "DeleteSubnet": Operation(OfSubnet, delete),
    "ModifySubnetAttribute": Operation(ModifySubnetAttribute, modify),
    "AssociateSubnetCidrBlock": Operation(AssociateSubnetCidrBlock, associate),
    "DisassociateSubnetCidrBlock": Operation(DisassociateSubnetCidrBlock, disassociate),
}
