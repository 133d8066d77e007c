"""The committed ECS modules are what the generator writes, and carry the service's own names."""

from __future__ import annotations

import generate_wire
import msgspec
import pytest

from sexton.wire import ecs, errors, logs

MODEL = generate_wire.load_model()
LOGS = generate_wire.load_logs_model()


@pytest.mark.parametrize(
    "path, text", generate_wire.render_all(MODEL, LOGS).items(), ids=lambda value: getattr(value, "name", "")
)
def test_committed_file_is_what_the_generator_writes(path, text):
    assert path.read_text() == text, "run python scripts/generate_wire.py"


def test_every_field_keeps_its_wire_name():
    for name, shape in generate_wire.structures(MODEL):
        assert list(getattr(ecs, name).__struct_encode_fields__) == list(shape["members"]), name


def test_every_enum_has_the_words_of_the_model():
    for name, shape in generate_wire.enums(MODEL):
        assert [word.value for word in getattr(ecs, name)] == list(shape["enum"])


def test_every_operation_is_there_with_its_shapes_and_errors():
    assert set(ecs.OPERATIONS) == set(MODEL["operations"])
    assert MODEL["metadata"]["targetPrefix"] == ecs.TARGET_PREFIX
    for name, operation in MODEL["operations"].items():
        known = ecs.OPERATIONS[name]
        assert known.request.__name__ == operation["input"]["shape"]
        assert known.response is not None
        assert known.response.__name__ == operation["output"]["shape"]
        assert set(known.errors) == {error["shape"] for error in operation["errors"]}
        assert all(code in errors.EcsError.known for code in known.errors)


def test_the_served_operations_of_cloudwatch_logs_have_their_shapes_and_errors_and_the_others_are_named():
    assert set(logs.OPERATIONS) == set(LOGS["operations"]) == set(generate_wire.LOGS_SERVED)
    assert "StartQuery" in logs.REFUSED and not logs.REFUSED & set(logs.OPERATIONS)
    assert LOGS["metadata"]["targetPrefix"] == logs.TARGET_PREFIX
    for name, shape in generate_wire.structures(LOGS):
        assert list(getattr(logs, name).__struct_encode_fields__) == list(shape["members"]), name
    for known in logs.OPERATIONS.values():
        assert all(code in errors.EcsError.known for code in known.errors), known.name


@pytest.mark.parametrize(
    "operation", [*ecs.OPERATIONS.values(), *logs.OPERATIONS.values()], ids=lambda operation: operation.name
)
def test_every_operation_decodes_an_empty_object(operation):
    """Resolves every annotation reachable from the operation."""
    for shape in filter(None, (operation.request, operation.response)):
        assert msgspec.json.encode(msgspec.json.decode(b"{}", type=shape)) == b"{}"


@pytest.mark.parametrize(
    "body", [b'{"count":"x"}', b'{"count":1.5}', b'{"count":2147483648}', b'{"tags":{}}', b'{"startedBy":1}', b"[]"]
)
def test_a_json_type_other_than_the_shape_is_refused(body):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=ecs.RunTaskRequest)


def test_an_unknown_word_of_an_enum_and_an_unknown_field_are_read():
    request = msgspec.json.decode(b'{"launchType":"MOON","newer":{"a":1}}', type=ecs.RunTaskRequest)

    assert request == ecs.RunTaskRequest(launch_type="MOON")


def test_inner_capitals_become_words():
    assert [generate_wire.snake(name) for name in ("enableECSManagedTags", "sizeInGiB", "vCpuCount", "from")] == [
        "enable_ecs_managed_tags",
        "size_in_gib",
        "vcpu_count",
        "from_",
    ]
