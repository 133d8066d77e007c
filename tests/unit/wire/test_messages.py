"""ACS and TCS: real sessions survive, what is unknown is kept, what is hostile is one kind of error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.wire import acs, tcs
from sexton.wire.acs_task import Container, IAMRoleCredentials, Task
from sexton.wire.envelope import Message
from sexton.wire.errors import WireError
from sexton.wire.tcs_frame import split_frame
from unit.wire.captured import frames

ACS_FRAMES = frames("acs")
TCS_FRAMES = [split_frame(frame)[1] for frame in frames("tcs")]
CAPTURED = [(acs, frame) for frame in ACS_FRAMES] + [(tcs, frame) for frame in TCS_FRAMES]

# Longer integers than 64 bits are refused, so generated JSON stays within them.
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NEWER_FIELDS = st.dictionaries(st.text(max_size=8).map(lambda name: f"x-{name}"), JSON, max_size=4)


@pytest.mark.parametrize("protocol, frame", CAPTURED)
def test_captured_message_survives_as_received_and_as_typed(protocol, frame):
    message = protocol.decode(frame)

    assert message.body is not None
    assert protocol.encode(message) == frame
    # The shapes alone carry everything: nothing of a real session is an unknown field.
    assert json.loads(protocol.encode(message.body)) == json.loads(frame)


def test_the_capture_holds_both_directions_of_both_protocols():
    assert {acs.decode(frame).type for frame in ACS_FRAMES} == {
        "HeartbeatMessage",
        "HeartbeatAckRequest",
        "PayloadMessage",
        "AckRequest",
        "TaskManifestMessage",
    }
    assert {tcs.decode(frame).type for frame in TCS_FRAMES} == {
        "PublishMetricsRequest",
        "PublishInstanceStatusRequest",
        "AckPublishMetric",
        "AckPublishInstanceStatus",
        "HeartbeatMessage",
    }


@pytest.mark.parametrize(
    "protocol, name", [(acs, name) for name in acs.CATALOGUE.shapes] + [(tcs, name) for name in tcs.CATALOGUE.shapes]
)
def test_every_message_type_may_be_empty(protocol, name):
    message = protocol.decode(f'{{"type":"{name}"}}')

    assert type(message.body).__name__ == name
    assert json.loads(protocol.encode(message.body)) == {"type": name, "message": {}}


@given(extra=NEWER_FIELDS)
def test_unknown_fields_are_kept(extra):
    sent = {
        "type": "PayloadMessage",
        "newer": extra,
        "message": {"messageId": "m", "tasks": [{"arn": "a", **extra}], **extra},
    }

    message = acs.decode(json.dumps(sent))

    assert message.body == acs.PayloadMessage(message_id="m", tasks=(Task(arn="a"),))
    assert json.loads(acs.encode(message)) == sent


@given(kind=st.text().filter(lambda kind: kind not in acs.CATALOGUE.shapes), body=JSON)
def test_unknown_types_are_kept(kind, body):
    sent = {"type": kind, "message": body}
    message = acs.decode(json.dumps(sent))

    assert (message.type, message.body) == (kind, None)
    assert json.loads(acs.encode(message)) == sent


@given(frame=st.binary() | st.text() | st.text(st.characters()))
def test_random_frames_are_wire_errors_or_messages(frame):
    assert_readable_or_wire_error(frame)


@given(data=st.data(), frame=st.sampled_from(sorted(set(ACS_FRAMES))[:12]))
def test_mutated_frames_are_wire_errors_or_messages(data, frame):
    place = data.draw(st.integers(0, len(frame)))
    cut = data.draw(st.integers(0, 4))
    assert_readable_or_wire_error(frame[:place] + data.draw(st.binary(max_size=4)) + frame[place + cut :])


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"null",
        b"[]",
        b'{"type":1,"message":{}}',
        b'{"message":{}}',
        b'{"type":"PayloadMessage","message":[]}',
        b'{"type":"PayloadMessage","message":null}',
        b'{"type":"PayloadMessage","message":{"seqNum":"7"}}',
        b'{"type":"PayloadMessage","message":{"seqNum":9223372036854775808}}',
        b'{"type":"PayloadMessage","message":{"tasks":[{"cpu":1e999}]}}',
        b'{"type":"HeartbeatMessage","message":{"messageId":"\\ud800"}}',
        b'{"type":"HeartbeatMessage","message":{"messageId":"\xff"}}',
        b'{"type":"Newer","message":"\xff"}',
        b'{"type":"Newer","message":' + b"[" * 100_000,
        b'{"type":"PayloadMessage","message":{"x":' + b"[" * 100_000,
        '{"type":"\ud800"}',
    ],
)
def test_hostile_frames_are_wire_errors(frame):
    with pytest.raises(WireError, match=r"^cannot read ACS frame: "):
        acs.decode(frame)


def assert_readable_or_wire_error(frame: bytes | str) -> None:
    for protocol in (acs, tcs):
        try:
            message = protocol.decode(frame)
        except WireError:
            continue
        if message.body is not None:
            assert protocol.decode(protocol.encode(message.body)).body == message.body


def test_a_body_is_only_sent_over_its_own_protocol():
    with pytest.raises(WireError, match="cannot send HeartbeatMessage over TCS"):
        tcs.encode(acs.HeartbeatMessage(message_id="m"))


@pytest.mark.parametrize("overrides", ["{}", "null", {"command": ["sh"]}])
def test_container_overrides_are_text_or_an_object(overrides):
    frame = json.dumps({"type": "PayloadMessage", "message": {"tasks": [{"containers": [{"overrides": overrides}]}]}})

    body = acs.decode(frame).body

    assert body == acs.PayloadMessage(tasks=(Task(containers=(Container(overrides=overrides),)),))


def test_secrets_do_not_show():
    keys = IAMRoleCredentials(credentials_id="c", access_key_id="AKIA", secret_access_key="hush", session_token="token")
    frame = acs.encode(acs.IAMRoleCredentialsMessage(message_id="m", role_credentials=keys))
    message = acs.decode(frame)
    shown = f"{message!r} {message} {message.body!r} {message.body}"

    assert isinstance(message, Message)
    assert b"hush" in frame
    assert "credentials_id='c'" in shown
    assert not any(secret in shown for secret in ("AKIA", "hush", "token="))
