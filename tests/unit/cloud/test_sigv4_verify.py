"""The server accepts what real clients sign, and nothing that was changed on the way."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.cloud.sigv4_verify import SignatureFault, SignatureRefused, Verified, Verifier
from sexton.wire.errors import EcsError
from sexton.wire.tcs_frame import split_frame


def _requests_of_amazons_agent():
    """The signed requests and telemetry frames of a recorded session, which used the documentation's key pair."""
    session = Path(__file__).parents[2] / "data" / "session-basic.jsonl"
    opened = {}
    for line in session.read_text().splitlines():
        record = json.loads(line)
        path, _, query = record.get("path", "").partition("?")
        request = {"method": "GET", "path": path, "query": query, "body": b"", "now": record["t"]}
        match record["kind"]:
            case "http":
                request |= {"method": "POST", "body": record["raw"].encode()}
                name, headers = record["op"], record["headers"]
            case "ws-open":
                name, headers = record["which"], record["headers"]
                opened[name] = {"path": path, "query": query}
            case "ws-recv" if record["which"] == "tcs":
                headers, body = split_frame(record["data"].encode())
                request |= opened["tcs"] | {"body": body}
                name, headers = json.loads(body)["type"], headers.items()
            case _:
                continue
        yield pytest.param([tuple(header) for header in headers], request, id=name)


AGENT = pytest.mark.parametrize(("headers", "request_"), list(_requests_of_amazons_agent()))
EXAMPLE = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOW = 1_795_028_325.0
TEMPORARY = Credentials("ASIATEMP", "temporary-secret", "the-token", NOW + 3600)
KEYS = {key.access_key_id: key for key in (EXAMPLE, TEMPORARY)}
TARGET = "AmazonEC2ContainerServiceV20141113.ListClusters"
HEADERS = {"Host": "127.0.0.1:7070", "Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": TARGET}


@pytest.fixture
def verifier():
    return Verifier(KEYS.get, services={"ecs"}, regions={"us-east-1"})


def signed(credentials=EXAMPLE, *, region="us-east-1", service="ecs", now=NOW, body=b"{}"):
    return HEADERS | sign("POST", "/", "", HEADERS, body, credentials, region=region, service=service, now=now)


def refusal(verifier, headers, *, method="POST", path="/", query="", body=b"{}", now=NOW):
    with pytest.raises(SignatureRefused) as caught:
        verifier.verify(method, path, query, headers.items() if isinstance(headers, dict) else headers, body, now)
    return caught.value


@AGENT
def test_accepts_what_amazons_agent_sent(verifier, headers, request_):
    assert verifier.verify(headers=headers, **request_) == Verified("AKIDEXAMPLE", "us-east-1", "ecs")


