"""Network interfaces: those of tasks, which come and go with them, and addresses that somebody holds by hand.

An interface is written under its address, on the condition that nobody has that: so no address is given twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from sexton.control import network
from sexton.control.context import CONFLICT_TRIES, Call, Context
from sexton.control.ec2 import asking, defaults, groups, subnets, vpcs
from sexton.control.ec2.asking import Filters, Listing, Said, Switch, TagSpecification
from sexton.control.networkrecords import INTERFACE, InterfaceRecord, SubnetRecord
from sexton.control.query.service import Answer, Operation
from sexton.control.records import Entry
from sexton.core import addresses, permission
from sexton.store.contract import Compare, Write
from sexton.wire.query import DryRun, QueryError, Request

MOST_GROUPS = 5
REQUESTER = "amazon-ecs"


class NoFreeAddress(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The subnet has no address left; the message names it."""

    def __init__(self, subnet: SubnetRecord) -> None:
        super().__init__(f"The subnet '{subnet.id}' ({subnet.cidr}) has no free addresses.")


def made(
    context: Context,
    subnet: SubnetRecord,
    group_ids: Sequence[str],
    now: float,
    *,
    address: str = "",
    ipv6: bool = False,
    **more: Any,
) -> InterfaceRecord:
    """A new interface with a free address of the subnet, or the one that is asked for; not yet written."""
    found = address or context.network.free(subnet, random.random())  # noqa: S311 - guards nothing
    if found is None:
        raise NoFreeAddress(subnet)
    interface_id = asking.new_id(context, "eni")
    block, block6 = addresses.block4(subnet.cidr), addresses.block6(subnet.cidr6.cidr) if subnet.cidr6 else None
    partner = addresses.partner6(block, block6, found) if block and block6 and (ipv6 or subnet.ipv6_on_creation) else ""
    return InterfaceRecord(
        region=subnet.region,
        id=interface_id,
        vpc=subnet.vpc,
        subnet=subnet.id,
        ipv4=found,
        ipv6=partner,
        mac=context.network.mac(interface_id),
        groups=tuple(group_ids),
        made_at=now,
        **more,
    )


def writing(context: Context, interfaces: Sequence[InterfaceRecord]) -> tuple[list[Compare], list[Write]]:
    """What makes new interfaces, on the condition that their addresses are free and that their subnets and groups
    are still there."""
    records = context.records
    conditions: dict[str, Compare] = {}
    writes: list[Write] = []
    for one in interfaces:
        where = network.key_of(one)
        kept = [records.unchanged(records.interfaces, None, *where)]
        kept.append(
            records.unchanged(records.subnets, records.subnets.get(one.region, one.subnet), one.region, one.subnet)
        )
        kept += [
            records.unchanged(records.groups, records.groups.get(one.region, group), one.region, group)
            for group in one.groups
        ]
        conditions |= {each.key: each for each in kept}
        writes.append(records.put(records.interfaces, one, *where))
    for region in {one.region for one in interfaces}:
        used = [each for one in interfaces if one.region == region for each in (one.subnet, *one.groups)]
        writes += network.new_use(records, used, region, interfaces[0].id)
    return list(conditions.values()), writes


def check_groups(context: Context, region: str, vpc: str, given: Sequence[str]) -> tuple[str, ...]:
    """The groups of an interface in a VPC: those that are named, or the VPC's default one; or EC2's error."""
    if not given:
        default = defaults.default_group_of(context, region, vpc)
        return (default.id,) if default else ()
    if len(set(given)) > MOST_GROUPS:
        raise QueryError("SecurityGroupsPerInterfaceLimitExceeded", f"An interface has at most {MOST_GROUPS} groups.")
    for one in given:
        if groups.find(context, region, one).value.vpc != vpc:
            text = f"You have specified two resources that belong to different networks: {one} is not in {vpc}."
            raise QueryError("InvalidGroup.NotFound", text)
    return tuple(dict.fromkeys(given))


class PrivateAddress(Request, frozen=True, kw_only=True):
    private_ip_address: str
    primary: bool = False


class CreateNetworkInterface(DryRun, frozen=True, kw_only=True):
    subnet_id: str
    description: str = ""
    private_ip_address: str = ""
    private_ip_addresses: tuple[PrivateAddress, ...] = ()
    security_group_id: tuple[str, ...] = ()
    ipv6_address_count: int = 0
    client_token: str = ""
    tag_specification: tuple[TagSpecification, ...] = ()


