"""EC2, as far as networks go: every action that is served, and its own ways of saying things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sexton.cloud.sigv4_verify import SignatureFault
from sexton.control.context import Call, Context
from sexton.control.ec2 import defaults, fixtures, groups, interfaces, rules, subnets, tags, vpcs, zones
from sexton.control.query.service import Answer, Codes, Operation, Service, ec2_failure, flat

MODULES = (vpcs, subnets, groups, rules, interfaces, tags, zones, fixtures)


def _with_defaults(operation: Operation) -> Operation:
    """The operation, in a region whose default networks are there."""

    async def serve(context: Context, call: Call, request: Any) -> Answer:
        await defaults.ensure(context, call.region)
        return await operation.serve(context, call, request)

    return operation._replace(serve=serve)


OPERATIONS: Mapping[str, Operation] = {
    name: _with_defaults(operation) for module in MODULES for name, operation in module.OPERATIONS.items()
}

_UNPROVEN = dict.fromkeys(SignatureFault, ("AuthFailure", 401)) | {SignatureFault.EXPIRED: ("RequestExpired", 400)}
EC2 = Service(
    name="ec2",
    title="Amazon EC2",
    operations=OPERATIONS,
    codes=Codes(denied="UnauthorizedOperation", signature=_UNPROVEN),
    success=flat("http://ec2.amazonaws.com/doc/2016-11-15/"),
    failure=ec2_failure,
)
