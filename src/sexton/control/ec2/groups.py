"""Security groups: made, described, deleted; their rules are in ``rules``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sexton.control import network
from sexton.control.context import CONFLICT_TRIES, Call, Context
from sexton.control.ec2 import asking, defaults, vpcs
from sexton.control.ec2.asking import Filters, Listing, TagSpecification
from sexton.control.networkrecords import GROUP, GroupRecord, RuleRecord
from sexton.control.query.service import Answer, Operation
from sexton.control.records import Entry
from sexton.core import permission
from sexton.core.permission import LONGEST_DESCRIPTION, spelt
from sexton.wire.query import DryRun, QueryError

DEFAULT = "default"


class CreateSecurityGroup(DryRun, frozen=True, kw_only=True):
    group_name: str
    group_description: str
    vpc_id: str = ""
    tag_specification: tuple[TagSpecification, ...] = ()


async def create(context: Context, call: Call, request: CreateSecurityGroup) -> Answer:
    records, region, name = context.records, call.region, request.group_name
    _check_words(request)
    tags = asking.new_tags(request.tag_specification, GROUP)
    vpc_id = request.vpc_id or _default_vpc(context, region)
    group_id, rules = asking.new_id(context, "sg"), [asking.new_id(context, "sgr") for _ in range(2)]
    for _ in range(CONFLICT_TRIES):
        home = vpcs.find(context, region, vpc_id)
        alone = network.unused_since(records, region, vpc_id)
        if any(one.value.vpc == vpc_id and one.value.name == name for _, one in records.groups.under(region)):
            text = f"The security group '{name}' already exists for VPC '{vpc_id}'"
            raise QueryError("InvalidGroup.Duplicate", text)
        group = GroupRecord(
            region=region,
            id=group_id,
            vpc=vpc_id,
            name=name,
            description=request.group_description,
            egress=(RuleRecord(id=rules[0], protocol=permission.ALL, cidr=defaults.ANYWHERE),),
            tags=tags,
        )
        if home.value.cidrs6:
            group = vpcs.reaching6(group, rules[1])
        conditions = [records.unchanged(records.vpcs, home, region, vpc_id), alone]
        writes = [
            records.put(records.groups, group, region, group_id),
            *network.new_use(records, [vpc_id], region, group_id),
        ]
        if (await records.commit(conditions, writes)).succeeded:
            return {
                "return": True,
                "groupId": group_id,
                "securityGroupArn": asking.arn(context, call, f"security-group/{group_id}"),
                "tagSet": asking.shown_tags(tags),
            }
    raise asking.busy(f"The vpc '{vpc_id}'")


def _check_words(request: CreateSecurityGroup) -> None:
    name, description = request.group_name, request.group_description
    if name == DEFAULT:
        raise QueryError("InvalidGroup.Reserved", f"The security group name '{name}' is reserved")
    if not name or len(name) > 255 or name.startswith("sg-") or not spelt(name):
        raise asking.invalid(
            f"Value ({name}) for parameter GroupName is invalid. It must have 1 to 255 characters of "
            "a-zA-Z0-9. _-:/()#,@[]+=&;{}!$* and not begin with sg-."
        )
    if not description or len(description) > LONGEST_DESCRIPTION or not spelt(description):
        raise asking.invalid(
            f"Value ({description}) for parameter GroupDescription is invalid. "
            "It must have 1 to 255 characters of a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"
        )


def _default_vpc(context: Context, region: str) -> str:
    vpc = defaults.default_vpc(context, region)
    if vpc is None:
        raise QueryError("VPCIdNotSpecified", "No default VPC for this user; name one with VpcId.")
    return vpc.id


class DescribeSecurityGroups(Listing, frozen=True, kw_only=True):
    group_id: tuple[str, ...] = ()
    group_name: tuple[str, ...] = ()


def _rule_filters(prefix: str, rules: Callable[[GroupRecord], tuple[RuleRecord, ...]]) -> Filters[GroupRecord]:
    return {
        f"{prefix}.protocol": lambda one: [each.protocol for each in rules(one)],
        f"{prefix}.from-port": lambda one: [each.from_port for each in rules(one)],
        f"{prefix}.to-port": lambda one: [each.to_port for each in rules(one)],
        f"{prefix}.cidr": lambda one: [each.cidr for each in rules(one) if each.cidr],
        f"{prefix}.ipv6-cidr": lambda one: [each.cidr6 for each in rules(one) if each.cidr6],
        f"{prefix}.group-id": lambda one: [each.group for each in rules(one) if each.group],
    }


FILTERS: Filters[GroupRecord] = {
    "group-id": lambda one: [one.id],
    "group-name": lambda one: [one.name],
    "description": lambda one: [one.description],
    "vpc-id": lambda one: [one.vpc],
    **_rule_filters("ip-permission", lambda one: one.ingress),
    **_rule_filters("egress.ip-permission", lambda one: one.egress),
}


async def describe(context: Context, call: Call, request: DescribeSecurityGroups) -> Answer:
    rows = {one.value.id: one.value for _, one in context.records.groups.under(call.region)}
    found = list(rows.values())
    if request.group_id or request.group_name:
        found = asking.with_ids(rows, request.group_id, GROUP) if request.group_id else []
        named = [find(context, call.region, "", name).value for name in request.group_name]
        found = list({one.id: one for one in (*found, *named)}.values())
    filters = {**FILTERS, "owner-id": lambda _: [context.account]}
    found = asking.chosen(found, request.filter, filters, lambda one: one.tags)
    found, token = asking.page(request, found, lambda one: one.id)
    return asking.answer("securityGroupInfo", [shown(context, call, one) for one in found], token)


def shown(context: Context, call: Call, group: GroupRecord) -> dict[str, Any]:
    return {
        "groupId": group.id,
        "groupName": group.name,
        "groupDescription": group.description,
        "ownerId": context.account,
        "vpcId": group.vpc,
        "securityGroupArn": asking.arn(context, call, f"security-group/{group.id}"),
        "ipPermissions": permissions(context, group, group.ingress),
        "ipPermissionsEgress": permissions(context, group, group.egress),
        "tagSet": asking.shown_tags(group.tags),
    }


def permissions(context: Context, group: GroupRecord, rules: tuple[RuleRecord, ...]) -> list[dict[str, Any]]:
    """Rules as EC2 shows them with their group: together where protocol and ports are the same."""
    together: dict[tuple[str, int, int], dict[str, Any]] = {}
    for rule in rules:
        reach = rule.protocol, rule.from_port, rule.to_port
        entry = together.get(reach)
        if entry is None:
            entry = together[reach] = {"ipProtocol": rule.protocol}
            if rule.protocol in (*permission.WITH_PORTS, *permission.WITH_TYPES):
                entry |= {"fromPort": rule.from_port, "toPort": rule.to_port}
            entry |= {"groups": [], "ipRanges": [], "ipv6Ranges": [], "prefixListIds": []}
        description = rule.description or None
        if rule.group:
            pair = {"userId": context.account, "groupId": rule.group, "description": description}
            entry["groups"].append(pair)
        elif rule.cidr:
            entry["ipRanges"].append({"cidrIp": rule.cidr, "description": description})
        else:
            entry["ipv6Ranges"].append({"cidrIpv6": rule.cidr6, "description": description})
    return list(together.values())


def find(context: Context, region: str, group_id: str, name: str = "") -> Entry[GroupRecord]:
    """The group with this id, or with this name in the default VPC."""
    if not group_id and not name:
        raise QueryError("MissingParameter", "The request must contain the parameter groupName or groupId")
    if group_id:
        asking.check_id(group_id, GROUP)
        entry = context.records.groups.get(region, group_id)
    else:
        vpc = defaults.default_vpc(context, region)
        home = vpc.id if vpc else ""
        rows = (one for _, one in context.records.groups.under(region))
        entry = next((one for one in rows if one.value.vpc == home and one.value.name == name), None)
    if entry is None:
        raise asking.missing(GROUP, group_id or name)
    return entry


class DeleteSecurityGroup(DryRun, frozen=True, kw_only=True):
    group_id: str = ""
    group_name: str = ""


async def delete(context: Context, call: Call, request: DeleteSecurityGroup) -> Answer:
    records, region = context.records, call.region
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, request.group_id, request.group_name)
        group = entry.value
        if group.name == DEFAULT:
            text = f'the specified group: "{group.id}" name: "{group.name}" cannot be deleted by a user'
            raise QueryError("CannotDelete", text)
        conditions = [
            records.unchanged(records.groups, entry, region, group.id),
            network.unused_since(records, region, group.id),
        ]
        users = [one.value.id for _, one in records.groups.under(region) if _names(one.value, group.id)]
        if context.network.uses_group(group.id):
            users += [one.value.id for _, one in records.interfaces.under(region) if group.id in one.value.groups]
        if users:
            text = f"resource {group.id} has a dependent object: {', '.join(users[:5])}"
            raise QueryError("DependencyViolation", text)
        gone = [records.delete(records.groups, region, group.id), records.delete(records.uses, region, group.id)]
        if (await records.commit(conditions, gone)).succeeded:
            return {"return": True, "groupId": group.id}
    raise asking.busy("The security group")


def _names(group: GroupRecord, other: str) -> bool:
    """Whether a group's rules speak of another one."""
    return group.id != other and any(one.group == other for one in (*group.ingress, *group.egress))