@AGENT
def test_refuses_what_amazons_agent_sent_when_any_signed_part_differs(verifier, headers, request_):
    changes = [{"method": "PUT"}, {"path": "/x"}, {"query": "x=y"}, {"body": request_["body"] + b" "}]
    for change in changes:
        assert refusal(verifier, headers, **(request_ | change)).kind is SignatureFault.INVALID, change
    listed = dict(headers)["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    for name in set(listed) - {"x-amz-date"}:
        changed = [(n, v + "0" if n.lower() == name else v) for n, v in headers]
        assert refusal(verifier, changed, **request_).kind is SignatureFault.INVALID, name
        removed = [(n, v) for n, v in headers if n.lower() != name]
        assert refusal(verifier, removed, **request_).kind is SignatureFault.INVALID, name
    later = [(n, v[:-2] + str((int(v[-2]) + 1) % 10) + "Z" if n == "X-Amz-Date" else v) for n, v in headers]
    assert refusal(verifier, later, **request_).kind is SignatureFault.INVALID


def test_header_order_case_and_inner_spaces_do_not_matter(verifier):
    headers = HEADERS | {"X-Amz-Note": "two  words"}
    headers |= sign("POST", "/", "", headers, b"{}", EXAMPLE, region="us-east-1", service="ecs", now=NOW)
    sent = [(name.upper(), value.replace("two  words", "two words")) for name, value in reversed(headers.items())]

    assert verifier.verify("POST", "/", "", sent, b"{}", NOW).access_key == "AKIDEXAMPLE"


def test_a_repeated_header_is_signed_as_a_list(verifier):
    headers = HEADERS | {"X-Amz-Many": "a,b"}
    headers |= sign("POST", "/", "", headers, b"", EXAMPLE, region="us-east-1", service="ecs", now=NOW)
    sent = [item for item in headers.items() if item[0] != "X-Amz-Many"]

    accepted = verifier.verify("POST", "/", "", [*sent, ("X-Amz-Many", "a"), ("x-amz-many", "b")], b"", NOW)

    assert accepted.access_key == "AKIDEXAMPLE"
    refusal(verifier, [*sent, ("X-Amz-Many", "b"), ("x-amz-many", "a")], body=b"")


def test_bytes_that_are_no_text_are_signed_as_they_are(verifier):
    """An HTTP parser hands such bytes on as lone surrogates."""
    headers = HEADERS | {"X-Amz-Note": "caf\udce9"}
    request = ("POST", "/caf\udce9", "q=caf\udce9")
    headers |= sign(*request, headers, b"", EXAMPLE, region="us-east-1", service="ecs", now=NOW)

    assert verifier.verify(*request, headers.items(), b"", NOW).access_key == "AKIDEXAMPLE"
    other = headers | {"X-Amz-Note": "caf\udcea"}
    assert refusal(verifier, other, path=request[1], query=request[2], body=b"").kind is SignatureFault.INVALID


def test_an_unsigned_header_of_the_protocol_is_refused(verifier):
    added = refusal(verifier, signed() | {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    assert added.kind is SignatureFault.INVALID
    assert "x-amz-content-sha256" in added.message

    headers = HEADERS.copy()
    target = headers.pop("X-Amz-Target")
    headers |= sign("POST", "/", "", headers, b"{}", EXAMPLE, region="us-east-1", service="ecs", now=NOW)
    assert "x-amz-target" in refusal(verifier, headers | {"X-Amz-Target": target}).message


def test_clock_skew_is_bounded_both_ways_and_said(verifier):
    assert verifier.verify("POST", "/", "", signed(now=NOW - 900).items(), b"{}", NOW)
    assert verifier.verify("POST", "/", "", signed(now=NOW + 900).items(), b"{}", NOW)

    early = refusal(verifier, signed(now=NOW - 901))
    late = refusal(verifier, signed(now=NOW + 901))

    assert early.kind is late.kind is SignatureFault.INVALID
    assert early.message == (
        "Signature expired: 20261118T184344Z is now earlier than 20261118T184345Z (20261118T185845Z - 15 min.)"
    )
    assert late.message == (
        "Signature not yet current: 20261118T191346Z is still later than 20261118T191345Z (20261118T185845Z + 15 min.)"
    )


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda h: {n: v for n, v in h.items() if n != "Authorization"}, SignatureFault.MISSING, "Token"),
        (lambda h: h | {"Authorization": "Bearer abc"}, SignatureFault.INCOMPLETE, "AWS4-HMAC-SHA256"),
        (lambda h: _edit(h, "Signature=", "Sig="), SignatureFault.INCOMPLETE, "AWS4-HMAC-SHA256"),
        (lambda h: _edit(h, ", Signature=", ", Sig="), SignatureFault.INCOMPLETE, "AWS4-HMAC-SHA256"),
        (lambda h: _edit(h, "SignedHeaders=", "Headers="), SignatureFault.INCOMPLETE, "'SignedHeaders'"),
        (lambda h: _edit(h, "Credential=", "Cred="), SignatureFault.INCOMPLETE, "'Credential'"),
        (lambda h: _edit(h, "AKIDEXAMPLE/", ""), SignatureFault.INCOMPLETE, "five elements"),
        (lambda h: _edit(h, "aws4_request", "aws5_request"), SignatureFault.INVALID, "terminator"),
        (lambda h: _edit(h, "content-type;host", "host;content-type"), SignatureFault.INCOMPLETE, "in order"),
        (lambda h: _edit(h, "content-type;host", "content-type;content-type;host"), SignatureFault.INCOMPLETE, "order"),
        (lambda h: _edit(h, "content-type;host;", "content-type;"), SignatureFault.INVALID, "'Host'"),
        (lambda h: _edit(h, "20261118", "20261117"), SignatureFault.INVALID, "does not match YYYYMMDD"),
        (lambda h: h | {"X-Amz-Date": "Wed, 18 Nov 2026"}, SignatureFault.INCOMPLETE, "X-Amz-Date"),
        (lambda h: h | {"X-Amz-Date": "20261318T185845Z"}, SignatureFault.INCOMPLETE, "X-Amz-Date"),
        (lambda h: {n: v for n, v in h.items() if n != "X-Amz-Date"}, SignatureFault.INVALID, "x-amz-date"),
        (lambda h: h | {"Authorization": h["Authorization"][:-1]}, SignatureFault.INCOMPLETE, "64"),
        (lambda h: h | {"Authorization": h["Authorization"][:-1] + "é"}, SignatureFault.INCOMPLETE, "64"),
        (lambda h: _edit(h, "AKIDEXAMPLE", "AKIDNOBODY"), SignatureFault.UNRECOGNIZED, "security token"),
        (lambda h: h | {"Authorization": h["Authorization"][:-64] + "0" * 64}, SignatureFault.INVALID, "not match"),
        (lambda h: signed(region="eu-west-1"), SignatureFault.INVALID, "valid region: us-east-1"),
        (lambda h: signed(service="s3"), SignatureFault.INVALID, "correct service: 'ecs'"),
    ],
)
def test_each_fault_has_its_code_and_its_reason(verifier, change, kind, says):
    refused = refusal(verifier, change(signed()))

    assert refused.kind is kind
    assert says in refused.message


