"""Signing agrees with AWS's published examples and with botocore."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import canonical_path, canonical_query, sign, signing_key

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
EXAMPLE = Credentials("AKIDEXAMPLE", SECRET)
THEN = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()


def test_documented_key_derivation():
    expected = "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"

    assert signing_key(SECRET, "20150830", "us-east-1", "iam").hex() == expected


def test_documented_list_users_request():
    headers = {"Host": "iam.amazonaws.com", "Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}

    added = sign(
        "GET", "/", "Action=ListUsers&Version=2010-05-08", headers, b"", EXAMPLE,
        region="us-east-1", service="iam", now=THEN,
    )  # fmt: skip

    assert added == {
        "X-Amz-Date": "20150830T123600Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    }


def test_vanilla_get_of_the_published_suite():
    added = sign(
        "GET", "/", "", {"Host": "example.amazonaws.com"}, b"", EXAMPLE,
        region="us-east-1", service="service", now=THEN,
    )  # fmt: skip

    assert added["Authorization"].endswith("Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")


@pytest.mark.parametrize(
    ("path", "canonical"),
    [("", "/"), ("/", "/"), ("//", "/"), ("/./a/../b/", "/b/"), ("/..", "/"), ("/a%20b", "/a%2520b"), ("/a~b", "/a~b")],
)
def test_paths_are_resolved_and_encoded_once_more(path, canonical):
    assert canonical_path(path) == canonical


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        ("", ""),
        ("b=2&a=1", "a=1&b=2"),
        ("a=2&a=1", "a=1&a=2"),
        ("a-=1&a=2", "a=2&a-=1"),
        ("a", "a="),
        ("v=20.10+x%2B", "v=20.10%20x%2B"),
        ("arn=a:b/c", "arn=a%3Ab%2Fc"),
        ("%ff=%7e", "%FF=~"),
    ],
)
def test_queries_are_decoded_encoded_and_sorted(query, canonical):
    assert canonical_query(query) == canonical


def test_a_request_without_host_is_not_signed():
    with pytest.raises(ValueError, match="Host"):
        sign("GET", "/", "", {}, b"", EXAMPLE, region="r", service="s", now=THEN)


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
headers_ = st.dictionaries(
    st.from_regex(r"x-[a-z0-9-]{1,12}", fullmatch=True).filter(lambda name: not name.startswith("x-amz")),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
    max_size=4,
)
paths = st.lists(st.sampled_from(["a", "b~c", "x y", "é", "..", ".", "", "%2F"]), max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)
tokens = st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@given(
    method=st.sampled_from(["GET", "POST", "PUT"]),
    path=paths,
    params=st.dictionaries(words.filter(bool), words, max_size=4),
    headers=headers_,
    body=st.binary(max_size=200),
    token=tokens,
    now=st.integers(min_value=0, max_value=4_000_000_000),
)
def test_signs_as_botocore_does(method, path, params, headers, body, token, now):
    oracle = SigV4Auth(BotoCredentials("AKID", SECRET, token), "ecs", "eu-west-1")
    added = sign(
        method, path, "&".join(f"{_quote(k)}={_quote(v)}" for k, v in params.items()), {"Host": "h:7070", **headers},
        body, Credentials("AKID", SECRET, token), region="eu-west-1", service="ecs", now=now,
    )  # fmt: skip

    request = AWSRequest(method, f"http://h:7070{path}", headers=dict(headers), data=body, params=params)
    request.headers["X-Amz-Date"] = request.context["timestamp"] = added["X-Amz-Date"]
    if token:
        request.headers["X-Amz-Security-Token"] = token
    theirs = oracle.signature(oracle.string_to_sign(request, oracle.canonical_request(request)), request)

    assert added["Authorization"].rpartition("=")[2] == theirs


def _quote(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def test_documented_get_of_an_object():
    """The example in the object store's manual: the path as it is, and the body's hash among the headers."""
    keys = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    headers = {"Host": "examplebucket.s3.amazonaws.com", "Range": "bytes=0-9"}
    then = datetime(2013, 5, 24, tzinfo=UTC).timestamp()

    added = sign(
        "GET", "/test.txt", "", headers, b"", keys,
        region="us-east-1", service="s3", now=then, plain_path=True,
    )  # fmt: skip

    assert added["Authorization"].endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")
