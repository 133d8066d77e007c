"""Whatever strangers send to an open port: an error in its own shape or a closed connection, and nothing else happens.

No traceback in the log, no hang, no growth, and everybody else is served meanwhile. The ports are those of ``up`` as
users run it: the API with both websocket paths, and the agent's socket file. Limits in time are tried in a control
plane with short ones, so that no test waits for a minute to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amazon_agent import AmazonAgent, Closed, frame, recorded_calls, recorded_frames
from engine import PrivateEngine
from node import Node, errors_of
from plane import open_plane
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.kit.listener import Limits

pytestmark = [pytest.mark.slow]

# Far more than any answer here takes; what has not been answered by then hangs.
ANSWER_SECONDS = 10.0
# Pages that the allocator keeps after a round of attacks; what leaks grows with every round.
MOST_GROWTH_KIB = 6 * 1024
TARGET = "AmazonEC2ContainerServiceV20141113.ListClusters"

Connect = Callable[[], socket.socket]


@pytest.fixture(scope="module")
def node(engine_session: PrivateEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("hostile"), engine_session.url) as node:
        yield node


@pytest.fixture
def port(node: Node) -> Connect:
    return lambda: socket.create_connection(("127.0.0.1", node.port), timeout=ANSWER_SECONDS)


@pytest.fixture
def agent_socket(node: Node) -> Connect:
    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(ANSWER_SECONDS)
        made.connect(str(node.root / "control" / "agent.sock"))
        return made

    return connect


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """During and after each test the service answers, and its log holds no traceback."""
    if "node" not in request.fixturenames:
        yield
        return
    node: Node = request.getfixturevalue("node")
    slowest = [0.0]
    done = threading.Event()

    def watch() -> None:
        client = node.ecs()
        while not done.is_set():
            began = time.monotonic()
            client.list_clusters()
            slowest[0] = max(slowest[0], time.monotonic() - began)
            done.wait(0.05)
        client.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    before = len(node.control.log)
    yield
    done.set()
    watcher.join()
    assert slowest[0] < ANSWER_SECONDS, "others had to wait"
    assert node.agent_is_connected()
    lines = node.control.log[before:]
    assert "Traceback" not in lines
    assert errors_of(lines) == []


def signed(
    body: bytes,
    key: Credentials,
    host: str,
    *,
    now: float | None = None,
    sent: bytes | None = None,
    target: str = TARGET,
    extra: str = "",
) -> bytes:
    """A request as a client sends it; ``sent`` replaces the body after signing."""
    headers = {"Host": host, "X-Amz-Target": target}
    headers |= sign("POST", "/", "", headers, body, key, region="us-east-1", service="ecs", now=now or time.time())
    sent = body if sent is None else sent
    headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST / HTTP/1.1\r\n{lines}{extra}Content-Length: {len(sent)}\r\n\r\n".encode() + sent


def key_of(node: Node) -> Credentials:
    found = node.credentials()
    return Credentials(found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"])


def exchange(connect: Connect, data: bytes, *, leave: bool = False, first: bool = False) -> bytes:
    """Send, and read until the other end closes, or until the ``first`` answer is there; ``leave`` before, as
    somebody who was cut off."""
    answer = b""
    with connect() as one, contextlib.suppress(ConnectionError):
        one.sendall(data)
        if leave:
            one.shutdown(socket.SHUT_WR)
        while part := one.recv(65536):
            answer += part
            if first and complete(answer):
                break
    return answer


def complete(data: bytes) -> bool:
    """Whether an answer is there to its end."""
    head, end, body = data.partition(b"\r\n\r\n")
    return bool(end) and len(body) >= length_of(head)


def length_of(head: bytes) -> int:
    fields = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    return int(fields[0]) if fields else 0


def answers(data: bytes) -> list[tuple[int, bytes]]:
    """The HTTP answers that were sent one behind the other."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = length_of(head)
        found.append((int(head.split()[1]), rest[:length]))
        data = rest[length:]
    return found


