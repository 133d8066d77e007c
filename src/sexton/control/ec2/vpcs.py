"""VPCs: blocks of addresses with a name, in which subnets, groups and interfaces live."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from sexton.control import network
from sexton.control.context import CONFLICT_TRIES, Call, Context
from sexton.control.ec2 import asking, defaults
from sexton.control.ec2.asking import Filters, Listing, Switch, TagSpecification
from sexton.control.networkrecords import VPC, Associated, GroupRecord, RuleRecord, VpcRecord
from sexton.control.query.service import Answer, Operation
from sexton.control.records import Entry
from sexton.core import addresses
from sexton.wire.query import DryRun, QueryError

DHCP_OPTIONS = "dopt-default"
STATE = {"state": "associated"}


class CreateVpc(DryRun, frozen=True, kw_only=True):
    cidr_block: str = ""
    amazon_provided_ipv6_cidr_block: bool = False
    instance_tenancy: str = "default"
    tag_specification: tuple[TagSpecification, ...] = ()


async def create(context: Context, call: Call, request: CreateVpc) -> Answer:
    asking.required(request.cidr_block, "CidrBlock")
    if request.instance_tenancy not in ("", "default"):
        raise asking.invalid("There is no dedicated hardware here: InstanceTenancy must be 'default'.")
    cidr = vpc_block(request.cidr_block)
    tags = asking.new_tags(request.tag_specification, VPC)
    records = context.records
    vpc_id = asking.new_id(context, "vpc")
    own = Associated(id=asking.new_id(context, "vpc-cidr-assoc"), cidr=str(cidr))
    vpc = VpcRecord(region=call.region, id=vpc_id, cidrs=(own,), tags=tags)
    if request.amazon_provided_ipv6_cidr_block:
        vpc = msgspec.structs.replace(vpc, cidrs6=(_given6(context, vpc_id),))
    rules = asking.new_id(context, "sgr"), asking.new_id(context, "sgr")
    group = defaults.default_group(call.region, vpc, asking.new_id(context, "sg"), rules)
    if vpc.cidrs6:
        group = reaching6(group, asking.new_id(context, "sgr"))
    await records.commit(
        [],
        [
            records.put(records.vpcs, vpc, call.region, vpc.id),
            records.put(records.groups, group, call.region, group.id),
        ],
    )
    return {"vpc": shown(context, vpc)}


def vpc_block(text: str) -> addresses.Block4:
    block = addresses.block4(text)
    if block is None:
        raise asking.invalid(f"Value ({text}) for parameter cidrBlock is invalid. This is not a valid CIDR block.")
    if not addresses.fit_for_tasks(block):
        text = f"The CIDR '{text}' is invalid: it must be a block of /16 to /28 that hosts can reach each other in."
        raise QueryError("InvalidVpc.Range", text)
    return block


def _given6(context: Context, vpc_id: str) -> Associated:
    """A VPC's block of IPv6 addresses: unique local ones, since there are none of Amazon's here."""
    block = addresses.unique_local(hashlib.sha256(vpc_id.encode()).digest())
    return Associated(id=asking.new_id(context, "vpc-cidr-assoc"), cidr=str(block))


def reaching6(group: GroupRecord, rule_id: str) -> GroupRecord:
    """A group that lets everything out over IPv6 as well."""
    rule = RuleRecord(id=rule_id, protocol="-1", cidr6=defaults.ANYWHERE6)
    return msgspec.structs.replace(group, egress=(*group.egress, rule))


class DescribeVpcs(Listing, frozen=True, kw_only=True):
    vpc_id: tuple[str, ...] = ()


FILTERS: Filters[VpcRecord] = {
    "vpc-id": lambda one: [one.id],
    "cidr": lambda one: [one.cidrs[0].cidr],
    "cidrBlock": lambda one: [one.cidrs[0].cidr],
    "cidr-block-association.cidr-block": lambda one: [each.cidr for each in one.cidrs],
    "cidr-block-association.association-id": lambda one: [each.id for each in one.cidrs],
    "cidr-block-association.state": lambda _: ["associated"],
    "ipv6-cidr-block-association.ipv6-cidr-block": lambda one: [each.cidr for each in one.cidrs6],
    "ipv6-cidr-block-association.association-id": lambda one: [each.id for each in one.cidrs6],
    "ipv6-cidr-block-association.state": lambda one: ["associated" for _ in one.cidrs6],
    "is-default": lambda one: [one.default],
    "isDefault": lambda one: [one.default],
    "state": lambda _: ["available"],
    "dhcp-options-id": lambda _: [DHCP_OPTIONS],
}


async def describe(context: Context, call: Call, request: DescribeVpcs) -> Answer:
    rows = {one.value.id: one.value for _, one in context.records.vpcs.under(call.region)}
    found = asking.with_ids(rows, request.vpc_id, VPC)
    filters = {**FILTERS, "owner-id": lambda _: [context.account]}
    found = asking.chosen(found, request.filter, filters, lambda one: one.tags)
    found, token = asking.page(request, found, lambda one: one.id)
    return asking.answer("vpcSet", [shown(context, one) for one in found], token)


def shown(context: Context, vpc: VpcRecord) -> dict[str, Any]:
    return {
        "vpcId": vpc.id,
        "ownerId": context.account,
        "state": "available",
        "cidrBlock": vpc.cidrs[0].cidr,
        "dhcpOptionsId": DHCP_OPTIONS,
        "instanceTenancy": "default",
        "isDefault": vpc.default,
        "cidrBlockAssociationSet": [_shown4(one) for one in vpc.cidrs],
        "ipv6CidrBlockAssociationSet": [_shown6(one) for one in vpc.cidrs6],
        "tagSet": asking.shown_tags(vpc.tags),
    }


def _shown4(one: Associated) -> dict[str, Any]:
    return {"associationId": one.id, "cidrBlock": one.cidr, "cidrBlockState": STATE}


def _shown6(one: Associated) -> dict[str, Any]:
    return {
        "associationId": one.id,
        "ipv6CidrBlock": one.cidr,
        "ipv6CidrBlockState": STATE,
        "networkBorderGroup": "",
        "ipv6Pool": "Amazon",
    }


class OfVpc(DryRun, frozen=True, kw_only=True):
    vpc_id: str


def find(context: Context, region: str, vpc_id: str) -> Entry[VpcRecord]:
    entry = context.records.vpcs.get(region, vpc_id)
    if entry is None:
        raise asking.missing(VPC, vpc_id)
    return entry


async def delete(context: Context, call: Call, request: OfVpc) -> Answer:
    records, region, vpc_id = context.records, call.region, request.vpc_id
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, vpc_id)
        # What is in it comes and goes with this: first the condition is taken, then it is looked inside.
        unused = network.unused_since(records, region, vpc_id)
        inside = [one.value.id for _, one in records.subnets.under(region) if one.value.vpc == vpc_id]
        groups = [one for _, one in records.groups.under(region) if one.value.vpc == vpc_id]
        inside += [one.value.id for one in groups if one.value.name != "default"]
        if inside:
            text = f"The vpc '{vpc_id}' has dependencies and cannot be deleted: {', '.join(inside[:5])}."
            raise QueryError("DependencyViolation", text)
        gone = [
            records.delete(records.vpcs, region, vpc_id),
            records.delete(records.uses, region, vpc_id),
            *(records.delete(records.groups, region, one.value.id) for one in groups),
            *(records.delete(records.uses, region, one.value.id) for one in groups),
        ]
        if (await records.commit([records.unchanged(records.vpcs, entry, region, vpc_id), unused], gone)).succeeded:
            return {"return": True}
    raise asking.busy(f"The vpc '{vpc_id}'")


class DescribeVpcAttribute(OfVpc, frozen=True, kw_only=True):
    attribute: str


ATTRIBUTES = {
    "enableDnsSupport": "dns_support",
    "enableDnsHostnames": "dns_hostnames",
    "enableNetworkAddressUsageMetrics": "usage_metrics",
}


async def describe_attribute(context: Context, call: Call, request: DescribeVpcAttribute) -> Answer:
    vpc = find(context, call.region, request.vpc_id).value
    field = ATTRIBUTES.get(request.attribute)
    if field is None:
        raise asking.invalid(f"Value ({request.attribute}) for parameter attribute is invalid. Unknown attribute.")
    return {"vpcId": vpc.id, request.attribute: {"value": getattr(vpc, field)}}


class ModifyVpcAttribute(OfVpc, frozen=True, kw_only=True):
    enable_dns_support: Switch | None = None
    enable_dns_hostnames: Switch | None = None
    enable_network_address_usage_metrics: Switch | None = None


async def modify_attribute(context: Context, call: Call, request: ModifyVpcAttribute) -> Answer:
    given = {
        "dns_support": request.enable_dns_support,
        "dns_hostnames": request.enable_dns_hostnames,
        "usage_metrics": request.enable_network_address_usage_metrics,
    }
    changes = {name: one.value for name, one in given.items() if one is not None}
    if len(changes) != 1:
        raise combination_of_one()
    await _change(context, call.region, request.vpc_id, lambda vpc: msgspec.structs.replace(vpc, **changes))
    return {"return": True}


def combination_of_one() -> QueryError:
    return asking.combination("Exactly one attribute must be given to be modified.")


async def _change(context: Context, region: str, vpc_id: str, change: Any) -> VpcRecord:
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, vpc_id)
        after: VpcRecord = change(entry.value)
        unchanged = records.unchanged(records.vpcs, entry, region, vpc_id)
        # Others decide by what is in it, so that they must see that it changes.
        writes = [records.put(records.vpcs, after, region, vpc_id)]
        if (await records.commit([unchanged], writes)).succeeded:
            return after
    raise asking.busy(f"The vpc '{vpc_id}'")


class AssociateVpcCidrBlock(OfVpc, frozen=True, kw_only=True):
    cidr_block: str = ""
    amazon_provided_ipv6_cidr_block: bool = False


async def associate(context: Context, call: Call, request: AssociateVpcCidrBlock) -> Answer:
    if bool(request.cidr_block) == request.amazon_provided_ipv6_cidr_block:
        raise asking.combination("Either CidrBlock or AmazonProvidedIpv6CidrBlock must be given.")
    if request.cidr_block:
        block = vpc_block(request.cidr_block)
        made = Associated(id=asking.new_id(context, "vpc-cidr-assoc"), cidr=str(block))
    else:
        made = _given6(context, request.vpc_id)

    def change(vpc: VpcRecord) -> VpcRecord:
        if not request.cidr_block:
            if vpc.cidrs6:
                raise asking.combination("The vpc has an IPv6 CIDR block already; here it can have one.")
            return msgspec.structs.replace(vpc, cidrs6=(made,))
        if addresses.overlapping(block, defaults.blocks(vpc)):
            raise QueryError("InvalidVpc.Range", f"The CIDR '{block}' conflicts with one of the vpc's own.")
        return msgspec.structs.replace(vpc, cidrs=(*vpc.cidrs, made))

    vpc = await _change(context, call.region, request.vpc_id, change)
    if request.cidr_block:
        return {"vpcId": vpc.id, "cidrBlockAssociation": _shown4(made)}
    return {"vpcId": vpc.id, "ipv6CidrBlockAssociation": _shown6(made)}


class DisassociateVpcCidrBlock(DryRun, frozen=True, kw_only=True):
    association_id: str


async def disassociate(context: Context, call: Call, request: DisassociateVpcCidrBlock) -> Answer:
    records, region, given = context.records, call.region, request.association_id
    for _ in range(CONFLICT_TRIES):
        holders = (one for _, one in records.vpcs.under(region))
        entry = next(
            (one for one in holders if any(each.id == given for each in (*one.value.cidrs, *one.value.cidrs6))), None
        )
        if entry is None:
            text = f"The vpc CIDR block association ID '{given}' does not exist"
            raise QueryError("InvalidVpcCidrBlockAssociationID.NotFound", text)
        vpc = entry.value
        gone = next(each for each in (*vpc.cidrs, *vpc.cidrs6) if each.id == given)
        if gone is vpc.cidrs[0]:
            text = f"The vpc CIDR block with association ID {given} may not be disassociated. It is the primary one."
            raise QueryError("OperationNotPermitted", text)
        unused = network.unused_since(records, region, vpc.id)
        block = addresses.block6(gone.cidr) or addresses.block4(gone.cidr)
        for _, subnet in records.subnets.under(region):
            own = [subnet.value.cidr, *([subnet.value.cidr6.cidr] if subnet.value.cidr6 else [])]
            inside = [addresses.block6(one) or addresses.block4(one) for one in own]
            if subnet.value.vpc == vpc.id and block and addresses.overlapping(block, [one for one in inside if one]):
                text = f"The vpc CIDR block '{gone.cidr}' is in use by the subnet '{subnet.value.id}'."
                raise QueryError("InvalidCidrBlock.InUse", text)
        after = msgspec.structs.replace(
            vpc,
            cidrs=tuple(each for each in vpc.cidrs if each is not gone),
            cidrs6=tuple(each for each in vpc.cidrs6 if each is not gone),
        )
        unchanged = records.unchanged(records.vpcs, entry, region, vpc.id)
        if (await records.commit([unchanged, unused], [records.put(records.vpcs, after, region, vpc.id)])).succeeded:
            name, show = (
                ("ipv6CidrBlockAssociation", _shown6) if ":" in gone.cidr else ("cidrBlockAssociation", _shown4)
            )
            return {"vpcId": vpc.id, name: show(gone)}
    raise asking.busy("The vpc")


OPERATIONS = {
    "CreateVpc": Operation(CreateVpc, create),
    "DescribeVpcs": Operation(DescribeVpcs, describe),
    "DeleteVpc": Operation(OfVpc, delete),
    "DescribeVpcAttribute": Operation(DescribeVpcAttribute, describe_attribute),
    "ModifyVpcAttribute": Operation(ModifyVpcAttribute, modify_attribute),
    "AssociateVpcCidrBlock": Operation(AssociateVpcCidrBlock, associate),
    "DisassociateVpcCidrBlock": Operation(DisassociateVpcCidrBlock, disassociate),
}
