"""What the engine's driver hands to the relay is delivered once and in order, whoever dies or stands still between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from sexton.agent.logs import delivery, spool
from sexton.agent.logs.driver import NoWay
from sexton.agent.logs.keeper import said_in
from sexton.agent.logs.relay import Room
from sexton.agent.logs.relay import Way as Files
from sexton.agent.logs.ways import Ways
from sexton.cloud.credentials import Credentials
from sexton.cloud.logs import LogsClient

pytestmark = pytest.mark.timeout(60)


class Service:
    """A destination: what it took, and how it answers."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.batches: list[dict[str, object]] = []
        self.keys: list[str] = []
        self.groups: dict[str, set[str]] = {"/g": set()}
        self.broken = 0
        self.refuse: tuple[str, str] | None = None
        self.url = ""

    async def __call__(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        body = json.loads(await request.read())
        self.calls.append(operation)
        self.keys.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        if self.broken:
            return web.Response(status=503)
        group, stream = body["logGroupName"], body.get("logStreamName")
        if operation == self.refuse[0] if self.refuse else False:
            return web.json_response({"__type": self.refuse[1], "message": "no"}, status=400)
        if operation == "CreateLogGroup":
            self.groups[group] = set()
        elif group not in self.groups:
            return web.json_response({"__type": "ResourceNotFoundException", "message": "no group"}, status=400)
        elif operation == "CreateLogStream":
            self.groups[group].add(stream)
        elif stream not in self.groups[group]:
            return web.json_response({"__type": "ResourceNotFoundException", "message": "no stream"}, status=400)
        else:
            self.batches.append(body)
        return web.json_response({})

    @property
    def lines(self) -> list[str]:
        return [one["message"] for batch in self.batches for one in batch["logEvents"]]

    @asynccontextmanager
    async def serving(self):
        runner = web.ServerRunner(web.Server(self))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


class Keys:
    def __init__(self, name: str) -> None:
        self.name = name

    async def current(self) -> Credentials:
        return Credentials(self.name, "secret")

    def forget(self, refused: Credentials) -> None: ...


@asynccontextmanager
async def ways_in(root: Path, over=lambda way: False, keys=lambda task: None):
    async with aiohttp.ClientSession() as http:
        ways = Ways(root, 1 << 20, LogsClient(http), {}, keys, Keys("OWN"), over, region="us-east-1", flush=True)
        ways.open()
        try:
            yield ways
        finally:
            await ways.close()


@pytest.fixture
def root(tmp_path):
    yield tmp_path / "logspool"
    said = said_in(tmp_path / "logspool")
    if said is not None:
        with suppress(ProcessLookupError):
            os.kill(said.pid, signal.SIGKILL)


async def until(true, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


def options(service, **more):
    return {
        "awslogs-group": "/g",
        "awslogs-stream": "s",
        "awslogs-endpoint": service.url,
    } | {name.replace("_", "-"): value for name, value in more.items()}


async def put(told, *lines, group="/g", stream="s"):
    """As the engine's driver calls."""
    now = int(time.time() * 1000)
    body = {"logEvents": [{"message": one, "timestamp": now} for one in lines], "logGroupName": group}
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            told["awslogs-endpoint"] + "/",
            json=body | {"logStreamName": stream, "sequenceToken": str(time.time_ns())},
            headers={"X-Amz-Target": "Logs_20140328.PutLogEvents"},
        ) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def test_lines_go_through_in_order_and_each_batch_has_a_name(root):
    async with Service().serving() as service, ways_in(root) as ways:
        told = await ways.prepare("arn:t", "main", options(service), None)
        assert service.groups["/g"] == {"s"}
        for number in range(5):
            assert (await put(told, f"{number}a", f"{number}b"))[0] == 200
        await until(lambda: len(service.lines) == 10)

        assert service.lines == [f"{number}{letter}" for number in range(5) for letter in "ab"]
        names = [batch["sequenceToken"] for batch in service.batches]
        assert len(set(names)) == 5 and all(one.startswith("sexton:") for one in names)
        again = await ways.prepare("arn:t", "main", options(service), None)
        assert again == told


async def test_keys_of_the_driver_mean_nothing_and_a_wrong_token_opens_nothing(root):
    async with Service().serving() as service, ways_in(root) as ways:
        told = await ways.prepare("arn:t", "main", options(service), None)
        address = "http://ecs" + told["awslogs-credentials-endpoint"]
        async with aiohttp.ClientSession() as http:
            async with http.get(address) as answer:
                assert (await answer.json(content_type=None))["AccessKeyId"] == "SEXTONRELAY"
            for wrong in (address[:-1] + "x", address.replace("/c/", "/c/../"), address.rpartition("/")[0]):
                async with http.get(wrong) as answer:
                    assert answer.status == 404
        stranger = {"awslogs-endpoint": told["awslogs-endpoint"][:-32] + "0" * 32}
        assert (await put(stranger, "x"))[1]["__type"] == "ResourceNotFoundException"


async def test_a_group_that_is_not_there_is_said_before_and_one_that_may_be_made_is_made(root):
    async with Service().serving() as service, ways_in(root) as ways:
        with pytest.raises(NoWay, match=r"failed to create Cloudwatch log stream: ResourceNotFoundException"):
            await ways.prepare("arn:t", "main", options(service, awslogs_group="/none"), None)
        with pytest.raises(NoWay, match="awslogs-group"):
            await ways.prepare("arn:t", "main", {}, None)
        await ways.prepare("arn:t", "main", options(service, awslogs_group="/new", awslogs_create_group="true"), None)
        assert service.groups["/new"] == {"s"}


async def test_a_stream_that_the_engine_names_is_made_when_its_first_line_comes(root):
    async with Service().serving() as service, ways_in(root) as ways:
        given = options(service)
        del given["awslogs-stream"]
        told = await ways.prepare("arn:t", "main", given, None)
        await put(told, "x", stream="id")
        await until(lambda: service.lines == ["x"])
        assert service.groups["/g"] == {"id"}


async def test_a_destination_that_is_away_costs_nothing_and_gets_all_when_it_is_back(root):
    service = Service()
    service.broken = 1
    async with service.serving(), ways_in(root) as ways:
        told = await ways.prepare("arn:t", "main", options(service), None)
        for number in range(20):
            await put(told, str(number))
        await until(lambda: ways.standing().waiting)
        assert ways.standing().held > 0 and service.lines == []
        service.broken = 0
        await until(lambda: len(service.lines) == 20)
        assert service.lines == [str(number) for number in range(20)]
        await until(lambda: not ways.standing().waiting)


async def test_what_an_earlier_agent_left_is_delivered_by_the_next_through_the_same_relay(root):
    service = Service()
    async with service.serving():
        async with ways_in(root) as ways:
            told = await ways.prepare("arn:t", "main", options(service), None)
            await put(told, "first")
            await until(lambda: service.lines == ["first"])
        relay = said_in(root)
        assert (await put(told, "while nobody was there"))[0] == 200
        async with ways_in(root) as ways:
            await until(lambda: len(service.lines) == 2)
            assert said_in(root) == relay
            assert await ways.prepare("arn:t", "main", options(service), None) == told


async def test_a_relay_that_is_killed_is_replaced_at_its_port_and_loses_nothing(root):
    async with Service().serving() as service, ways_in(root) as ways:
        told = await ways.prepare("arn:t", "main", options(service), None)
        for number in range(3):
            await put(told, str(number))
            before = said_in(root)
            os.kill(before.pid, signal.SIGKILL)
            assert (await put(told, f"{number} again"))[0] == 200  # it waits in the socket for the next relay
            assert said_in(root).port == before.port and said_in(root).pid != before.pid
        await until(lambda: len(service.lines) == 6)
        assert service.lines == [text for number in range(3) for text in (str(number), f"{number} again")]


async def test_keys_of_the_execution_role_sign_and_the_last_ones_go_on_after_the_task(root):
    given = {"arn:t": Keys("ROLE")}
    async with Service().serving() as service, ways_in(root, keys=given.get) as ways:
        told = await ways.prepare("arn:t", "main", options(service), "ExecutionRole")
        other = await ways.prepare("arn:u", "main", options(service, awslogs_stream="u"), None)
        await put(told, "x")
        await until(lambda: service.lines == ["x"])
        assert service.keys[-1] == "ROLE"
        given.clear()
        await put(told, "y")
        await until(lambda: service.lines == ["x", "y"])
        assert service.keys[-1] == "ROLE"
        await put(other, "z", stream="u")
        await until(lambda: len(service.lines) == 3)
        assert service.keys[-1] == "OWN"


async def test_a_batch_that_will_never_be_taken_is_left_out_and_counted(root):
    async with Service().serving() as service, ways_in(root) as ways:
        told = await ways.prepare("arn:t", "main", options(service), None)
        service.refuse = ("PutLogEvents", "InvalidParameterException")
        await put(told, "a", "b")
        await until(lambda: ways.standing().refused == 2)
        service.refuse = None
        await put(told, "c")
        await until(lambda: service.lines == ["c"])


async def test_a_way_that_is_over_goes_with_all_it_had(root, monkeypatch):
    monkeypatch.setattr(delivery, "LINGER_SECONDS", 0.1)
    monkeypatch.setattr(delivery, "LOOK_SECONDS", 0.1)
    ended: list[str] = []
    async with Service().serving() as service, ways_in(root, over=lambda way: way.task in ended) as ways:
        told = await ways.prepare("arn:t", "main", options(service), None)
        await put(told, "x")
        await asyncio.sleep(0.3)
        assert list(root.glob("*/way.json"))
        ended.append("arn:t")
        await until(lambda: not list(root.glob("*/way.json")))
        assert service.lines == ["x"]
        assert (await put(told, "late"))[0] == 400


async def test_the_relay_ends_when_its_directory_goes(root, tmp_path, monkeypatch):
    async with Service().serving() as service, ways_in(root) as ways:
        await ways.prepare("arn:t", "main", options(service), None)
    pid = said_in(root).pid
    root.rename(tmp_path / "away")
    await until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(), 15)