GET = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==\r\n"
)
_dice = random.Random(7)

# What begins well and does not end; the others must be answered or cut off without having to wait.
CUT_OFF = {
    "nothing": b"",
    "half a request line": b"POST / HT",
    "half a head": POST + b"X-Amz-Target: x\r\n",
    "half a body": POST + b"Content-Length: 100\r\n\r\n{",
    "a lone line end": b"\r\n\r\n\r\n",
    "a chunk without end": POST + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + b"a" * 1000,
}
ATTACKS = CUT_OFF | {
    "random bytes": _dice.randbytes(4096),
    "random bytes with lines": b"\r\n".join(_dice.randbytes(40) for _ in range(100)) + b"\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + _dice.randbytes(200),
    "nul bytes": b"\0" * 1000,
    "unknown method": b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n",
    "unknown version": b"GET / HTTP/9.9\r\nHost: h\r\n\r\n",
    "http 0.9": b"GET /\r\n\r\n",
    "http 1.0": b"GET /health HTTP/1.0\r\n\r\n",
    "no host": b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "a path that is none": b"GET http://[ HTTP/1.1\r\nHost: h\r\n\r\n",
    "a long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "a long header": GET + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": GET + b"".join(b"X-%d: y\r\n" % number for number in range(10_000)) + b"\r\n",
    "a header that is none": GET + b"no colon here\r\n\r\n",
    "a folded header": GET + b"X: a\r\n b\r\n\r\n",
    "bytes beyond ascii": GET + b"X-\xff: \xfe\xff\r\nAuthorization: \xc3\x28\r\n\r\n",
    "target beyond ascii": POST + b"X-Amz-Target: \xff\xfe\r\nContent-Length: 0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "length and chunks": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a length beyond all": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "chunks that are none": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "compressed body": POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "expects to be told": POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    "expects the impossible": POST + b"Expect: wonders\r\nContent-Length: 2\r\n\r\n{}",
    "pipelined garbage": POST + b"Content-Length: 0\r\n\r\n" + _dice.randbytes(2000),
    "a websocket of nobody's": b"GET /acs/ws HTTP/1.1\r\nHost: h\r\n" + UPGRADE + b"\r\n" + frame(b"{}"),
    "a websocket where none is": b"GET / HTTP/1.1\r\nHost: h\r\n" + UPGRADE + b"\r\n",
    "h2c": b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _dice.randbytes(100),
    "connect": b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "options of everything": b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
}


@pytest.mark.docker
@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_request_gets_an_error_of_the_api_or_nothing(port: Connect, name: str) -> None:
    for status, body in answers(exchange(port, ATTACKS[name], leave=name in CUT_OFF)):
        if status == 200:
            assert json.loads(body)["status"] == "ok"  # the health check serves everybody
        else:
            assert 400 <= status < 500, (status, body)
            error = json.loads(body)
            assert error.get("__type") or error.get("type"), body


@pytest.mark.docker
@pytest.mark.parametrize("name", ATTACKS)
def test_the_agents_socket_takes_it_as_calmly(agent_socket: Connect, name: str) -> None:
    for status, body in answers(exchange(agent_socket, ATTACKS[name], leave=name in CUT_OFF, first=True)):
        assert status < 500, (status, body)


@pytest.mark.docker
def test_strangers_cannot_fill_the_log(node: Node, port: Connect) -> None:
    before = len(node.control.log)
    for _ in range(20):
        for data in (ATTACKS["a websocket of nobody's"], ATTACKS["random bytes with lines"], POST + b"\r\n"):
            exchange(port, data)
    lines = [line for line in node.control.log[before:].splitlines() if "agent" not in line.split("msg=")[0]]
    assert len(lines) < 10, lines


