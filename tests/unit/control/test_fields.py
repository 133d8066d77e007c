"""The table of fields in the documentation says what happens: by behaviour, field by field.

Honoured: without it a request has another outcome, in its answer or in the records. Accepted: with it a request is
answered as without. Refused: with it the answer is the API's error, which names it.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import msgspec
import pytest

from sexton.control.dispatch import FIELDS, OPERATIONS
from sexton.control.fields import Fields
from sexton.control.ops import unsupported
from sexton.wire import ecs
from unit.control.fieldworld import REQUESTS, VALUES, Prepared, prepare
from unit.control.requests_of_model import MODEL

SERVED = sorted(OPERATIONS.keys() - unsupported.OPERATIONS.keys())
NOTHING = Fields()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return asyncio.run(prepare(tmp_path_factory.mktemp("fields")))


def members(operation: str) -> set[str]:
    return {one.encode_name for one in msgspec.structs.fields(ecs.OPERATIONS[operation].request)}


def test_every_operation_has_requests():
    assert set(SERVED) == REQUESTS.keys()


@pytest.mark.parametrize("operation", SERVED)
async def test_fields_are_what_the_table_says(prepared, operation):
    declared = FIELDS.get(operation, NOTHING)
    whole = {path for path in (*declared.accepted, *declared.refused) if "." not in path and "=" not in path}
    honoured = members(operation) - whole
    left = set(honoured)
    wrong = []
    for request in REQUESTS[operation]:
        known = honoured | declared.accepted.keys()
        assert request.keys() <= known, f"{operation}: {request.keys() - known} are declared as not honoured"
        outcome = await prepared.outcome(operation, request)
        assert outcome == await prepared.outcome(operation, request), "the world is not the same each time"
        for name in request.keys() & left:
            without = {key: value for key, value in request.items() if key != name}
            if await prepared.outcome(operation, without) != outcome:
                left.discard(name)
    wrong += [f"{name} is said to be honoured and changes nothing" for name in sorted(left)]

    base = REQUESTS[operation][0]
    plain = await prepared.outcome(operation, base)
    for path in declared.accepted:
        if _kind(await prepared.outcome(operation, _saying(operation, base, path))) != _kind(plain):
            wrong.append(f"{path} is said to be accepted and is not")
    for path in declared.refused:
        answer, _ = await prepared.outcome(operation, _saying(operation, base, path))
        if answer[0] != "UnsupportedFeatureException" or path not in answer[1]:
            wrong.append(f"{path} is said to be refused and is answered with {answer}")
    assert not wrong, "; ".join(wrong)


def _kind(outcome: tuple[Any, Any]) -> Any:
    """A refusal's code, or nothing."""
    return outcome[0][0] if isinstance(outcome[0], tuple) else None


def _saying(operation: str, base: dict[str, Any], path: str) -> dict[str, Any]:
    """The request with what a path means."""
    names, _, wanted = path.partition("=")
    request: dict[str, Any] = copy.deepcopy(base)
    here: Any = request
    shape = MODEL.operation_model(operation).input_shape
    *parents, last = names.split(".")
    for name in parents:
        shape = shape.members[name]
        if shape.type_name == "list":
            shape = shape.member
            here = here.setdefault(name, [_required(shape)])[0]
        else:
            here = here.setdefault(name, _required(shape))
    here[last] = wanted or VALUES.get(names) or _value(shape.members[last])
    return request


def _required(shape: Any) -> dict[str, Any]:
    return {name: _value(shape.members[name]) for name in shape.required_members}


def _value(shape: Any) -> Any:
    match shape.type_name:
        case "string":
            return (getattr(shape, "enum", None) or ["main"])[0]
        case "boolean":
            return True
        case "list":
            return [_value(shape.member)]
        case "map":
            return {"a": _value(shape.value)}
        case "structure":
            return _required(shape) or {name: _value(member) for name, member in list(shape.members.items())[:1]}
    return 5
