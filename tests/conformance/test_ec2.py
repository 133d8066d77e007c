"""EC2 networks as unmodified boto3 and the AWS CLI drive them: pools, groups and rules, interfaces, tags, errors.

The control plane runs in a thread of this process; no container engine is needed for any of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from plane import ACCOUNT, REGION, Running

AWS = Path(sys.executable).with_name("aws")
ANYWHERE = [{"CidrIp": "0.0.0.0/0"}]
Json = dict[str, Any]

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("ec2")) as made:
        yield made


@pytest.fixture(scope="module")
def ec2(running: Running) -> Any:
    return running.client("ec2")


@pytest.fixture
def vpc(ec2: Any) -> Iterator[str]:
    """A VPC of its own, and nothing of it afterwards."""
    made = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    yield made
    here = [{"Name": "vpc-id", "Values": [made]}]
    for one in ec2.describe_network_interfaces(Filters=here)["NetworkInterfaces"]:
        ec2.delete_network_interface(NetworkInterfaceId=one["NetworkInterfaceId"])
    groups = [
        one for one in ec2.describe_security_groups(Filters=here)["SecurityGroups"] if one["GroupName"] != "default"
    ]
    for one in groups:
        for way, revoke in (
            ("IpPermissions", ec2.revoke_security_group_ingress),
            ("IpPermissionsEgress", ec2.revoke_security_group_egress),
        ):
            if one[way]:
                revoke(GroupId=one["GroupId"], IpPermissions=one[way])
    for one in groups:
        ec2.delete_security_group(GroupId=one["GroupId"])
    for one in ec2.describe_subnets(Filters=here)["Subnets"]:
        ec2.delete_subnet(SubnetId=one["SubnetId"])
    ec2.delete_vpc(VpcId=made)


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Message"]
    assert caught.value.response["ResponseMetadata"]["RequestId"]
    return str(caught.value.response["Error"]["Code"])


def subnet_in(ec2: Any, vpc: str, cidr: str = "10.0.1.0/24", **more: Any) -> Json:
    return dict(ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, **more)["Subnet"])


def group_in(ec2: Any, vpc: str, name: str = "web", **more: Any) -> str:
    return str(ec2.create_security_group(GroupName=name, Description="a group", VpcId=vpc, **more)["GroupId"])


def ingress(ec2: Any, group: str) -> list[Json]:
    return list(ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"])


# What is there from the start.


def test_a_vpc_a_subnet_and_a_group_are_there_from_the_start_in_every_region(running: Running, ec2: Any) -> None:
    other = running.client("ec2", "eu-central-1")
    for client in (ec2, other):
        (vpc,) = client.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
        (subnet,) = client.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
        (group,) = client.describe_security_groups(GroupNames=["default"])["SecurityGroups"]

        assert subnet["VpcId"] == group["VpcId"] == vpc["VpcId"]
        assert vpc["OwnerId"] == ACCOUNT
        assert group["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"] == group["GroupId"]
        assert group["IpPermissionsEgress"] == [
            {
                "IpProtocol": "-1",
                "UserIdGroupPairs": [],
                "IpRanges": ANYWHERE,
                "Ipv6Ranges": [],
                "PrefixListIds": [],
            }
        ]
    mine = {one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]}
    assert not mine & {one["VpcId"] for one in other.describe_vpcs()["Vpcs"]}


def test_what_somebody_deletes_of_the_defaults_stays_deleted(running: Running) -> None:
    ec2 = running.client("ec2", "us-west-2")
    subnet = ec2.describe_subnets()["Subnets"][0]

    ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    ec2.delete_vpc(VpcId=subnet["VpcId"])

    assert ec2.describe_vpcs()["Vpcs"] == []
    assert ec2.describe_security_groups()["SecurityGroups"] == []
    assert refused(lambda: ec2.create_security_group(GroupName="a", Description="b")) == "VPCIdNotSpecified"


# VPCs and subnets.


def test_a_vpc_and_its_attributes(ec2: Any, vpc: str) -> None:
    ec2.get_waiter("vpc_available").wait(VpcIds=[vpc])
    assert ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")["EnableDnsHostnames"] == {
        "Value": False
    }

    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})

    assert ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")["EnableDnsHostnames"] == {
        "Value": True
    }
    assert ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsSupport")["EnableDnsSupport"] == {"Value": True}
    here = [{"Name": "vpc-id", "Values": [vpc]}]
    (acl,) = ec2.describe_network_acls(Filters=[*here, {"Name": "default", "Values": ["true"]}])["NetworkAcls"]
    assert acl["IsDefault"] and acl["VpcId"] == vpc
    (table,) = ec2.describe_route_tables(Filters=[*here, {"Name": "association.main", "Values": ["true"]}])[
        "RouteTables"
    ]
    assert table["Associations"][0]["Main"] and table["Routes"][0]["DestinationCidrBlock"] == "10.0.0.0/16"


def test_a_subnet_is_a_pool_inside_its_vpc(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(ec2, vpc, "10.0.1.7/24", AvailabilityZone="us-east-1b")

    assert (subnet["CidrBlock"], subnet["AvailableIpAddressCount"]) == ("10.0.1.0/24", 251)
    assert (subnet["AvailabilityZone"], subnet["AvailabilityZoneId"]) == ("us-east-1b", "use1-az2")
    ec2.get_waiter("subnet_available").wait(SubnetIds=[subnet["SubnetId"]])
    ec2.modify_subnet_attribute(SubnetId=subnet["SubnetId"], MapPublicIpOnLaunch={"Value": True})
    assert ec2.describe_subnets(SubnetIds=[subnet["SubnetId"]])["Subnets"][0]["MapPublicIpOnLaunch"] is True


def test_ipv6_blocks_come_and_go(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(ec2, vpc)["SubnetId"]
    given = ec2.associate_vpc_cidr_block(VpcId=vpc, AmazonProvidedIpv6CidrBlock=True)["Ipv6CidrBlockAssociation"]
    assert given["Ipv6CidrBlock"].startswith("fd") and given["Ipv6CidrBlock"].endswith("/56")
    wanted = given["Ipv6CidrBlock"].replace("/56", "/64")

    own = ec2.associate_subnet_cidr_block(SubnetId=subnet, Ipv6CidrBlock=wanted)["Ipv6CidrBlockAssociation"]
    ec2.modify_subnet_attribute(SubnetId=subnet, AssignIpv6AddressOnCreation={"Value": True})
    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]
    assert interface["Ipv6Addresses"][0]["Ipv6Address"].startswith(wanted.partition("::")[0])

    release = given["AssociationId"]
    assert (
        refused(lambda: ec2.disassociate_subnet_cidr_block(AssociationId=own["AssociationId"]))
        == "InvalidCidrBlock.InUse"
    )
    assert refused(lambda: ec2.disassociate_vpc_cidr_block(AssociationId=release)) == "InvalidCidrBlock.InUse"
    ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    ec2.disassociate_subnet_cidr_block(AssociationId=own["AssociationId"])
    ec2.disassociate_vpc_cidr_block(AssociationId=release)
    assert ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0].get("Ipv6CidrBlockAssociationSet", []) == []


def test_a_second_block_of_a_vpc(ec2: Any, vpc: str) -> None:
    made = ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="10.1.0.0/16")["CidrBlockAssociation"]

    assert subnet_in(ec2, vpc, "10.1.3.0/24")["CidrBlock"] == "10.1.3.0/24"
    assert refused(lambda: ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="10.1.0.0/24")) == "InvalidVpc.Range"
    assert (
        refused(lambda: ec2.disassociate_vpc_cidr_block(AssociationId=made["AssociationId"]))
        == "InvalidCidrBlock.InUse"
    )


def test_what_cannot_be_a_vpc_or_a_subnet(ec2: Any, vpc: str) -> None:
    subnet_in(ec2, vpc)

    assert refused(lambda: ec2.create_vpc(CidrBlock="10.0.0.0/8")) == "InvalidVpc.Range"
    assert refused(lambda: ec2.create_vpc(CidrBlock="169.254.0.0/16")) == "InvalidVpc.Range"
    assert refused(lambda: ec2.create_vpc(CidrBlock="ten")) == "InvalidParameterValue"
    assert (
        refused(lambda: ec2.create_vpc(CidrBlock="10.0.0.0/16", InstanceTenancy="dedicated")) == "InvalidParameterValue"
    )
    assert refused(lambda: ec2.create_vpc(Ipv4IpamPoolId="pool")) == "UnknownParameter"
    assert refused(lambda: subnet_in(ec2, vpc, "10.0.1.128/25")) == "InvalidSubnet.Conflict"
    assert refused(lambda: subnet_in(ec2, vpc, "10.9.1.0/24")) == "InvalidSubnet.Range"
    assert refused(lambda: subnet_in(ec2, vpc, "10.0.2.0/29")) == "InvalidSubnet.Range"
    assert refused(lambda: subnet_in(ec2, vpc, "10.0.2.0/24", AvailabilityZone="mars-1a")) == "InvalidParameterValue"
    assert refused(lambda: subnet_in(ec2, "vpc-00000000000000000")) == "InvalidVpcID.NotFound"


def test_what_is_used_cannot_be_deleted(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(ec2, vpc)["SubnetId"]
    used, naming = group_in(ec2, vpc, "used"), group_in(ec2, vpc, "naming")
    pair = [{"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "UserIdGroupPairs": [{"GroupId": used}]}]
    ec2.authorize_security_group_ingress(GroupId=naming, IpPermissions=pair)
    interface = ec2.create_network_interface(SubnetId=subnet, Groups=[naming])["NetworkInterface"]["NetworkInterfaceId"]
    default = ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    )["SecurityGroups"][0]["GroupId"]

    assert refused(lambda: ec2.delete_vpc(VpcId=vpc)) == "DependencyViolation"
    assert refused(lambda: ec2.delete_subnet(SubnetId=subnet)) == "DependencyViolation"
    assert refused(lambda: ec2.delete_security_group(GroupId=used)) == "DependencyViolation"
    assert refused(lambda: ec2.delete_security_group(GroupId=naming)) == "DependencyViolation"
    assert refused(lambda: ec2.delete_security_group(GroupId=default)) == "CannotDelete"
    ec2.delete_network_interface(NetworkInterfaceId=interface)
    ec2.delete_security_group(GroupId=naming)
    ec2.delete_security_group(GroupId=used)
    ec2.delete_subnet(SubnetId=subnet)


# Security groups and their rules.


def test_rules_are_allowed_described_modified_and_revoked(ec2: Any, vpc: str) -> None:
    group, peer = group_in(ec2, vpc), group_in(ec2, vpc, "peer")
    answer = ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": 80,
                "ToPort": 81,
                "IpRanges": [{"CidrIp": "10.0.0.9/8", "Description": "inside"}],
                "Ipv6Ranges": [{"CidrIpv6": "2001:db8::1/32"}],
                "UserIdGroupPairs": [{"GroupId": peer, "Description": "the peer"}],
            },
            {"IpProtocol": "icmp", "FromPort": -1, "ToPort": -1, "IpRanges": ANYWHERE},
            {"IpProtocol": "47", "IpRanges": ANYWHERE},
        ],
        TagSpecifications=[{"ResourceType": "security-group-rule", "Tags": [{"Key": "a", "Value": "b"}]}],
    )

    made = answer["SecurityGroupRules"]
    assert answer["Return"] is True and len(made) == 5
    assert [one.get("CidrIpv4") or one.get("CidrIpv6") or one["ReferencedGroupInfo"]["GroupId"] for one in made] == [
        "10.0.0.0/8",
        "2001:db8::/32",
        peer,
        "0.0.0.0/0",
        "0.0.0.0/0",
    ]
    tcp, icmp, gre = ingress(ec2, group)
    assert (tcp["FromPort"], tcp["ToPort"], tcp["IpRanges"]) == (
        80,
        81,
        [{"CidrIp": "10.0.0.0/8", "Description": "inside"}],
    )
    assert tcp["UserIdGroupPairs"] == [{"UserId": ACCOUNT, "GroupId": peer, "Description": "the peer"}]
    assert (icmp["IpProtocol"], icmp["FromPort"]) == ("icmp", -1)
    assert gre["IpProtocol"] == "47" and "FromPort" not in gre

    rule = made[0]["SecurityGroupRuleId"]
    ec2.modify_security_group_rules(
        GroupId=group,
        SecurityGroupRules=[
            {
                "SecurityGroupRuleId": rule,
                "SecurityGroupRule": {"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, "CidrIpv4": "10.1.0.0/16"},
            }
        ],
    )
    (shown,) = ec2.describe_security_group_rules(SecurityGroupRuleIds=[rule])["SecurityGroupRules"]
    assert (shown["IpProtocol"], shown["FromPort"], shown["CidrIpv4"], shown["IsEgress"]) == (
        "udp",
        53,
        "10.1.0.0/16",
        False,
    )
    assert shown["Tags"] == [{"Key": "a", "Value": "b"}]

    ec2.update_security_group_rule_descriptions_ingress(
        GroupId=group,
        IpPermissions=[{"IpProtocol": "47", "IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "tunnel"}]}],
    )
    ec2.update_security_group_rule_descriptions_ingress(
        GroupId=group, SecurityGroupRuleDescriptions=[{"SecurityGroupRuleId": rule, "Description": "names"}]
    )
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
    assert {one["Description"] for one in rules if "Description" in one} == {"tunnel", "names", "the peer"}

    gone = ec2.revoke_security_group_ingress(GroupId=group, SecurityGroupRuleIds=[rule])["RevokedSecurityGroupRules"]
    assert [one["SecurityGroupRuleId"] for one in gone] == [rule]
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[{"IpProtocol": "47", "IpRanges": ANYWHERE}])
    assert {one["IpProtocol"] for one in ingress(ec2, group)} == {"tcp", "icmp"}


def test_rules_in_flat_fields_and_of_both_directions(ec2: Any, vpc: str) -> None:
    group = group_in(ec2, vpc)
    ec2.authorize_security_group_ingress(GroupId=group, IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="10.0.0.0/8")
    ec2.revoke_security_group_egress(GroupId=group, IpPermissions=[{"IpProtocol": "-1", "IpRanges": ANYWHERE}])
    ec2.authorize_security_group_egress(
        GroupId=group, IpPermissions=[{"IpProtocol": "6", "FromPort": 443, "ToPort": 443, "IpRanges": ANYWHERE}]
    )

    (shown,) = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert shown["IpPermissions"][0]["IpRanges"] == [{"CidrIp": "10.0.0.0/8"}]
    (out,) = shown["IpPermissionsEgress"]
    assert (out["IpProtocol"], out["FromPort"]) == ("tcp", 443)


def test_rules_that_cannot_be(running: Running, ec2: Any, vpc: str) -> None:
    group = group_in(ec2, vpc)
    default = ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]

    def allow(*permissions: Json, on: str = group) -> str:
        return refused(lambda: ec2.authorize_security_group_ingress(GroupId=on, IpPermissions=list(permissions)))

    web = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80}
    assert allow({**web, "IpRanges": [{"CidrIp": "10.0.0.1"}]}) == "InvalidParameterValue"
    assert allow({**web, "ToPort": 70, "IpRanges": ANYWHERE}) == "InvalidParameterValue"
    assert allow({"IpProtocol": "tcp", "IpRanges": ANYWHERE}) == "InvalidParameterValue"
    assert allow({"IpProtocol": "teleport", "IpRanges": ANYWHERE}) == "InvalidParameterValue"
    assert allow(web) == "MissingParameter"
    assert allow({**web, "PrefixListIds": [{"PrefixListId": "pl-1"}]}) == "UnsupportedOperation"
    assert allow({**web, "UserIdGroupPairs": [{"GroupId": "sg-00000000000000000"}]}) == "InvalidGroup.NotFound"
    assert allow({**web, "UserIdGroupPairs": [{"GroupId": default}]}) == "InvalidGroup.NotFound"
    assert allow({**web, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "\u00fc"}]}) == "InvalidParameterValue"
    assert allow({**web, "IpRanges": ANYWHERE}, {**web, "IpRanges": ANYWHERE}) == "InvalidPermission.Duplicate"
    assert allow({**web, "IpRanges": ANYWHERE}, on="group") == "InvalidGroupId.Malformed"
    assert ingress(ec2, group) == []  # nothing of what was refused is there
    many = [{**web, "FromPort": n, "ToPort": n, "IpRanges": ANYWHERE} for n in range(1001)]
    assert allow(*many) == "RulesPerSecurityGroupLimitExceeded"
    gone = [{**web, "IpRanges": ANYWHERE}]
    assert (
        refused(lambda: ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=gone))
        == "InvalidPermission.NotFound"
    )
    assert refused(lambda: group_in(ec2, vpc)) == "InvalidGroup.Duplicate"
    assert refused(lambda: group_in(ec2, vpc, "default")) == "InvalidGroup.Reserved"
    assert refused(lambda: group_in(ec2, vpc, "sg-mine")) == "InvalidParameterValue"


# Interfaces.


def test_an_address_can_be_held_by_hand(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(ec2, vpc)["SubnetId"]
    group = group_in(ec2, vpc)
    one = ec2.create_network_interface(
        SubnetId=subnet, PrivateIpAddress="10.0.1.50", Groups=[group], Description="mine"
    )
    one = one["NetworkInterface"]

    assert (one["PrivateIpAddress"], one["Status"], one["RequesterManaged"]) == ("10.0.1.50", "available", False)
    assert one["Groups"] == [{"GroupId": group, "GroupName": "web"}]
    assert int(one["MacAddress"][:2], 16) & 3 == 2  # a local address, of one interface
    again = {"SubnetId": subnet, "PrivateIpAddress": "10.0.1.50"}
    assert refused(lambda: ec2.create_network_interface(**again)) == "InvalidIPAddress.InUse"
    for reserved in ("10.0.1.1", "10.0.1.255", "10.0.2.9", "none"):
        wrong = {"SubnetId": subnet, "PrivateIpAddress": reserved}
        assert refused(lambda wrong=wrong: ec2.create_network_interface(**wrong)) == "InvalidParameterValue"
    assert ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"] == 250
    ec2.modify_network_interface_attribute(NetworkInterfaceId=one["NetworkInterfaceId"], Description={"Value": "yours"})
    (shown,) = ec2.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": [group]}])["NetworkInterfaces"]
    assert shown["Description"] == "yours"
    ec2.delete_network_interface(NetworkInterfaceId=one["NetworkInterfaceId"])
    assert (
        refused(lambda: ec2.describe_network_interfaces(NetworkInterfaceIds=[one["NetworkInterfaceId"]]))
        == "InvalidNetworkInterfaceID.NotFound"
    )


def test_a_request_that_is_sent_again_makes_nothing_more(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(ec2, vpc)["SubnetId"]

    made = [ec2.create_network_interface(SubnetId=subnet, ClientToken="once")["NetworkInterface"] for _ in range(2)]

    assert made[0]["NetworkInterfaceId"] == made[1]["NetworkInterfaceId"]


def test_a_pool_gives_each_of_its_addresses_once(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(ec2, vpc, "10.0.7.0/28")["SubnetId"]

    made = [ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"] for _ in range(11)]

    assert {one["PrivateIpAddress"] for one in made} == {f"10.0.7.{n}" for n in range(4, 15)}
    assert len({one["MacAddress"] for one in made}) == 11
    code = refused(lambda: ec2.create_network_interface(SubnetId=subnet))
    assert code == "InsufficientFreeAddressesInSubnet"


# Tags, filters, pages.


def test_tags_are_kept_found_and_taken_off(ec2: Any, vpc: str) -> None:
    subnet = subnet_in(
        ec2, vpc, TagSpecifications=[{"ResourceType": "subnet", "Tags": [{"Key": "Name", "Value": "one"}]}]
    )
    group = group_in(ec2, vpc)
    ec2.create_tags(Resources=[vpc, group], Tags=[{"Key": "team", "Value": "blue"}, {"Key": "odd", "Value": "<&>"}])

    by_tag = [{"Name": "tag:team", "Values": ["blue", "red"]}]
    assert [one["VpcId"] for one in ec2.describe_vpcs(Filters=by_tag)["Vpcs"]] == [vpc]
    assert [one["GroupId"] for one in ec2.describe_security_groups(Filters=by_tag)["SecurityGroups"]] == [group]
    named = ec2.describe_subnets(Filters=[{"Name": "tag:Name", "Values": ["o?e*"]}])["Subnets"]
    assert [one["SubnetId"] for one in named] == [subnet["SubnetId"]]
    rows = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [group]}])["Tags"]
    assert {(one["Key"], one["Value"], one["ResourceType"]) for one in rows} == {
        ("team", "blue", "security-group"),
        ("odd", "<&>", "security-group"),
    }
    ec2.delete_tags(Resources=[vpc, group], Tags=[{"Key": "team"}, {"Key": "odd", "Value": "other"}])
    assert ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"] == [{"Key": "odd", "Value": "<&>"}]

    assert (
        refused(lambda: ec2.create_tags(Resources=[vpc], Tags=[{"Key": "aws:x", "Value": ""}]))
        == "InvalidParameterValue"
    )
    assert refused(lambda: ec2.create_tags(Resources=["x"], Tags=[{"Key": "a", "Value": ""}])) == "InvalidID"
    many = [{"Key": f"k{n}", "Value": ""} for n in range(51)]
    assert refused(lambda: ec2.create_tags(Resources=[vpc], Tags=many)) == "TagLimitExceeded"


def test_pages_lead_through_all_rows_once(ec2: Any, vpc: str) -> None:
    made = {subnet_in(ec2, vpc, f"10.0.{n}.0/24")["SubnetId"] for n in range(12)}
    pages = ec2.get_paginator("describe_subnets").paginate(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}], PaginationConfig={"PageSize": 5}
    )

    found = [[one["SubnetId"] for one in page["Subnets"]] for page in pages]

    assert [len(page) for page in found] == [5, 5, 2]
    assert {one for page in found for one in page} == made
    assert refused(lambda: ec2.describe_subnets(MaxResults=1001)) == "InvalidParameterValue"
    assert refused(lambda: ec2.describe_subnets(NextToken="zz")) == "InvalidPaginationToken"


def test_an_unknown_filter_is_refused_and_not_left_out(ec2: Any) -> None:
    for describe in (
        ec2.describe_vpcs,
        ec2.describe_subnets,
        ec2.describe_security_groups,
        ec2.describe_security_group_rules,
        ec2.describe_network_interfaces,
        ec2.describe_tags,
        ec2.describe_network_acls,
        ec2.describe_route_tables,
        ec2.describe_availability_zones,
        ec2.describe_regions,
    ):
        assert (
            refused(lambda describe=describe: describe(Filters=[{"Name": "mood", "Values": ["x"]}]))
            == "InvalidParameterValue"
        )


def test_dry_run_and_what_is_not_served(ec2: Any) -> None:
    assert refused(lambda: ec2.create_vpc(CidrBlock="10.0.0.0/16", DryRun=True)) == "DryRunOperation"
    assert refused(lambda: ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1)) == "InvalidAction"


def test_where_we_are(ec2: Any) -> None:
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    assert [one["ZoneName"] for one in zones] == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert REGION in [one["RegionName"] for one in ec2.describe_regions()["Regions"]]
    attributes = ec2.describe_account_attributes(AttributeNames=["supported-platforms"])["AccountAttributes"]
    assert attributes[0]["AttributeValues"][0]["AttributeValue"] == "VPC"


@pytest.mark.timeout(120)
def test_the_aws_cli(running: Running, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL": f"http://{running.plane.host}",
        "AWS_ACCESS_KEY_ID": running.plane.key.access_key_id,
        "AWS_SECRET_ACCESS_KEY": running.plane.key.secret_access_key,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_PAGER": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def aws(*words: str, refused: bool = False) -> Any:
        done = subprocess.run([AWS, *words], capture_output=True, text=True, env=environment, timeout=60)
        assert (done.returncode != 0) is refused, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else done.stderr

    assert aws("sts", "get-caller-identity")["Account"] == ACCOUNT
    group = aws("ec2", "create-security-group", "--group-name", "cli", "--description", "from the CLI")["GroupId"]
    words = ("--group-id", group, "--protocol", "tcp", "--port", "8080", "--cidr", "10.0.0.0/8")
    made = aws("ec2", "authorize-security-group-ingress", *words)["SecurityGroupRules"]
    assert made[0]["FromPort"] == 8080
    assert "InvalidPermission.Duplicate" in aws("ec2", "authorize-security-group-ingress", *words, refused=True)
    aws("ec2", "delete-security-group", "--group-id", group)
