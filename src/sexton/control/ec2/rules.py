"""The rules of security groups: allowed, revoked, modified, described; the same words for both directions.

What EC2 takes in three forms (a list of permissions, one in flat fields, ids) becomes a list of rules first. A request
is carried out whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from sexton.control.context import Call, Context
from sexton.control.ec2 import asking, groups
from sexton.control.ec2.asking import Filters, Listing, TagSpecification
from sexton.control.networkrecords import GROUP, RULE, GroupRecord, RuleRecord
from sexton.control.query.service import Answer, Operation
from sexton.core import permission
from sexton.core.permission import BadPermissionError
from sexton.wire.query import DryRun, QueryError, Request

MOST_RULES = 1000
"""Of one direction of a group. EC2 allows 60 unless asked, and at most 1,000."""

MOST_NEW = 50
"""Groups that one request may name: each is a condition of one transaction."""


class Range(Request, frozen=True, kw_only=True):
    cidr_ip: str
    description: str = ""


class Range6(Request, frozen=True, kw_only=True):
    cidr_ipv6: str
    description: str = ""


class Pair(Request, frozen=True, kw_only=True):
    group_id: str = ""
    group_name: str = ""
    user_id: str = ""
    vpc_id: str = ""
    description: str = ""
    peering_status: str = ""
    vpc_peering_connection_id: str = ""


class PrefixList(Request, frozen=True, kw_only=True):
    prefix_list_id: str = ""
    description: str = ""


class Permission(Request, frozen=True, kw_only=True):
    ip_protocol: str
    from_port: int | None = None
    to_port: int | None = None
    groups: tuple[Pair, ...] = ()
    ip_ranges: tuple[Range, ...] = ()
    ipv6_ranges: tuple[Range6, ...] = ()
    prefix_list_ids: tuple[PrefixList, ...] = ()


class OfRules(DryRun, frozen=True, kw_only=True):
    """Rules of one group, in a list or as one in flat fields."""

    group_id: str = ""
    group_name: str = ""
    ip_permissions: tuple[Permission, ...] = ()
    ip_protocol: str = ""
    from_port: int | None = None
    to_port: int | None = None
    cidr_ip: str = ""
    source_security_group_name: str = ""
    source_security_group_owner_id: str = ""


class Authorize(OfRules, frozen=True, kw_only=True):
    tag_specification: tuple[TagSpecification, ...] = ()


class Revoke(OfRules, frozen=True, kw_only=True):
    security_group_rule_id: tuple[str, ...] = ()


def _permissions(request: OfRules) -> tuple[Permission, ...]:
    if request.ip_permissions or not (request.ip_protocol or request.cidr_ip or request.source_security_group_name):
        return request.ip_permissions
    pairs: tuple[Pair, ...] = ()
    if request.source_security_group_name:
        owner = request.source_security_group_owner_id
        pairs = (Pair(group_name=request.source_security_group_name, user_id=owner),)
    flat = Permission(
        ip_protocol=request.ip_protocol or permission.ALL,
        from_port=request.from_port,
        to_port=request.to_port,
        ip_ranges=(Range(cidr_ip=request.cidr_ip),) if request.cidr_ip else (),
        groups=pairs,
    )
    return (flat,)


def _rules(context: Context, region: str, group: GroupRecord, given: Sequence[Permission]) -> Iterator[RuleRecord]:
    """The rules that permissions mean, without ids."""
    try:
        for one in given:
            if one.prefix_list_ids:
                raise _no_prefix_lists()
            if not (one.groups or one.ip_ranges or one.ipv6_ranges):
                raise QueryError("MissingParameter", "Source group ID missing.")
            protocol, first, last = permission.reach(one.ip_protocol, one.from_port, one.to_port)
            make = partial(RuleRecord, id="", protocol=protocol, from_port=first, to_port=last)
            for block in one.ip_ranges:
                yield make(cidr=permission.peer4(block.cidr_ip), description=_described(block.description))
            for block6 in one.ipv6_ranges:
                yield make(cidr6=permission.peer6(block6.cidr_ipv6), description=_described(block6.description))
            for pair in one.groups:
                yield make(group=_peer(context, region, group, pair), description=_described(pair.description))
    except BadPermissionError as error:
        raise asking.invalid(str(error)) from None


def _no_prefix_lists() -> QueryError:
    return QueryError("UnsupportedOperation", "There are no prefix lists here: name blocks of addresses or groups.")


def _described(text: str) -> str:
    if problem := permission.bad_description(text):
        raise asking.invalid(problem)
    return text


def _peer(context: Context, region: str, group: GroupRecord, pair: Pair) -> str:
    """The group that a rule speaks of, which must be in the same VPC."""
    if pair.user_id and pair.user_id != context.account:
        raise asking.missing(GROUP, pair.group_id or pair.group_name)
    if pair.vpc_peering_connection_id:
        raise QueryError("UnsupportedOperation", "There are no peering connections between VPCs here.")
    if pair.group_name and not pair.group_id:
        rows = (one.value for _, one in context.records.groups.under(region))
        peer = next((one for one in rows if one.vpc == group.vpc and one.name == pair.group_name), None)
        if peer is None:
            raise asking.missing(GROUP, pair.group_name)
        return peer.id
    found = groups.find(context, region, pair.group_id).value
    if found.vpc != group.vpc:
        raise QueryError("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")
    return found.id


def _in_force(group: GroupRecord, egress: bool) -> tuple[RuleRecord, ...]:
    return group.egress if egress else group.ingress


async def _authorize(context: Context, call: Call, request: Authorize, *, egress: bool) -> Answer:
    given = _permissions(request)
    if not given:
        raise QueryError("MissingParameter", "The request must contain the parameter ipPermissions")
    tags = asking.new_tags(request.tag_specification, RULE)
    made: list[RuleRecord] = []

    def decide(group: GroupRecord) -> GroupRecord:
        made.clear()
        present = _in_force(group, egress)
        known = {one.meaning for one in present}
        for rule in _rules(context, call.region, group, given):
            if rule.meaning in known:
                raise _twice(rule)
            known.add(rule.meaning)
            made.append(msgspec.structs.replace(rule, id=asking.new_id(context, "sgr"), tags=tags))
        _check_number(len(present) + len(made))
        if len({rule.group for rule in made}) > MOST_NEW:
            raise asking.invalid(f"A request can name at most {MOST_NEW} groups.")
        return groups.with_rules(group, egress=egress, rules=(*present, *made))

    group = await groups.change(context, call, request.group_id, request.group_name, decide)
    return {"return": True, "securityGroupRuleSet": [shown(context, call, group, one, egress) for one in made]}


def _twice(rule: RuleRecord) -> QueryError:
    protocol, first, last, peer = rule.meaning
    words = "ALL" if protocol == permission.ALL else f"{protocol.upper()}, from port: {first}, to port: {last}"
    text = f'the specified rule "peer: {peer}, {words}, ALLOW" already exists'
    return QueryError("InvalidPermission.Duplicate", text)


def _check_number(rules: int) -> None:
    if rules > MOST_RULES:
        text = f"The maximum number of rules per security group has been reached: {MOST_RULES} of each direction."
        raise QueryError("RulesPerSecurityGroupLimitExceeded", text)


async def _revoke(context: Context, call: Call, request: Revoke, *, egress: bool) -> Answer:
    given = _permissions(request)
    if not given and not request.security_group_rule_id:
        raise QueryError("MissingParameter", "The request must contain the parameter ipPermissions")
    gone: list[RuleRecord] = []

    def decide(group: GroupRecord) -> GroupRecord:
        gone.clear()
        present = _in_force(group, egress)
        by_id = {one.id: one for one in present}
        by_meaning = {one.meaning: one for one in present}
        for rule_id in request.security_group_rule_id:
            if rule_id not in by_id:
                raise asking.missing(RULE, rule_id)
            gone.append(by_id[rule_id])
        for rule in _rules(context, call.region, group, given):
            if rule.meaning not in by_meaning:
                text = "The specified rule does not exist in this security group."
                raise QueryError("InvalidPermission.NotFound", text)
            gone.append(by_meaning[rule.meaning])
        ids = {one.id for one in gone}
        return groups.with_rules(group, egress=egress, rules=tuple(one for one in present if one.id not in ids))

    group = await groups.change(context, call, request.group_id, request.group_name, decide)
    rows = [_revoked(group, one, egress) for one in {one.id: one for one in gone}.values()]
    return {"return": True, "unknownIpPermissionSet": [], "revokedSecurityGroupRuleSet": rows}


def _revoked(group: GroupRecord, rule: RuleRecord, egress: bool) -> dict[str, Any]:
    return {
        "securityGroupRuleId": rule.id,
        "groupId": group.id,
        "isEgress": egress,
        "ipProtocol": rule.protocol,
        "fromPort": rule.from_port,
        "toPort": rule.to_port,
        "cidrIpv4": rule.cidr or None,
        "cidrIpv6": rule.cidr6 or None,
        "referencedGroupId": rule.group or None,
        "description": rule.description or None,
    }


class RuleWords(Request, frozen=True, kw_only=True):
    ip_protocol: str
    from_port: int | None = None
    to_port: int | None = None
    cidr_ipv4: str = ""
    cidr_ipv6: str = ""
    prefix_list_id: str = ""
    referenced_group_id: str = ""
    description: str = ""


class RuleUpdate(Request, frozen=True, kw_only=True):
    security_group_rule_id: str
    security_group_rule: RuleWords


class ModifySecurityGroupRules(DryRun, frozen=True, kw_only=True):
    group_id: str
    security_group_rule: tuple[RuleUpdate, ...]


async def modify(context: Context, call: Call, request: ModifySecurityGroupRules) -> Answer:
    def decide(group: GroupRecord) -> GroupRecord:
        for update in request.security_group_rule:
            egress = any(one.id == update.security_group_rule_id for one in group.egress)
            present = _in_force(group, egress)
            before = next((one for one in present if one.id == update.security_group_rule_id), None)
            if before is None:
                raise asking.missing(RULE, update.security_group_rule_id)
            after = _modified(context, call, group, before, update.security_group_rule)
            rest = [one for one in present if one.id != before.id]
            if any(one.meaning == after.meaning for one in rest):
                raise _twice(after)
            group = groups.with_rules(
                group, egress=egress, rules=tuple(after if one.id == before.id else one for one in present)
            )
        return group

    await groups.change(context, call, request.group_id, "", decide)
    return {"return": True}


def _modified(context: Context, call: Call, group: GroupRecord, before: RuleRecord, words: RuleWords) -> RuleRecord:
    if words.prefix_list_id:
        raise _no_prefix_lists()
    if sum(map(bool, (words.cidr_ipv4, words.cidr_ipv6, words.referenced_group_id))) != 1:
        raise asking.combination("A rule needs exactly one of CidrIpv4, CidrIpv6 and ReferencedGroupId.")
    one = Permission(
        ip_protocol=words.ip_protocol,
        from_port=words.from_port,
        to_port=words.to_port,
        ip_ranges=(Range(cidr_ip=words.cidr_ipv4),) if words.cidr_ipv4 else (),
        ipv6_ranges=(Range6(cidr_ipv6=words.cidr_ipv6),) if words.cidr_ipv6 else (),
        groups=(Pair(group_id=words.referenced_group_id),) if words.referenced_group_id else (),
    )
    (rule,) = _rules(context, call.region, group, [one])
    return msgspec.structs.replace(rule, id=before.id, tags=before.tags, description=_described(words.description))


class RuleDescription(Request, frozen=True, kw_only=True):
    security_group_rule_id: str
    description: str = ""


class UpdateDescriptions(DryRun, frozen=True, kw_only=True):
    group_id: str = ""
    group_name: str = ""
    ip_permissions: tuple[Permission, ...] = ()
    security_group_rule_description: tuple[RuleDescription, ...] = ()


async def _describe_anew(context: Context, call: Call, request: UpdateDescriptions, *, egress: bool) -> Answer:
    if not request.ip_permissions and not request.security_group_rule_description:
        raise QueryError("MissingParameter", "The request must contain ipPermissions or securityGroupRuleDescriptions")

    def decide(group: GroupRecord) -> GroupRecord:
        present = _in_force(group, egress)
        texts = {one.meaning: one.description for one in _rules(context, call.region, group, request.ip_permissions)}
        by_id = {
            one.security_group_rule_id: _described(one.description) for one in request.security_group_rule_description
        }
        if unknown := by_id.keys() - {one.id for one in present}:
            raise asking.missing(RULE, min(unknown))
        if texts.keys() - {one.meaning for one in present}:
            text = "The specified rule does not exist in this security group."
            raise QueryError("InvalidPermission.NotFound", text)
        rules = tuple(
            msgspec.structs.replace(one, description=by_id.get(one.id, texts.get(one.meaning, one.description)))
            for one in present
        )
        return groups.with_rules(group, egress=egress, rules=rules)

    await groups.change(context, call, request.group_id, request.group_name, decide)
    return {"return": True}


class DescribeSecurityGroupRules(Listing, frozen=True, kw_only=True):
    security_group_rule_id: tuple[str, ...] = ()


Row = tuple[GroupRecord, RuleRecord, bool]
FILTERS: Filters[Row] = {
    "group-id": lambda row: [row[0].id],
    "security-group-rule-id": lambda row: [row[1].id],
}


async def describe(context: Context, call: Call, request: DescribeSecurityGroupRules) -> Answer:
    rows: dict[str, Row] = {}
    for _, entry in context.records.groups.under(call.region):
        rows |= {one.id: (entry.value, one, False) for one in entry.value.ingress}
        rows |= {one.id: (entry.value, one, True) for one in entry.value.egress}
    found = asking.with_ids(rows, request.security_group_rule_id, RULE)
    found = asking.chosen(found, request.filter, FILTERS, lambda row: row[1].tags)
    found, token = asking.page(request, found, lambda row: row[1].id)
    return asking.answer("securityGroupRuleSet", [shown(context, call, *row) for row in found], token)


def shown(context: Context, call: Call, group: GroupRecord, rule: RuleRecord, egress: bool) -> dict[str, Any]:
    # Without its owner, which is always the same here: Terraform with skip_requesting_account_id does not know that
    # this account is its own, and would find a group of somebody else's in every plan.
    peer = {"groupId": rule.group} if rule.group else None
    return {
        "securityGroupRuleId": rule.id,
        "securityGroupRuleArn": asking.arn(context, call, f"security-group-rule/{rule.id}"),
        "groupId": group.id,
        "groupOwnerId": context.account,
        "isEgress": egress,
        "ipProtocol": rule.protocol,
        "fromPort": rule.from_port,
        "toPort": rule.to_port,
        "cidrIpv4": rule.cidr or None,
        "cidrIpv6": rule.cidr6 or None,
        "referencedGroupInfo": peer,
        "description": rule.description or None,
        "tagSet": asking.shown_tags(rule.tags),
    }


OPERATIONS = {
    "AuthorizeSecurityGroupIngress": Operation(Authorize, partial(_authorize, egress=False)),
    "AuthorizeSecurityGroupEgress": Operation(Authorize, partial(_authorize, egress=True)),
    "RevokeSecurityGroupIngress": Operation(Revoke, partial(_revoke, egress=False)),
    "RevokeSecurityGroupEgress": Operation(Revoke, partial(_revoke, egress=True)),
    "ModifySecurityGroupRules": Operation(ModifySecurityGroupRules, modify),
    "UpdateSecurityGroupRuleDescriptionsIngress": Operation(UpdateDescriptions, partial(_describe_anew, egress=False)),
    "UpdateSecurityGroupRuleDescriptionsEgress": Operation(UpdateDescriptions, partial(_describe_anew, egress=True)),
    "DescribeSecurityGroupRules": Operation(DescribeSecurityGroupRules, describe),
}