async def create(context: Context, call: Call, request: CreateNetworkInterface) -> Answer:
    tags = asking.new_tags(request.tag_specification, INTERFACE)
    wanted = [one.private_ip_address for one in request.private_ip_addresses] or [request.private_ip_address]
    if len(wanted) > 1 or not 0 <= request.ipv6_address_count <= 1:
        raise QueryError("PrivateIpAddressLimitExceeded", "An interface has one address of each kind here.")
    if len(request.description) > 255 or not permission.spelt(request.description):
        raise asking.invalid("A description has at most 255 characters of a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*")
    for _ in range(CONFLICT_TRIES):
        if (known := _made_before(context, call.region, request.client_token)) is not None:
            return {"networkInterface": shown(context, known), "clientToken": request.client_token}
        subnet = subnets.find(context, call.region, request.subnet_id).value
        _check_address(context, subnet, wanted[0])
        if request.ipv6_address_count and subnet.cidr6 is None:
            raise asking.invalid(f"The subnet '{subnet.id}' has no IPv6 CIDR block.")
        chosen = check_groups(context, call.region, subnet.vpc, request.security_group_id)
        ipv6 = bool(request.ipv6_address_count)
        more = {"description": request.description, "tags": tags, "token": request.client_token}
        try:
            one = made(context, subnet, chosen, call.now, address=wanted[0], ipv6=ipv6, **more)
        except NoFreeAddress as error:
            raise QueryError("InsufficientFreeAddressesInSubnet", str(error)) from None
        with context.network.promised([one]):
            done = (await context.records.commit(*writing(context, [one]))).succeeded
        if done:
            return {"networkInterface": shown(context, one), "clientToken": request.client_token or None}
    raise asking.busy(f"The subnet '{request.subnet_id}'")


def _made_before(context: Context, region: str, token: str) -> InterfaceRecord | None:
    """What an earlier try of the same request made."""
    rows = (entry.value for _, entry in context.records.interfaces.under(region))
    return next((one for one in rows if one.token == token), None) if token else None


def _check_address(context: Context, subnet: SubnetRecord, address: str) -> None:
    if not address:
        return
    block = addresses.block4(subnet.cidr)
    if block is None or not addresses.usable(block, address):
        text = f"Address {address} is not one that an interface can have in the subnet {subnet.cidr}."
        raise asking.invalid(text)
    if context.network.is_taken(subnet.id, address):
        raise QueryError("InvalidIPAddress.InUse", f"Address {address} is in use.")


class DescribeNetworkInterfaces(Listing, frozen=True, kw_only=True):
    network_interface_id: tuple[str, ...] = ()
    include_managed_resources: bool = True


FILTERS: Filters[InterfaceRecord] = {
    "network-interface-id": lambda one: [one.id],
    "subnet-id": lambda one: [one.subnet],
    "vpc-id": lambda one: [one.vpc],
    "group-id": lambda one: one.groups,
    "description": lambda one: [one.description],
    "status": lambda one: ["in-use" if one.task else "available"],
    "mac-address": lambda one: [one.mac],
    "private-ip-address": lambda one: [one.ipv4],
    "addresses.private-ip-address": lambda one: [one.ipv4],
    "addresses.primary": lambda _: [True],
    "private-dns-name": lambda one: [addresses.dns_name(one.region, one.ipv4)],
    "ipv6-addresses.ipv6-address": lambda one: [one.ipv6] if one.ipv6 else [],
    "interface-type": lambda _: ["interface"],
    "requester-managed": lambda one: [bool(one.task)],
    "requester-id": lambda one: [REQUESTER] if one.task else [],
    "attachment.attachment-id": lambda one: [one.attachment] if one.task else [],
    "attachment.status": lambda one: ["attached"] if one.task else [],
    "attachment.instance-id": lambda _: [],
    "association.public-ip": lambda _: [],
    "source-dest-check": lambda one: [one.source_check],
}


async def describe(context: Context, call: Call, request: DescribeNetworkInterfaces) -> Answer:
    rows = {one.value.id: one.value for _, one in context.records.interfaces.under(call.region)}
    found = asking.with_ids(rows, request.network_interface_id, INTERFACE)
    names = {one.value.id: one.value.name for _, one in context.records.groups.under(call.region)}
    filters: Filters[InterfaceRecord] = {
        **FILTERS,
        "owner-id": lambda _: [context.account],
        "group-name": lambda one: [names.get(each, "") for each in one.groups],
        "availability-zone": lambda one: [_zone(context, one)],
    }
    found = asking.chosen(found, request.filter, filters, lambda one: one.tags)
    found, token = asking.page(request, found, lambda one: one.id)
    return asking.answer("networkInterfaceSet", [shown(context, one) for one in found], token)


def _zone(context: Context, one: InterfaceRecord) -> str:
    subnet = context.records.subnets.get(one.region, one.subnet)
    return subnet.value.zone if subnet else ""