def _edit(headers, old, new):
    return headers | {"Authorization": headers["Authorization"].replace(old, new, 1)}


def test_any_region_is_welcome_when_none_is_named():
    verifier = Verifier(KEYS.get, services={"ecs", "logs"})

    accepted = verifier.verify("POST", "/", "", signed(region="xx-y-1", service="logs").items(), b"{}", NOW)

    assert accepted == Verified("AKIDEXAMPLE", "xx-y-1", "logs")


def test_temporary_keys_need_their_token_and_end(verifier):
    assert verifier.verify("POST", "/", "", signed(TEMPORARY).items(), b"{}", NOW).access_key == "ASIATEMP"

    without = signed(Credentials("ASIATEMP", "temporary-secret"))
    other = signed(Credentials("ASIATEMP", "temporary-secret", "another-token"))
    uncalled = signed(Credentials("AKIDEXAMPLE", EXAMPLE.secret_access_key, "a-token"))
    for headers in (without, other, uncalled):
        assert refusal(verifier, headers).kind is SignatureFault.UNRECOGNIZED
    later = NOW + 3600
    assert refusal(verifier, signed(TEMPORARY, now=later), now=later).kind is SignatureFault.UNRECOGNIZED


def test_a_wrong_token_does_not_tell_that_the_key_exists_without_its_secret(verifier):
    forged = signed(Credentials("ASIATEMP", "guessed", "guessed-token"))

    assert refusal(verifier, forged).kind is SignatureFault.INVALID


def test_every_fault_is_an_error_of_the_wire():
    assert {kind.value for kind in SignatureFault} <= EcsError.known.keys()


def test_an_unknown_key_takes_the_same_steps_as_a_wrong_signature(verifier):
    """Equal work by construction: the very same calls in the same order, whether scope keys are cached or not."""
    unknown = _edit(signed(), "AKIDEXAMPLE", "AKIDNOBODY")
    wrong = signed(Credentials("AKIDEXAMPLE", "not-the-secret"))

    for _ in range(2):
        assert _calls(verifier, unknown) == _calls(verifier, wrong)


def _calls(verifier, headers):
    names = []

    def note(frame, event, called):
        if event == "c_call":
            names.append(called.__name__)
        elif event == "call" and "sexton" in frame.f_code.co_filename:
            names.append(frame.f_code.co_name)

    items = list(headers.items())
    sys.setprofile(note)
    try:
        verifier.verify("POST", "/", "", items, b"{}", NOW)
    except SignatureRefused:
        pass
    finally:
        sys.setprofile(None)
    start = names.index("canonical_request")
    assert names.count("compare_digest") == 2
    return names[start : names.index("__init__", start)]


@given(
    path=st.lists(st.sampled_from(["a", "b~c", "x%20y", "%C3%A9", ".."]), max_size=4).map(lambda p: "/" + "/".join(p)),
    params=st.dictionaries(st.text("abcé +&=", min_size=1, max_size=6), st.text("xyz/:+ ", max_size=8), max_size=4),
    headers=st.dictionaries(
        st.from_regex(r"X-Amz-T[a-z0-9-]{1,12}", fullmatch=True),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
        max_size=4,
    ),
    body=st.binary(max_size=200),
    token=st.none() | st.text("abc/+=", min_size=1, max_size=20),
)
def test_accepts_what_botocore_signs(path, params, headers, body, token):
    request = AWSRequest("POST", f"http://127.0.0.1:7070{path}", headers=headers, data=body, params=params)
    SigV4Auth(BotoCredentials("AKID", "secret", token), "ecs", "us-east-1").add_auth(request)
    prepared = request.prepare()
    sent = [("Host", "127.0.0.1:7070"), *((name, _text(value)) for name, value in prepared.headers.items())]
    wire = prepared.url.removeprefix("http://127.0.0.1:7070")
    verifier = Verifier({"AKID": Credentials("AKID", "secret", token)}.get, services={"ecs"})

    wire_path, _, query = wire.partition("?")
    accepted = verifier.verify("POST", wire_path, query, sent, body, time.time())

    assert accepted.access_key == "AKID"


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


hostile = st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@given(
    authorization=hostile
    | st.builds(
        "AWS4-HMAC-SHA256 Credential={}/20261118/us-east-1/ecs/aws4_request, SignedHeaders=host;x-amz-date, "
        "Signature={}".format,
        hostile,
        st.sampled_from(["0" * 64, "x"]),
    ),
    path=hostile,
    query=hostile,
    host=hostile,
    token=st.none() | hostile,
    body=st.binary(max_size=50),
)
def test_a_hostile_request_is_refused_and_nothing_else(authorization, path, query, host, token, body):
    headers = [("Host", host), ("X-Amz-Date", "20261118T185845Z"), ("Authorization", authorization)]
    if token is not None:
        headers.append(("X-Amz-Security-Token", token))

    refusal(Verifier(KEYS.get, services={"ecs"}), headers, path=path, query=query, body=body)