@pytest.mark.docker
def test_requests_that_are_not_proven_or_not_understood(node: Node, port: Connect) -> None:
    key, host, now = key_of(node), f"127.0.0.1:{node.port}", time.time()
    deep = b'{"tasks":' + b"[" * 200_000
    run = "AmazonEC2ContainerServiceV20141113.RunTask"
    cases = [
        (signed(b"{}", key, host), 200, ""),
        (signed(b"{}", key, host, sent=b'{"maxResults": 1}'), 400, "InvalidSignatureException"),
        (signed(b"{}", Credentials(key.access_key_id, "wrong"), host), 400, "InvalidSignatureException"),
        (signed(b"{}", Credentials("AKSXNOBODY", "wrong"), host), 400, "UnrecognizedClientException"),
        (signed(b"{}", key, host, now=now - 3600), 400, "InvalidSignatureException"),
        (signed(b"{}", key, host, now=now + 3600), 400, "InvalidSignatureException"),
        (signed(b"{}", key, host, extra="X-Amz-Security-Token: x\r\n"), 400, "InvalidSignatureException"),
        (signed(b"{}", key, host, target="Nonsense"), 400, "UnknownOperationException"),
        (signed(b"{}", key, host, target=run.replace("RunTask", "Nonsense")), 400, "UnknownOperationException"),
        (POST + f"X-Amz-Target: {TARGET}\r\nContent-Length: 2\r\n\r\n{{}}".encode(), 400, "MissingAuthenticationToken"),
        (signed(deep, key, host, target=run), 400, "SerializationException"),
        (signed(b'{"a":' * 100_000, key, host, target=run), 400, "SerializationException"),
        (signed(b'{"cluster": "\xff\xfe"}', key, host, target=run), 400, "SerializationException"),
        (signed(b"\0", key, host), 400, "SerializationException"),
        (signed(b'{"count": 1e999}', key, host, target=run), 400, "SerializationException"),
        (signed(b'{"taskDefinition": "' + b"a" * 500_000 + b'"}', key, host, target=run), 400, "ClientException"),
    ]
    for data, status, code in cases:
        ((found, body),) = answers(exchange(port, data))
        assert found == status, body
        assert not code or json.loads(body)["__type"].startswith(code), body
        assert len(body) < 10_000, "a large request must not get a large refusal"


@pytest.mark.docker
def test_huge_bodies_are_refused_before_they_are_held(node: Node, port: Connect) -> None:
    """Declared or in chunks, 100 MB: the answer comes at once, and the memory is never taken."""
    before = resident_kib(node)
    declared = POST + b"Content-Length: 104857600\r\n\r\n"
    with port() as one:
        one.sendall(declared)
        assert one.recv(65536).startswith(b"HTTP/1.1 413 ")
    part = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    with port() as one, contextlib.suppress(ConnectionError):
        one.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(1600):
            one.sendall(part)
    assert resident_kib(node) - before < 16 * 1024


