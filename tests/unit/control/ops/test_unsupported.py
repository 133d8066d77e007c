"""Every operation of the model is answered by somebody, and what stands for AWS's own infrastructure says so."""

from __future__ import annotations

import pytest

from sexton.control.context import Call
from sexton.control.dispatch import OPERATIONS
from sexton.control.ops import unsupported
from sexton.wire import ecs
from sexton.wire.errors import UnsupportedFeatureException

# Served together with the service reconciler.
OF_SERVICES = ("Service", "TaskSet")


def test_nothing_is_left_unanswered_but_what_belongs_to_services():
    unanswered = set(ecs.OPERATIONS) - set(OPERATIONS)

    assert {name for name in unanswered if not any(word in name for word in OF_SERVICES)} == set()


@pytest.mark.parametrize("name", sorted(unsupported.OPERATIONS))
async def test_the_error_names_operation_and_family(world, name):
    request = ecs.OPERATIONS[name].request()
    with pytest.raises(UnsupportedFeatureException, match=rf"{name} is not supported: .* has no \w+"):
        await OPERATIONS[name](world.context, Call("us-east-1", "AKSXEXAMPLE", world.now), request)


def test_families_are_found_by_the_models_names():
    assert len(unsupported.OPERATIONS) == 27
    assert {"CreateExpressGatewayService", "ListDaemons", "AssociateGatewayWithCluster"} <= set(unsupported.OPERATIONS)
