"""What every VPC has and nobody can change here: one network ACL that allows everything, one route table.

Clients look them up by their VPC. Everything inside a VPC reaches everything inside it, as its groups allow, and the
rest of the world through its host.
"""

from __future__ import annotations

from typing import Any

from sexton.control.context import Call, Context
from sexton.control.ec2 import asking
from sexton.control.ec2.asking import Filters, Listing
from sexton.control.networkrecords import Kind, VpcRecord
from sexton.control.query.service import Answer, Operation

ACL = Kind("acl", "network-acl", "InvalidNetworkAclID.NotFound", "networkAcl ID")
TABLE = Kind("rtb", "route-table", "InvalidRouteTableID.NotFound", "routeTable ID")


def _own(vpc: VpcRecord, kind: Kind) -> str:
    return f"{kind.prefix}-{vpc.id.partition('-')[2]}"


def _subnets(context: Context, vpc: VpcRecord) -> list[str]:
    return [one.value.id for _, one in context.records.subnets.under(vpc.region) if one.value.vpc == vpc.id]


def _common(context: Context, kind: Kind, name: str) -> Filters[VpcRecord]:
    return {
        "vpc-id": lambda vpc: [vpc.id],
        "owner-id": lambda _: [context.account],
        f"{name}-id": lambda vpc: [_own(vpc, kind)],
        f"association.{name}-id": lambda vpc: [_own(vpc, kind)],
        "association.subnet-id": lambda vpc: _subnets(context, vpc),
    }


class DescribeNetworkAcls(Listing, frozen=True, kw_only=True):
    network_acl_id: tuple[str, ...] = ()


async def acls(context: Context, call: Call, request: DescribeNetworkAcls) -> Answer:
    rows = {_own(one.value, ACL): one.value for _, one in context.records.vpcs.under(call.region)}
    filters = {**_common(context, ACL, "network-acl"), "default": lambda _: [True]}
    found = asking.with_ids(rows, request.network_acl_id, ACL)
    found = asking.chosen(found, request.filter, filters, lambda _: {})
    found, token = asking.page(request, found, lambda one: one.id)
    return asking.answer("networkAclSet", [_acl(context, one) for one in found], token)


def _acl(context: Context, vpc: VpcRecord) -> dict[str, Any]:
    own = _own(vpc, ACL)
    entries = []
    for egress in (True, False):
        for cidr, last in ((("cidrBlock", "0.0.0.0/0"), 0), (("ipv6CidrBlock", "::/0"), 1)):
            if last and not vpc.cidrs6:
                continue
            common = {"protocol": "-1", "egress": egress, cidr[0]: cidr[1]}
            entries.append({"ruleNumber": 100 + last, "ruleAction": "allow", **common})
            entries.append({"ruleNumber": 32767 + last, "ruleAction": "deny", **common})
    associations = [
        {"networkAclAssociationId": f"aclassoc-{one.partition('-')[2]}", "networkAclId": own, "subnetId": one}
        for one in _subnets(context, vpc)
    ]
    return {
        "networkAclId": own,
        "vpcId": vpc.id,
        "ownerId": context.account,
        "default": True,
        "entrySet": entries,
        "associationSet": associations,
        "tagSet": [],
    }


class DescribeRouteTables(Listing, frozen=True, kw_only=True):
    route_table_id: tuple[str, ...] = ()


async def route_tables(context: Context, call: Call, request: DescribeRouteTables) -> Answer:
    rows = {_own(one.value, TABLE): one.value for _, one in context.records.vpcs.under(call.region)}
    filters: Filters[VpcRecord] = {
        **_common(context, TABLE, "route-table"),
        "association.main": lambda _: [True],
        # The main table serves every subnet without being associated with it by name.
        "association.subnet-id": lambda _: [],
        "association.route-table-association-id": lambda vpc: [_association(vpc)],
        "route.gateway-id": lambda _: ["local"],
        "route.state": lambda _: ["active"],
        "route.origin": lambda _: ["CreateRouteTable"],
        "route.destination-cidr-block": lambda vpc: [one.cidr for one in vpc.cidrs],
        "route.destination-ipv6-cidr-block": lambda vpc: [one.cidr for one in vpc.cidrs6],
    }
    found = asking.with_ids(rows, request.route_table_id, TABLE)
    found = asking.chosen(found, request.filter, filters, lambda _: {})
    found, token = asking.page(request, found, lambda one: one.id)
    return asking.answer("routeTableSet", [_table(context, one) for one in found], token)


def _association(vpc: VpcRecord) -> str:
    return f"rtbassoc-{vpc.id.partition('-')[2]}"


def _table(context: Context, vpc: VpcRecord) -> dict[str, Any]:
    own = _own(vpc, TABLE)
    local = {"gatewayId": "local", "state": "active", "origin": "CreateRouteTable"}
    routes = [{"destinationCidrBlock": one.cidr, **local} for one in vpc.cidrs]
    routes += [{"destinationIpv6CidrBlock": one.cidr, **local} for one in vpc.cidrs6]
    association = {
        "routeTableAssociationId": _association(vpc),
        "routeTableId": own,
        "main": True,
        "associationState": {"state": "associated"},
    }
    return {
        "routeTableId": own,
        "vpcId": vpc.id,
        "ownerId": context.account,
        "routeSet": routes,
        "associationSet": [association],
        "propagatingVgwSet": [],
        "tagSet": [],
    }


OPERATIONS = {
    "DescribeNetworkAcls": Operation(DescribeNetworkAcls, acls),
    "DescribeRouteTables": Operation(DescribeRouteTables, route_tables),
}