@pytest.mark.docker
@pytest.mark.timeout(60)
def test_a_thousand_connections_at_once(node: Node, port: Connect) -> None:
    """Silent ones, half a request each, or a whole one: all who ask get their answer."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    host, key = f"127.0.0.1:{node.port}", key_of(node)
    everyone = [port() for _ in range(1000)]
    try:
        for number, one in enumerate(everyone):
            one.sendall([b"", b"POST / HTTP/1.1\r\nHost: h\r\nX", signed(b"{}", key, host)][number % 3])
        for one in everyone[2::3]:
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
    finally:
        for one in everyone:
            one.close()


@pytest.mark.docker
def test_pipelining_without_end_is_served_at_the_readers_pace(node: Node, port: Connect) -> None:
    """Somebody who asks for ever and reads nothing must not fill the memory."""
    before = resident_kib(node)
    data = (b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n") * 1000
    with port() as one:
        one.settimeout(1.0)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(2000):
                one.sendall(data)
        assert resident_kib(node) - before < 16 * 1024


def resident_kib(node: Node) -> int:
    status = Path(f"/proc/{node.control.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def open_files(node: Node) -> int:
    return len(list(Path(f"/proc/{node.control.pid}/fd").iterdir()))


@pytest.mark.docker
@pytest.mark.timeout(120)
def test_nothing_grows(node: Node, port: Connect, agent_socket: Connect) -> None:
    key, host = key_of(node), f"127.0.0.1:{node.port}"

    def round_of_attacks() -> None:
        for name, data in ATTACKS.items():
            exchange(port, data, leave=name in CUT_OFF)
            exchange(agent_socket, data, leave=name in CUT_OFF, first=True)
        for number in range(200):  # each of another stranger, in another region, at another time
            stranger = Credentials(f"AKSX{number}{_dice.random()}", "x")
            exchange(port, signed(b"{}", stranger, host, now=time.time() - number))
            exchange(port, signed(b'{"a":' * 1000, key, host))

    for _ in range(2):
        round_of_attacks()
    before, files = resident_kib(node), open_files(node)
    for _ in range(4):
        round_of_attacks()

    assert resident_kib(node) - before < MOST_GROWTH_KIB
    deadline = time.monotonic() + ANSWER_SECONDS
    while open_files(node) > files + 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert open_files(node) <= files + 4


FRAMES = {
    "garbage": _dice.randbytes(500),
    "oversized": b"\x81\xff" + struct.pack("!Q", 1 << 40) + b"mask" + b"a" * 1000,
    "three megabytes": frame(b"a" * (3 << 20)),
    "three megabytes in pieces": frame(b"a", final=False)
    + b"".join(frame(b"a" * (1 << 18), 0, final=False) for _ in range(12)),
    "a piece of nothing": frame(b"a", 0),
    "an unknown kind": frame(b"a", 5),
    "a long ping": b"\x89\xfe" + struct.pack("!H", 200) + b"mask" + b"a" * 200,
    "a strange close": frame(struct.pack("!H", 999), 8),
    "no utf-8": frame(b"\xff\xfe\xfd"),
    "reserved bits": b"\xf1\x82maskaa",
}
MESSAGES = {
    "no json": "hello",
    "no envelope": "[]",
    "nested": '{"type":"AckRequest","message":' + "[" * 100_000,
    "wrong kinds": '{"type":"AckRequest","message":{"messageId":7}}',
    "unknown": '{"type":"Unheard","message":{"x":1}}',
    "of the other side": '{"type":"PayloadMessage","message":{"tasks":[]}}',
    "of nothing": '{"type":"TaskStopVerificationMessage","message":{"stopCandidates":[{"taskArn":"x"},{}]}}',
    "nulls": '{"type":"HeartbeatAckRequest","message":null}',
}


async def hostile_agent(node: Node) -> AmazonAgent:
    """A member with a key that turns bad."""
    agent = AmazonAgent(f"127.0.0.1:{node.port}", key_of(node))
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0])
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    return agent


@pytest.fixture
def member(node: Node) -> Iterator[Callable[[], AmazonAgent]]:
    made = []

    async def join() -> AmazonAgent:
        made.append(await hostile_agent(node))
        return made[-1]

    yield join
    for agent in {one.instance for one in made}:
        node.ecs().deregister_container_instance(containerInstance=agent, force=True)


@pytest.mark.docker
@pytest.mark.parametrize("which", ["acs", "tcs"])
async def test_what_is_no_frame_ends_the_websocket(member, which: str) -> None:
    agent = await member()
    for name, data in FRAMES.items():
        async with await agent.open(which) as ws:
            ws.writer.write(data)
            if name in ("garbage", "oversized", "three megabytes in pieces"):
                with contextlib.suppress(OSError):  # it has been closed already
                    ws.writer.write_eof()
            with pytest.raises((Closed, asyncio.IncompleteReadError, ConnectionError)):
                while True:
                    await ws.receive(ANSWER_SECONDS)


@pytest.mark.docker
async def test_what_is_no_message_is_passed_over_on_acs(member) -> None:
    agent = await member()
    async with await agent.open("acs") as acs:
        for text in MESSAGES.values():
            await acs.send(text)
        await acs.send_message("TaskStopVerificationMessage", messageId="last", stopCandidates=[])
        while (await acs.expect("TaskStopVerificationAck")).get("messageId") != "last":
            pass


@pytest.mark.docker
async def test_what_is_not_signed_or_no_message_is_refused_on_tcs(member) -> None:
    agent = await member()
    real = recorded_frames("tcs", "PublishMetricsRequest", "agent")[0]
    head, _, body = real.partition("\r\n\r\n")
    async with await agent.open("tcs") as tcs:
        await tcs.expect("HeartbeatMessage")
        for text in (
            body,  # unsigned
            real,  # signed by another key, a while ago
            "X" * 100_000,
            head + "\r\n\r\n",
            "A: b\r\n\r\n" + body,
            "A: b\r\nA: b\r\n\r\n" + body,
            *MESSAGES.values(),
        ):
            await tcs.send(text)
            kind, message = await tcs.receive()
            assert kind == "BadRequestException", text
            assert len(message["message"]) < 10_000
        for text in MESSAGES.values():
            await tcs.replay_signed(head + "\r\n\r\n" + text[:1000])
            kind, _ = await tcs.receive()
            assert kind == "BadRequestException", text
        await tcs.replay_signed(real)
        assert (await tcs.receive())[0] == "AckPublishMetric"


# Limits in time and number, in a control plane whose limits are short.
SHORT = Limits(connections=20, idle=0.3, body=0.3)


async def ends(reader: asyncio.StreamReader) -> bytes:
    """All that is answered until the connection ends."""
    answer = b""
    async with asyncio.timeout(ANSWER_SECONDS):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                answer += part
    return answer


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One byte after the other, each long before any limit is over."""
    with contextlib.suppress(ConnectionError):
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: " + b"a" * 1000, b""),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" + b"a" * 900, b"408"),
    ],
)
async def test_slow_clients_are_let_go(tmp_path: Path, data: bytes, expected: bytes) -> None:
    async with open_plane(tmp_path, SHORT) as plane:
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        begin, _, rest = data.partition(b"\r\n\r\n")
        writer.write(begin + b"\r\n\r\n" if rest else begin[:20])
        slow = asyncio.ensure_future(drip(writer, rest or begin[20:]))
        answer = await ends(reader)
        slow.cancel()
        writer.close()
        assert answer.split(b" ")[1:2] == ([expected] if expected else []), answer
        if expected:
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["__type"] == "RequestTimeout"


