"""The way in for forms: signed requests are served, everything else is refused in the service's own shape."""

from __future__ import annotations

import asyncio
import time
import xml.etree.ElementTree as ET
from urllib.parse import urlencode

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from plane import ACCOUNT, REGION, open_plane
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.cloud.sigv4_verify import Verifier
from sexton.control.query.door import SERVICES, QueryDoor
from sexton.control.records import KeyRecord

KEY = Credentials("AKSXEXAMPLE", "secret")
NOT_SIGNED = {"Authorization": ""}


@pytest.fixture
def ask(world):
    door = QueryDoor(world.context, Verifier({KEY.access_key_id: KEY}.get, services=tuple(SERVICES)))

    async def send(fields, *, service="sts", key=KEY, changes=None, sent=None, now=None):
        body = urlencode(fields).encode()
        headers = {"Host": "h", "Content-Type": "application/x-www-form-urlencoded"}
        now = time.time() if now is None else now
        headers |= sign("POST", "/", "", headers, body, key, region=REGION, service=service, now=now)
        headers |= changes or {}
        reply = await door.serve("/", list(headers.items()), body if sent is None else sent)
        return reply.status, ET.fromstring(reply.body)

    return send


def found(root, tag):
    return next((one.text for one in root.iter() if one.tag.rpartition("}")[2] == tag), None)


async def test_who_asks_is_told_who_it_is(ask):
    status, root = await ask({"Action": "GetCallerIdentity", "Version": "2011-06-15"})

    assert status == 200
    assert found(root, "Account") == ACCOUNT
    assert found(root, "Arn") == f"arn:aws:iam::{ACCOUNT}:user/AKSXEXAMPLE"
    assert found(root, "RequestId")


@pytest.mark.parametrize(
    ("fields", "options", "status", "code"),
    [
        ({"Action": "Nonsense"}, {}, 400, "InvalidAction"),
        ({}, {}, 400, "MissingAction"),
        ({"Action": "GetCallerIdentity", "Bogus": "1"}, {}, 400, "UnknownParameter"),
        ({"Action": "GetCallerIdentity"}, {"changes": NOT_SIGNED}, 403, "MissingAuthenticationToken"),
        ({"Action": "GetCallerIdentity"}, {"sent": b"Action=Other"}, 403, "SignatureDoesNotMatch"),
        ({"Action": "GetCallerIdentity"}, {"key": Credentials("OTHER", "x")}, 403, "InvalidClientTokenId"),
        ({"Action": "GetCallerIdentity"}, {"service": "s3"}, 403, "SignatureDoesNotMatch"),
        ({"Action": "GetCallerIdentity"}, {"now": time.time() - 7200}, 403, "SignatureDoesNotMatch"),
    ],
)
async def test_what_is_wrong_is_said_in_the_services_shape(ask, fields, options, status, code):
    answered, root = await ask(fields, **options)

    assert (answered, found(root, "Code")) == (status, code)
    assert found(root, "Message") and found(root, "RequestId")
    assert root.tag == "ErrorResponse"


async def test_an_unforeseen_failure_is_the_services_and_logged(ask, world, caplog, monkeypatch):
    monkeypatch.setattr("sexton.control.query.door.authority.authorize", lambda *_: 1 / 0)

    status, root = await ask({"Action": "GetCallerIdentity"})

    assert (status, found(root, "Code")) == (500, "InternalFailure")
    assert "ZeroDivisionError" in caplog.text


async def test_an_agents_key_may_ask_who_it_is(ask, world):
    record = KeyRecord(access_key_id="AKSXEXAMPLE", secret_access_key="secret", role="agent", created_at=1.0)
    await world.records.commit([], [world.records.put(world.records.keys, record, "AKSXEXAMPLE")])

    assert (await ask({"Action": "GetCallerIdentity"}))[0] == 200


async def test_boto3_takes_the_answers_as_stss(tmp_path):
    async with open_plane(tmp_path) as plane:

        def ask(secret):
            client = boto3.client(
                "sts",
                region_name=REGION,
                endpoint_url=f"http://{plane.host}",
                aws_access_key_id=plane.key.access_key_id,
                aws_secret_access_key=secret,
                config=Config(retries={"max_attempts": 0}),
            )
            try:
                return client.get_caller_identity()
            except ClientError as error:
                return error.response

        good = await asyncio.to_thread(ask, plane.key.secret_access_key)
        bad = await asyncio.to_thread(ask, "wrong")

    assert good["Account"] == ACCOUNT
    assert bad["Error"]["Code"] == "SignatureDoesNotMatch"
    assert bad["ResponseMetadata"]["HTTPStatusCode"] == 403
