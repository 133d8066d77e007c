"""The headers that open an agent's sockets and the frames it signs are what a server can verify."""

from __future__ import annotations

import pytest

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4_verify import SignatureRefused, Verified, Verifier
from sexton.cloud.websocket import Target, sign_frame, signed_headers_for_websocket, target_of
from sexton.wire.tcs_frame import split_frame

NOW = 1_795_028_325.0
LONG_LIVED = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TEMPORARY = Credentials("ASIA", "secret", "token/+==")
# The telemetry socket and its first frame as Amazon's agent 1.105.1 opened and signed them.
URL = (
    "http://127.0.0.1:7070/tcs/ws?agentHash=a8b3e7d3&agentVersion=1.105.1&cluster=default&containerInstance="
    "arn%3Aaws%3Aecs%3Aus-east-1%3A123456789012%3Acontainer-instance%2Fdefault%2Fc1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
    "&dockerVersion=20.10.24%2Bdfsg1"
)
MESSAGE = (
    b'{"type":"PublishMetricsRequest","message":{"metadata":{"cluster":"default","containerInstance":'
    b'"arn:aws:ecs:us-east-1:123456789012:container-instance/default/c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1","fin":true,'
    b'"idle":true,"messageId":"18c73a1f-d1a2-47e2-bb65-eebeecf3ada2"},"timestamp":1795028325.487}}'
)


def test_opens_the_socket_with_the_very_headers_amazons_agent_sent():
    assert signed_headers_for_websocket(URL, LONG_LIVED, region="us-east-1", now=NOW) == {
        "Host": "127.0.0.1:7070",
        "X-Amz-Date": "20261118T185845Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261118/us-east-1/ecs/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=0fa1cb12601a90ffec82a15788c7cad6423564e7b0a320fb973e7cd83c9b3c3a",
    }


def test_signs_the_very_frame_amazons_agent_sent():
    head = (
        b"Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261118/us-east-1/ecs/aws4_request, "
        b"SignedHeaders=host;x-amz-date, "
        b"Signature=2882f195f0bbc91126b9362ec2f61697a1f11916bf34784bdc1c942fec05ddee\r\n"
        b"Host: 127.0.0.1:7070\r\nX-Amz-Date: 20261118T185845Z\r\n\r\n"
    )

    assert sign_frame(URL, MESSAGE, LONG_LIVED, region="us-east-1", now=NOW) == head + MESSAGE


def test_a_frame_of_temporary_credentials_is_verified_and_bound_to_its_session():
    verifier = Verifier({"ASIA": TEMPORARY}.get, services={"ecs"})
    headers, message = split_frame(sign_frame(URL, MESSAGE, TEMPORARY, region="r-1", now=NOW))
    target = target_of(URL)

    assert list(headers) == ["Authorization", "Host", "X-Amz-Date", "X-Amz-Security-Token"]
    verified = verifier.verify("GET", target.path, target.query, headers.items(), message, NOW)
    assert verified == Verified("ASIA", "r-1", "ecs")
    with pytest.raises(SignatureRefused):
        verifier.verify("GET", target.path, target.query + "0", headers.items(), message, NOW)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("wss://Ecs-A.example.com/ws?b=1&a=%2F", Target("ecs-a.example.com", "/ws", "b=1&a=%2F")),
        ("https://h:443", Target("h", "/", "")),
        ("ws://h:80/x", Target("h", "/x", "")),
        ("ws://h:443/x", Target("h:443", "/x", "")),
        ("http://[::1]:7070/", Target("[::1]:7070", "/", "")),
    ],
)
def test_the_host_is_the_one_a_client_sends(url, target):
    assert target_of(url) == target


@pytest.mark.parametrize("url", ["ftp://h/", "h:7070", "/ws", "http://"])
def test_other_urls_are_not_signed(url):
    with pytest.raises(ValueError, match="cannot sign"):
        target_of(url)