def shown(context: Context, one: InterfaceRecord) -> dict[str, Any]:
    name = addresses.dns_name(one.region, one.ipv4)
    attachment = {
        "attachmentId": one.attachment,
        "instanceOwnerId": context.account,
        "deviceIndex": 1,
        "status": "attached",
        "attachTime": datetime.fromtimestamp(one.made_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "deleteOnTermination": False,
    }
    return {
        "networkInterfaceId": one.id,
        "subnetId": one.subnet,
        "vpcId": one.vpc,
        "availabilityZone": _zone(context, one),
        "description": one.description,
        "ownerId": context.account,
        "requesterId": REQUESTER if one.task else None,
        "requesterManaged": bool(one.task),
        "interfaceType": "interface",
        "status": "in-use" if one.task else "available",
        "macAddress": one.mac,
        "privateIpAddress": one.ipv4,
        "privateDnsName": name,
        "sourceDestCheck": one.source_check,
        "groupSet": [{"groupId": each, "groupName": _name(context, one.region, each)} for each in one.groups],
        "attachment": attachment if one.task else None,
        "privateIpAddressesSet": [{"privateIpAddress": one.ipv4, "privateDnsName": name, "primary": True}],
        "ipv6AddressesSet": [{"ipv6Address": one.ipv6, "isPrimaryIpv6": False}] if one.ipv6 else [],
        "tagSet": asking.shown_tags(one.tags),
    }


def _name(context: Context, region: str, group: str) -> str:
    entry = context.records.groups.get(region, group)
    return entry.value.name if entry else ""


class OfInterface(DryRun, frozen=True, kw_only=True):
    network_interface_id: str


def find(context: Context, region: str, interface_id: str) -> Entry[InterfaceRecord]:
    entry = context.network.interface(interface_id)
    if entry is None or entry.value.region != region:
        raise asking.missing(INTERFACE, interface_id)
    return entry


async def delete(context: Context, call: Call, request: OfInterface) -> Answer:
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call.region, request.network_interface_id)
        one = entry.value
        if one.task:
            text = f"Network interface '{one.id}' is currently in use by the task {one.task}, and goes with it."
            raise QueryError("InvalidParameterValue", text)
        where = network.key_of(one)
        unchanged = records.unchanged(records.interfaces, entry, *where)
        if (await records.commit([unchanged], [records.delete(records.interfaces, *where)])).succeeded:
            return {"return": True}
    raise asking.busy(f"The network interface '{request.network_interface_id}'")


class ModifyNetworkInterfaceAttribute(OfInterface, frozen=True, kw_only=True):
    description: Said | None = None
    source_dest_check: Switch | None = None
    security_group_id: tuple[str, ...] = ()


async def modify(context: Context, call: Call, request: ModifyNetworkInterfaceAttribute) -> Answer:
    given = [request.description, request.source_dest_check, request.security_group_id or None]
    if sum(one is not None for one in given) != 1:
        raise vpcs.combination_of_one()
    if request.source_dest_check is not None and not request.source_dest_check.value:
        text = (
            "An interface sends from its own addresses only here: the source/destination check cannot be switched off."
        )
        raise QueryError("UnsupportedOperation", text)
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call.region, request.network_interface_id)
        one = entry.value
        where = network.key_of(one)
        conditions = [records.unchanged(records.interfaces, entry, *where)]
        after = one
        if request.description is not None:
            after = msgspec.structs.replace(one, description=request.description.value)
        elif request.security_group_id:
            chosen = check_groups(context, call.region, one.vpc, request.security_group_id)
            after = msgspec.structs.replace(one, groups=chosen)
            conditions += [
                records.unchanged(records.groups, groups.find(context, call.region, each), call.region, each)
                for each in chosen
            ]
        fresh = [each for each in after.groups if each not in one.groups]
        writes = [
            records.put(records.interfaces, after, *where),
            *network.new_use(records, fresh, call.region, one.id),
        ]
        if (await records.commit(conditions, writes)).succeeded:
            return {"return": True}
    raise asking.busy(f"The network interface '{request.network_interface_id}'")


class DescribeNetworkInterfaceAttribute(OfInterface, frozen=True, kw_only=True):
    attribute: str


async def describe_attribute(context: Context, call: Call, request: DescribeNetworkInterfaceAttribute) -> Answer:
    row = shown(context, find(context, call.region, request.network_interface_id).value)
    known: dict[str, object] = {
        "description": {"value": row["description"]},
        "groupSet": row["groupSet"],
        "sourceDestCheck": {"value": row["sourceDestCheck"]},
        "attachment": row["attachment"],
    }
    if request.attribute not in known:
        raise asking.invalid(f"Value ({request.attribute}) for parameter attribute is invalid. Unknown attribute.")
    return {"networkInterfaceId": row["networkInterfaceId"], request.attribute: known[request.attribute]}


OPERATIONS = {
    "CreateNetworkInterface": Operation(CreateNetworkInterface, create),
    "DescribeNetworkInterfaces": Operation(DescribeNetworkInterfaces, describe),
    "DescribeNetworkInterfaceAttribute": Operation(DescribeNetworkInterfaceAttribute, describe_attribute),
    "ModifyNetworkInterfaceAttribute": Operation(ModifyNetworkInterfaceAttribute, modify),
    "DeleteNetworkInterface": Operation(OfInterface, delete),
}