async def test_a_body_whose_framing_breaks_later_is_an_error_of_the_api(tmp_path: Path) -> None:
    async with open_plane(tmp_path, SHORT) as plane:
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        await writer.drain()
        reader2, writer2 = await asyncio.open_connection("127.0.0.1", plane.port)
        writer2.write(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        await ends(reader2)  # by now the first has been read that far
        writer2.close()
        writer.write(b"zz\r\n")
        ((status, body),) = answers(await ends(reader))
        writer.close()
        # Which of the two depends on the HTTP library's parser: one says so at once, one just never goes on.
        error = json.loads(body)["__type"]
        assert (status, error) in ((400, "SerializationException"), (408, "RequestTimeout"))


async def test_a_kept_connection_ends_when_nothing_more_is_asked(tmp_path: Path) -> None:
    async with open_plane(tmp_path, SHORT) as plane:
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\nGET /health HT")
        assert (await ends(reader)).count(b"HTTP/1.1 200") == 1
        writer.close()


async def test_connections_above_the_limit_are_dropped_and_the_others_served(tmp_path: Path) -> None:
    async with open_plane(tmp_path, SHORT._replace(idle=30.0)) as plane:
        kept = [await asyncio.open_connection("127.0.0.1", plane.port) for _ in range(SHORT.connections)]
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        assert await ends(reader) == b""
        writer.close()
        for reader, writer in kept:
            writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await ends(reader)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await ends(reader)
        writer.close()
