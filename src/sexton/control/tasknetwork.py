"""The network of awsvpc tasks: what a request may say of it, and the interface that every task gets.

The interface is chosen when the task is placed and written in the transaction that accepts the task, on the condition
that its address is still free and that its subnet and groups are still there. So there is no task without its
interface and no interface of a task that was not accepted; it goes in the transaction that ends the task
(``control/network.py``), exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import msgspec

from sexton.control.context import Context, invalid
from sexton.control.ec2 import groups, interfaces, subnets
from sexton.control.networkrecords import InterfaceRecord, SubnetRecord
from sexton.control.records import TaskRecord
from sexton.core import addresses, attachment, names
from sexton.core.placement import Refusal, Why
from sexton.store.contract import Compare, Write
from sexton.wire import acs_task, ecs
from sexton.wire.ecs import AssignPublicIp
from sexton.wire.query import QueryError

MOST_SUBNETS = 16


class Chosen(NamedTuple):
    """Where the interfaces of a request's tasks go: any of these subnets, all of one VPC, and these groups."""

    subnets: tuple[SubnetRecord, ...]
    groups: tuple[str, ...]


class Plugged(NamedTuple):
    """Tasks with their interfaces, and what has to be written with them. ``refusals`` are of those that got none."""

    tasks: list[TaskRecord]
    compares: list[Compare]
    writes: list[Write]
    refusals: tuple[Refusal, ...]


def check(configuration: ecs.NetworkConfiguration | None, of: ecs.TaskDefinition) -> None:
    """The API's error for a configuration that does not go with the definition's network mode."""
    awsvpc = of.network_mode == "awsvpc"
    if awsvpc and configuration is None:
        raise invalid("Network Configuration must be provided when networkMode 'awsvpc' is specified.")
    if configuration is not None and not awsvpc:
        raise invalid("Network Configuration is not valid for the given networkMode of this task definition.")


def choose(
    context: Context,
    region: str,
    configuration: ecs.NetworkConfiguration | None,
    of: ecs.TaskDefinition,
    *,
    fargate: bool,
) -> Chosen | None:
    """What the interfaces of tasks like these can be made from, or the API's error; None where they need none."""
    check(configuration, of)
    if configuration is None:
        return None
    asked = configuration.awsvpc_configuration or ecs.AwsVpcConfiguration()
    if not asked.subnets:
        raise invalid("subnets can not be empty.")
    _few(asked.subnets, MOST_SUBNETS, "subnets")
    _few(asked.security_groups or (), interfaces.MOST_GROUPS, "securityGroups")
    if asked.assign_public_ip == AssignPublicIp.ENABLED and not fargate:
        raise invalid("Assign public IP is not supported for this launch type.")
    found = tuple(_subnet(context, region, one) for one in dict.fromkeys(asked.subnets))
    if len({one.vpc for one in found}) > 1:
        raise invalid(f"The subnets {', '.join(asked.subnets)} are not in the same VPC.")
    return Chosen(found, _groups(context, region, found[0].vpc, asked.security_groups or ()))


def completed(configuration: ecs.NetworkConfiguration | None) -> ecs.NetworkConfiguration | None:
    """The configuration as services show it, with what was not said."""
    if configuration is None or configuration.awsvpc_configuration is None:
        return configuration
    asked = configuration.awsvpc_configuration
    return ecs.NetworkConfiguration(
        awsvpc_configuration=ecs.AwsVpcConfiguration(
            subnets=asked.subnets,
            security_groups=asked.security_groups or (),
            assign_public_ip=asked.assign_public_ip or str(AssignPublicIp.DISABLED),
        )
    )


def _few(given: Sequence[str], most: int, what: str) -> None:
    if len(given) > most:
        raise invalid(f"{what} can have at most {most} items.")


def _subnet(context: Context, region: str, given: str) -> SubnetRecord:
    try:
        return subnets.find(context, region, given).value
    except QueryError as error:
        raise _retrieving("subnet", given, error) from None


def _groups(context: Context, region: str, vpc: str, given: Sequence[str]) -> tuple[str, ...]:
    """The groups that are named, which must be of the VPC, or its default group."""
    for one in given:
        try:
            found = groups.find(context, region, one).value
        except QueryError as error:
            raise _retrieving("security group", one, error) from None
        if found.vpc != vpc:
            raise invalid(f"The security group {one} does not belong to the VPC {vpc} of the subnets.")
    return interfaces.check_groups(context, region, vpc, given)


def _retrieving(what: str, given: str, error: QueryError) -> Exception:
    return invalid(f"Error retrieving {what} information for [{given}]: {error.message} (ErrorCode: {error.code})")


@contextmanager
def plugged(context: Context, made: Sequence[TaskRecord], chosen: Chosen | None, now: float) -> Iterator[Plugged]:
    """New tasks with an interface each, whose addresses nobody else is given meanwhile."""
    if chosen is None:
        yield Plugged(list(made), [], [], ())
        return
    tasks: list[TaskRecord] = []
    fresh: list[InterfaceRecord] = []
    refusals: tuple[Refusal, ...] = ()
    with ExitStack() as promises:
        for one in made:
            try:
                interface = _interface(context, one, chosen, now)
            except interfaces.NoFreeAddress as error:
                refusals = (Refusal(arn=one.task.container_instance_arn or "", why=Why.INTERFACE, detail=str(error)),)
                break
            promises.enter_context(context.network.promised([interface]))
            fresh.append(interface)
            tasks.append(msgspec.structs.replace(one, task=attachment.attached(one.task, _port(interface))))
        compares, writes = interfaces.writing(context, fresh) if fresh else ([], [])
        yield Plugged(tasks, compares, writes, refusals)


def _interface(context: Context, record: TaskRecord, chosen: Chosen, now: float) -> InterfaceRecord:
    """An address for one task: of a subnet in its host's zone where there is one, and where most are left."""
    task = record.task
    left = {one.id: context.network.left(one) for one in chosen.subnets}
    best = min(chosen.subnets, key=lambda one: (not left[one.id], one.zone != task.availability_zone, -left[one.id]))
    attachment_id = context.new_id()
    place = names.Place(record.region, context.account)
    return interfaces.made(
        context,
        best,
        chosen.groups,
        now,
        ipv6=True,
        description=names.attachment_arn(place, attachment_id),
        task=record.arn,
        instance=task.container_instance_arn or "",
        attachment=attachment_id,
    )


def _port(one: InterfaceRecord) -> attachment.Port:
    return attachment.Port(
        attachment=one.attachment,
        subnet=one.subnet,
        interface=one.id,
        mac=one.mac,
        name=addresses.dns_name(one.region, one.ipv4),
        ipv4=one.ipv4,
        ipv6=one.ipv6,
    )


def in_payload(context: Context, record: TaskRecord) -> tuple[acs_task.ElasticNetworkInterface, ...] | None:
    """A task's interfaces as its payload names them; None for a task without."""
    shown = []
    for one in context.network.of_task(record.arn):
        subnet = context.records.subnets.get(one.region, one.subnet)
        if subnet is not None:
            arn = names.attachment_arn(names.Place(one.region, context.account), one.attachment)
            shown.append(attachment.in_payload(_port(one), arn, subnet.value.cidr, _block6(subnet.value)))
    return tuple(shown) or None


def _block6(subnet: SubnetRecord) -> str:
    return subnet.cidr6.cidr if subnet.cidr6 else ""
