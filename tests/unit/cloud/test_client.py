"""A call is signed, answered with its structure, or fails with an error that says what to do."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web

from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring
from sexton.cloud.sigv4_verify import Verifier
from sexton.wire.ecs import Cluster, CreateClusterRequest, CreateClusterResponse, ListClustersRequest
from sexton.wire.errors import ClientException, EcsError, InternalFailure, ThrottlingException

LONG_LIVED = Credentials("AKID", "secret")
TEMPORARY = Credentials("ASIA", "secret", "token")


def client(endpoint, session, credentials=LONG_LIVED):
    return EcsClient(endpoint, "us-east-1", Keyring([Static(credentials)]), session)


def answer(body, status=200, **headers):
    async def handle(request):
        return web.Response(body=body, status=status, headers=headers)

    return handle


@pytest.mark.parametrize("credentials", [LONG_LIVED, TEMPORARY])
async def test_a_call_arrives_signed_and_its_answer_is_read(session, serve, credentials):
    seen = {}
    verifier = Verifier({credentials.access_key_id: credentials}.get, services={"ecs"})

    async def handle(request):
        path, _, query = request.raw_path.partition("?")
        body = await request.read()
        seen["by"] = verifier.verify(request.method, path, query, request.headers.items(), body, time.time())
        seen["target"], seen["type"] = request.headers["X-Amz-Target"], request.content_type
        seen["agent"], seen["body"] = request.headers["User-Agent"], body
        return web.json_response({"cluster": {"clusterName": "prod"}, "newer": 1})

    endpoint = await serve(handle)
    got = await client(endpoint, session, credentials).call(
        "CreateCluster", CreateClusterRequest(cluster_name="prod"), CreateClusterResponse
    )

    assert got == CreateClusterResponse(cluster=Cluster(cluster_name="prod"))
    assert seen["by"].access_key == credentials.access_key_id
    assert seen["target"] == "AmazonEC2ContainerServiceV20141113.CreateCluster"
    assert seen["type"] == "application/x-amz-json-1.1"
    assert seen["agent"].startswith("Sexton/")
    assert seen["body"] == b'{"clusterName":"prod"}'


@pytest.mark.parametrize(
    ("handler", "kind", "code", "message"),
    [
        (answer(b'{"__type":"ClientException","message":"Cluster not found."}', 400),
         ClientException, "ClientException", "Cluster not found."),
        (answer(b'{"__type":"com.amazonaws.ecs#NewException","Message":"m"}', 400), EcsError, "NewException", "m"),
        (answer(b'{"message":"slow"}', 400, **{"x-amzn-errortype": "ThrottlingException:http://x/"}),
         ThrottlingException, "ThrottlingException", "slow"),
        (answer(b"<html>", 502), InternalFailure, "InternalFailure", "the service answered HTTP 502"),
        (answer(b"", 404), EcsError, "UnknownError", "the service answered HTTP 404"),
        (answer(b"", 302, Location="http://127.0.0.1:1/"), EcsError, "UnknownError", "the service answered HTTP 302"),
    ],
)  # fmt: skip
async def test_an_error_answer_is_its_error(session, serve, handler, kind, code, message):
    with pytest.raises(EcsError) as caught:
        await client(await serve(handler), session).call("ListClusters", ListClustersRequest())

    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"clusterArns": 1}', b"\xff", b"[" * 100_000])
async def test_an_answer_of_something_else_says_where_it_came_from(session, serve, body):
    endpoint = await serve(answer(body))
    with pytest.raises(Unreachable, match="Check what listens there") as caught:
        await client(endpoint, session).call("ListClusters", ListClustersRequest())

    assert endpoint in str(caught.value)


async def test_nobody_there_and_a_broken_answer_are_unreachable(session):
    async def half(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
        writer.close()

    server = await asyncio.start_server(half, "127.0.0.1", 0)
    endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(Unreachable, match="cannot reach"):
        await client(endpoint, session).call("ListClusters", ListClustersRequest())
    server.close()
    await server.wait_closed()
    with pytest.raises(Unreachable, match=r": Connection refused\. Check endpoint and network$"):
        await client(endpoint, session).call("ListClusters", ListClustersRequest())


async def test_refused_credentials_are_asked_for_anew_once(session, serve):
    verifier = Verifier({"ASIA": TEMPORARY}.get, services={"ecs"})
    place = Static(LONG_LIVED)
    asked = []

    class Rotated:
        name = "rotated"

        async def fetch(self):
            return await place.fetch()

    async def handle(request):
        nonlocal place
        asked.append(request.headers["Authorization"].partition("Credential=")[2][:4])
        place = Static(TEMPORARY)
        try:
            verifier.verify("POST", "/", "", request.headers.items(), await request.read(), time.time())
        except Exception as refused:
            return web.json_response({"__type": refused.kind, "message": refused.message}, status=400)
        return web.json_response({"clusterArns": []})

    ecs = EcsClient(await serve(handle), "us-east-1", Keyring([Rotated()]), session)

    await ecs.call("ListClusters", ListClustersRequest())
    assert asked == ["AKID", "ASIA"]


async def test_credentials_refused_for_good_make_one_call(session, serve):
    asked = []

    async def handle(request):
        asked.append(request.path)
        return web.json_response({"__type": "UnrecognizedClientException", "message": "no"}, status=400)

    with pytest.raises(EcsError, match="UnrecognizedClientException"):
        await client(await serve(handle), session).call("ListClusters", ListClustersRequest())
    assert asked == ["/"]


async def test_structures_must_be_those_of_the_operation(session):
    ecs = client("http://127.0.0.1:1", session)

    with pytest.raises(TypeError, match="give CreateClusterRequest"):
        await ecs.call("CreateCluster", ListClustersRequest())
    with pytest.raises(TypeError, match="it answers ListClustersResponse"):
        await ecs.call("ListClusters", ListClustersRequest(), CreateClusterResponse)