def body(text):
    event = {"message": text, "timestamp": 1}
    return json.dumps({"logEvents": [event, event]}, separators=(",", ":")).encode()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / ("a" * 32)
    made.mkdir()
    (made / spool.LOCK).touch()
    (made / spool.WAY).touch()
    return made


def frames(folder):
    from sexton.kit.frames import read_frames

    return [one.payload for number in spool.files_of(folder) for one in read_frames(spool.file_path(folder, number))]


def test_what_finds_no_room_is_counted_and_marked_where_it_is_missing(tmp_path, folder):
    way = Files(folder, Room(tmp_path, 250))
    for text in ("x" * 50, "y" * 50, "z" * 50):
        way.add(body(text))
    assert len(frames(folder)) == 1
    assert (tmp_path / spool.DROPPED).read_text().split()[0] == "4"
    for number in spool.files_of(folder):
        spool.file_path(folder, number).unlink()  # it was delivered
    way.add(body("w"))
    gap, batch = frames(folder)
    assert gap.split()[0] == b"G4" and abs(int(gap.split()[1]) / 1000 - time.time()) < 60
    assert batch == b"B" + body("w")
    assert Room(tmp_path, 250)._lines == 4


def test_a_batch_that_comes_again_after_its_answer_was_lost_is_taken_once(tmp_path, folder):
    first = Files(folder, Room(tmp_path, 1 << 20))
    first.add(body("a"))
    second = Files(folder, Room(tmp_path, 1 << 20))  # another process, which answers the driver's second try
    second.add(body("a"))
    second.add(body("a"))  # and the same lines once more, which are others
    assert frames(folder) == [b"B" + body("a")] * 2


def test_one_relay_has_the_place(tmp_path):
    root = tmp_path / "spool"
    root.mkdir()
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "sexton.agent.logs.relay",
                "--root",
                root,
                "--handle",
                str(one.fileno()),
                "--bound",
                "1",
            ],
            pass_fds=(one.fileno(),),
        )
        for one in listeners
    ]
    try:
        deadline = time.monotonic() + 20
        while all(one.poll() is None for one in started) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert sorted(str(one.poll()) for one in started) == ["3", "None"]
    finally:
        for one in started:
            one.terminate()
            assert one.wait(10) in (0, 3)
        for one in listeners:
            one.close()