async def change(
    context: Context, call: Call, group_id: str, name: str, decide: Callable[[GroupRecord], GroupRecord]
) -> GroupRecord:
    """Write what becomes of a group; whatever group its rules newly speak of is written down as used."""
    records, region = context.records, call.region
    for _ in range(CONFLICT_TRIES):
        entry = find(context, region, group_id, name)
        before = entry.value
        after = decide(before)
        if after == before:
            return after
        known = {one.group for one in (*before.ingress, *before.egress)}
        spoken = {one.group for one in (*after.ingress, *after.egress)} - known - {"", before.id}
        conditions = [records.unchanged(records.groups, entry, region, before.id)]
        conditions += [
            records.unchanged(records.groups, find(context, region, other), region, other) for other in sorted(spoken)
        ]
        writes = [
            records.put(records.groups, after, region, before.id),
            *network.new_use(records, sorted(spoken), region, before.id),
        ]
        if (await records.commit(conditions, writes)).succeeded:
            return after
    raise asking.busy("The security group")


def with_rules(group: GroupRecord, *, egress: bool, rules: tuple[RuleRecord, ...]) -> GroupRecord:
    return msgspec.structs.replace(group, **{"egress" if egress else "ingress": rules})


OPERATIONS = {
    "CreateSecurityGroup": Operation(CreateSecurityGroup, create),
    "DescribeSecurityGroups": Operation(DescribeSecurityGroups, describe),
    "DeleteSecurityGroup": Operation(DeleteSecurityGroup, delete),
}
