"""Credentials over the link: what is asked, what is sent along, and how every trouble ends in time."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime

import pytest
from aiohttp import web

from sexton.cloud.credential_chain import agent_keyring
from sexton.cloud.credential_endpoints import TOTAL_TIMEOUT, ContainerEndpoint, InstanceMetadata
from sexton.cloud.credentials import Credentials, NoCredentials, Unavailable

END = datetime(2026, 11, 18, 20, 0, tzinfo=UTC).timestamp()
DOCUMENT = {
    "Code": "Success",
    "AccessKeyId": "ASIA",
    "SecretAccessKey": "the-secret",
    "Token": "the-token",
    "Expiration": "2026-11-18T20:00:00Z",
}
EXPECTED = Credentials("ASIA", "the-secret", "the-token", END)


async def refused(provider):
    with pytest.raises(Unavailable) as caught:
        await provider.fetch()
    assert "the-secret" not in str(caught.value)
    return caught.value


def instance(*, roles="host-role", document=DOCUMENT, put=200, get=200):
    """A metadata service of the second version: no answer without the token it gave."""

    async def handle(request):
        if request.method == "PUT":
            assert request.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
            return web.Response(text="session-1", status=put)
        if request.headers.get("X-aws-ec2-metadata-token") != "session-1":
            return web.Response(status=401)
        if get != 200:
            return web.Response(status=get)
        if request.path == "/latest/meta-data/iam/security-credentials/":
            return web.Response(text=roles)
        assert request.path == "/latest/meta-data/iam/security-credentials/host-role"
        return web.json_response(document)

    return handle


async def test_instance_role(session, serve):
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": await serve(instance()) + "/"}

    assert (await InstanceMetadata(environ, session).fetch()).credentials == EXPECTED


@pytest.mark.parametrize(
    ("service", "says", "may_heal"),
    [
        (instance(get=404), "the instance has no role", False),
        (instance(roles=""), "the instance has no role", False),
        (instance(put=403), "answered 403", False),
        (instance(put=503), "answered 503", True),
        (instance(get=429), "answered 429", True),
        (instance(document={"Code": "AssumeRoleUnauthorizedAccess"}), "AssumeRoleUnauthorizedAccess", True),
        (instance(document=DOCUMENT | {"Expiration": "soon"}), "Expiration", False),
        (instance(document=DOCUMENT | {"AccessKeyId": None}), "without AccessKeyId", False),
        (instance(document=["the-secret"]), "not credentials", False),
        (instance(document={"x": "y" * 70_000}), "more than", False),
    ],
)
async def test_instance_troubles_have_a_reason(session, serve, service, says, may_heal):
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": await serve(service)}

    unavailable = await refused(InstanceMetadata(environ, session))

    assert says in unavailable.reason
    assert unavailable.may_heal is may_heal


async def test_no_call_is_made_when_metadata_is_disabled(session, serve):
    asked = []

    async def handle(request):
        asked.append(request.path)
        return web.Response()

    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": await serve(handle), "AWS_EC2_METADATA_DISABLED": "TRUE"}

    assert (await refused(InstanceMetadata(environ, session))).reason == "AWS_EC2_METADATA_DISABLED is true"
    assert asked == []


async def test_an_address_that_refuses_or_never_answers_is_given_up_in_time(session, serve):
    async def never(request):
        await asyncio.Event().wait()

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    mute = await serve(never)
    began = time.monotonic()
    outcomes = await asyncio.gather(
        refused(InstanceMetadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": nobody}, session)),
        refused(InstanceMetadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": mute}, session)),
        refused(ContainerEndpoint({"AWS_CONTAINER_CREDENTIALS_FULL_URI": mute}, session)),
    )

    assert time.monotonic() - began < TOTAL_TIMEOUT + 1
    assert "cannot reach" in outcomes[0].reason
    assert "no answer within 3 s" in outcomes[1].reason
    assert [outcome.may_heal for outcome in outcomes] == [False, False, True]


def container(request_log):
    async def handle(request):
        request_log.append((request.path_qs, request.headers.get("Authorization")))
        return web.json_response(DOCUMENT)

    return handle


async def test_container_endpoint_by_relative_path(session, serve):
    asked = []
    environ = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/abc?x=1"}
    provider = ContainerEndpoint(environ, session, address=await serve(container(asked)))

    assert (await provider.fetch()).credentials == EXPECTED
    assert asked == [("/v2/credentials/abc?x=1", None)]


async def test_container_endpoint_by_url_with_a_token_from_a_file_read_each_time(session, serve, tmp_path):
    asked = []
    path = tmp_path / "token"
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": await serve(container(asked)) + "/creds",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(path),
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "not this one",
    }
    provider = ContainerEndpoint(environ, session)
    for token in ("first", "second"):
        path.write_text(token + "\n")
        await provider.fetch()

    assert asked == [("/creds", "first"), ("/creds", "second")]
    path.unlink()
    assert str(path) in (await refused(provider)).reason


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://example.com/", "must be https"),
        ("http://10.0.0.1/", "must be https"),
        ("ftp://localhost/", "must be https"),
        ("file:///etc/passwd", "must be https"),
        ("x", "must be https"),
        ("http://[", "is not a URL"),
    ],
)
async def test_container_endpoint_elsewhere_must_be_https(session, url, says):
    environ = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}

    assert says in (await refused(ContainerEndpoint(environ, session))).reason


async def test_container_token_that_would_break_the_header_is_not_sent(session):
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "a\r\nHost: evil",
    }

    assert "not fit for a header" in (await refused(ContainerEndpoint(environ, session))).reason


async def test_a_redirect_does_not_carry_the_token_elsewhere(session, serve):
    asked = []
    elsewhere = await serve(container(asked))

    async def handle(request):
        raise web.HTTPFound(elsewhere)

    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": await serve(handle),
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "token",
    }

    assert "answered 302" in (await refused(ContainerEndpoint(environ, session))).reason
    assert asked == []


async def test_the_agents_order(session, serve, tmp_path):
    """Each place is found in its turn: what comes earlier is taken away step by step."""
    shared, rotating, keys = tmp_path / "shared", tmp_path / "rotating", tmp_path / "keys"
    shared.write_text("[default]\naws_access_key_id=SHARED\naws_secret_access_key=s\n")
    rotating.write_text("[default]\naws_access_key_id=ROTATING\naws_secret_access_key=s\n")
    keys.write_text('{"access_key_id": "KEYS", "secret_access_key": "s"}')
    keys.chmod(0o600)
    environ = {
        "AWS_ACCESS_KEY_ID": "ENV",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_SHARED_CREDENTIALS_FILE": str(shared),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": await serve(
            instance(document=DOCUMENT | {"Expiration": "2100-01-01T00:00:00Z"})
        ),
    }

    async def found(*, external=False, keys_file=None):
        ring = agent_keyring(session, environ=environ, external=external, keys_file=keys_file, rotating_file=rotating)
        return (await ring.current()).access_key_id

    assert await found(keys_file=keys) == "KEYS"
    assert await found() == await found(external=True) == "ENV"
    del environ["AWS_ACCESS_KEY_ID"]
    assert (await found(), await found(external=True)) == ("SHARED", "ROTATING")
    shared.unlink()
    assert (await found(), await found(external=True)) == ("ASIA", "ROTATING")
    environ["AWS_EC2_METADATA_DISABLED"] = "true"
    assert await found() == "ROTATING"
    rotating.unlink()
    with pytest.raises(NoCredentials) as caught:
        await found()
    assert [attempt.source for attempt in caught.value.tried] == [
        "environment", "shared file", "container endpoint", "instance metadata", "rotating file",
    ]  # fmt: skip
    assert "\n" not in str(caught.value)
