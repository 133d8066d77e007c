"""Calls for what a task needs before it starts: signed, tried again when that can help, and silent about values."""

from __future__ import annotations

import json
import time

import pytest
from aiohttp import web

from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring
from sexton.cloud.exchange import Unreachable
from sexton.cloud.services import Services
from sexton.cloud.sigv4_verify import Verifier
from sexton.cloud.transient import RetryPolicy
from sexton.kit.retry import Backoff
from sexton.wire.errors import EcsError

KEYS = Credentials("AKID", "secret", "token")
QUICK = RetryPolicy(Backoff(first=0.01, cap=0.02), attempts=3)


def ring():
    return Keyring([Static(KEYS)])


class Desk:
    """A service that answers from a list, the last answer for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def answer(self, request):
        body = await request.read()
        self.requests.append((request, body))
        status, text, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=status, body=text, headers=headers)


def ok(value):
    return 200, json.dumps(value).encode(), {}


@pytest.fixture
async def services(session, serve):
    async def make(desk):
        endpoint = await serve(desk.answer)
        return Services(session, {"AWS_ENDPOINT_URL": endpoint}, retries=QUICK)

    return make


async def test_parameters_come_in_batches_of_ten_and_signed_for_their_region(services):
    desk = Desk(ok({"Parameters": [{"Name": "a", "ARN": "arn:a", "Value": "hunter2"}], "InvalidParameters": ["b"]}))
    found = await (await services(desk)).parameters("eu-west-1", [f"p{n}" for n in range(23)], ring())

    assert found.values == {"a": "hunter2", "arn:a": "hunter2"}
    assert "hunter2" not in repr(found)
    assert found.invalid == ("b", "b", "b")
    assert [len(json.loads(body)["Names"]) for _, body in desk.requests] == [10, 10, 3]
    request, body = desk.requests[0]
    assert json.loads(body)["WithDecryption"] is True
    assert request.headers["X-Amz-Target"] == "AmazonSSM.GetParameters"
    by = Verifier({KEYS.access_key_id: KEYS}.get, services={"ssm"}).verify(
        "POST", "/", "", request.headers.items(), body, time.time()
    )
    assert by.region == "eu-west-1"


async def test_what_may_pass_is_tried_again_and_a_no_is_not(services):
    passing = Desk((500, b"", {}), (400, b'{"__type":"ThrottlingException"}', {}), ok({"SecretString": "s"}))
    assert await (await services(passing)).secret("us-east-1", "n", ring()) == "s"
    assert len(passing.requests) == 3

    final = Desk((400, b'{"__type":"ResourceNotFoundException","Message":"no such"}', {}))
    with pytest.raises(EcsError, match="ResourceNotFoundException: no such"):
        await (await services(final)).secret("us-east-1", "n", ring())
    assert len(final.requests) == 1


async def test_an_answer_that_cannot_be_read_is_not_repeated_in_the_error(services):
    desk = Desk((200, b'{"SecretString": "hunter2"', {}))
    with pytest.raises(Unreachable) as caught:
        await (await services(desk)).secret("us-east-1", "n", ring())

    assert "hunter2" not in str(caught.value)


async def test_an_object_is_fetched_from_the_region_its_bucket_is_in(services):
    moved = (301, b"<Error><Code>PermanentRedirect</Code></Error>", {"x-amz-bucket-region": "eu-north-1"})
    desk = Desk(moved, (200, b"A=1", {}))
    assert await (await services(desk)).object("us-east-1", "bucket", "dir/a b.env", ring()) == b"A=1"

    request, _ = desk.requests[1]
    assert request.raw_path == "/bucket/dir/a%20b.env"
    assert "/eu-north-1/s3/" in request.headers["Authorization"]


async def test_a_bucket_that_sends_elsewhere_for_ever_is_an_error(services):
    desk = Desk(
        (301, b"<Error><Code>PermanentRedirect</Code></Error>", {"x-amz-bucket-region": "eu-north-1"}),
        (301, b"<Error><Code>PermanentRedirect</Code></Error>", {"x-amz-bucket-region": "us-east-1"}),
    )
    with pytest.raises(EcsError, match="PermanentRedirect"):
        await (await services(desk)).object("us-east-1", "bucket", "k", ring())


async def test_a_registry_token_is_a_user_and_a_password(services):
    answer = {"authorizationData": [{"authorizationToken": "QVdTOnB3", "expiresAt": 9.5, "proxyEndpoint": "https://r"}]}
    token = await (await services(Desk(ok(answer)))).registry_token("us-east-1", "1", ring())

    assert (token.user, token.password, token.proxy, token.expires_at) == ("AWS", "pw", "https://r", 9.5)
    assert "pw" not in repr(token)


async def test_an_answer_without_a_token_is_an_error(services):
    with pytest.raises(Unreachable, match="holds no token"):
        await (await services(Desk(ok({})))).registry_token("us-east-1", "1", ring())
