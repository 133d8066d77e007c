"""EC2's actions by name over a world, with parameters as they stand in a form."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from sexton.control.context import Call
from sexton.control.ec2.service import OPERATIONS
from sexton.wire.query import as_request, read_form
from unit.control.world import REGION, World


async def ec2(world: World, action: str, **fields: object) -> Any:
    """One request; ``__`` stands for the dots of a form's names."""
    operation = OPERATIONS[action]
    form = urlencode({name.replace("__", "."): str(value) for name, value in fields.items()}).encode()
    return await operation.serve(
        world.context, Call(REGION, "AKSXEXAMPLE", world.now), as_request(read_form(form), operation.request)
    )


async def pool(world: World, cidr: str = "10.0.1.0/24", ipv6: bool = False) -> tuple[str, str]:
    """A VPC with one subnet: their ids."""
    vpc = (await ec2(world, "CreateVpc", CidrBlock="10.0.0.0/16", AmazonProvidedIpv6CidrBlock=ipv6))["vpc"]
    more = {}
    if ipv6:
        more["Ipv6CidrBlock"] = vpc["ipv6CidrBlockAssociationSet"][0]["ipv6CidrBlock"].replace("/56", "/64")
    subnet = (await ec2(world, "CreateSubnet", VpcId=vpc["vpcId"], CidrBlock=cidr, **more))["subnet"]
    if ipv6:
        await ec2(
            world, "ModifySubnetAttribute", SubnetId=subnet["subnetId"], AssignIpv6AddressOnCreation__Value="true"
        )
    return vpc["vpcId"], subnet["subnetId"]
