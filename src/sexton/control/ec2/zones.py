"""Regions and availability zones: the region that is asked has three zones, and those that its hosts say they are in.

A subnet has a zone because its clients want one. Its addresses can be used on hosts in every zone.
"""

from __future__ import annotations

import re

from sexton.control.context import Call, Context
from sexton.control.ec2 import asking
from sexton.control.ec2.asking import Filter
from sexton.control.query.service import Answer, Operation
from sexton.wire.query import DryRun, QueryError

ATTRIBUTE = "ecs.availability-zone"


def of_region(context: Context, region: str) -> list[str]:
    """The zones of a region, in order."""
    found = {f"{region}{letter}" for letter in "abc"}
    for entry in context.records.instances.all():
        if entry.value.region == region:
            own = (one.value for one in entry.value.instance.attributes or () if one.name == ATTRIBUTE)
            found.update(zone for zone in own if zone)
    return sorted(found)


def id_of(zone: str) -> str:
    """The short id of a zone, the same in every account: ``use1-az1`` of ``us-east-1a``."""
    matched = re.fullmatch(r"([a-z]+)-([a-z]+)-(\d+)([a-z])", zone)
    if matched is None:
        return zone
    area, side, number, letter = matched.groups()
    short = "".join(word[0] for word in re.findall("north|south|east|west|central|[a-z]+", side))
    return f"{area}{short}{number}-az{ord(letter) - ord('a') + 1}"


def chosen(context: Context, region: str, zone: str, zone_id: str) -> str:
    """The zone that a request means, the first one when it does not say; or EC2's error."""
    known = of_region(context, region)
    if zone and zone_id:
        raise asking.combination("Only one of AvailabilityZone and AvailabilityZoneId can be given.")
    if zone_id:
        zone = next((one for one in known if id_of(one) == zone_id), zone_id)
    if zone and zone not in known:
        raise asking.invalid(
            f"Value ({zone}) for parameter availabilityZone is invalid. "
            f"Subnets can currently only be created in the following availability zones: {', '.join(known)}."
        )
    return zone or known[0]


class DescribeAvailabilityZones(DryRun, frozen=True, kw_only=True):
    filter: tuple[Filter, ...] = ()
    zone_name: tuple[str, ...] = ()
    zone_id: tuple[str, ...] = ()
    all_availability_zones: bool = False


async def describe(context: Context, call: Call, request: DescribeAvailabilityZones) -> Answer:
    known = of_region(context, call.region)
    for given in request.zone_name:
        if given not in known:
            raise asking.invalid(f"Invalid availability zone: [{given}]")
    found = [
        zone
        for zone in known
        if (not request.zone_name or zone in request.zone_name)
        and (not request.zone_id or id_of(zone) in request.zone_id)
    ]
    filters: asking.Filters[str] = {
        "zone-name": lambda zone: [zone],
        "zone-id": lambda zone: [id_of(zone)],
        "region-name": lambda _: [call.region],
        "state": lambda _: ["available"],
        "opt-in-status": lambda _: ["opt-in-not-required"],
        "zone-type": lambda _: ["availability-zone"],
        "group-name": lambda _: [call.region],
    }
    rows = [
        {
            "zoneName": zone,
            "zoneId": id_of(zone),
            "zoneState": "available",
            "regionName": call.region,
            "groupName": call.region,
            "networkBorderGroup": call.region,
            "optInStatus": "opt-in-not-required",
            "zoneType": "availability-zone",
            "messageSet": [],
        }
        for zone in asking.chosen(found, request.filter, filters, lambda _: {})
    ]
    return {"availabilityZoneInfo": rows}


class DescribeRegions(DryRun, frozen=True, kw_only=True):
    filter: tuple[Filter, ...] = ()
    region_name: tuple[str, ...] = ()
    all_regions: bool = False


async def regions(context: Context, call: Call, request: DescribeRegions) -> Answer:
    """Every region is served here; those that something is in are known, and the one that is asked."""
    known = sorted({call.region, *(entry.value.region for entry in context.records.vpcs.all())})
    for given in request.region_name:
        if given not in known:
            raise asking.invalid(f"Invalid region: [{given}]")
    host = context.endpoint.partition("://")[2]
    filters: asking.Filters[str] = {
        "region-name": lambda region: [region],
        "endpoint": lambda _: [host],
        "opt-in-status": lambda _: ["opt-in-not-required"],
    }
    wanted = [one for one in known if not request.region_name or one in request.region_name]
    rows = [
        {"regionName": one, "regionEndpoint": host, "optInStatus": "opt-in-not-required"}
        for one in asking.chosen(wanted, request.filter, filters, lambda _: {})
    ]
    return {"regionInfo": rows}


class DescribeAccountAttributes(DryRun, frozen=True, kw_only=True):
    attribute_name: tuple[str, ...] = ()


async def account(context: Context, call: Call, request: DescribeAccountAttributes) -> Answer:
    default = next((one.value.id for _, one in context.records.vpcs.under(call.region) if one.value.default), "none")
    known = {"supported-platforms": "VPC", "default-vpc": default}
    for given in request.attribute_name:
        if given not in known:
            raise QueryError("InvalidParameterValue", f"The account attribute '{given}' is not known here.")
    wanted = {
        name: value for name, value in known.items() if not request.attribute_name or name in request.attribute_name
    }
    rows = [{"attributeName": name, "attributeValueSet": [{"attributeValue": value}]} for name, value in wanted.items()]
    return {"accountAttributeSet": rows}


OPERATIONS = {
    "DescribeAvailabilityZones": Operation(DescribeAvailabilityZones, describe),
    "DescribeRegions": Operation(DescribeRegions, regions),
    "DescribeAccountAttributes": Operation(DescribeAccountAttributes, account),
}
