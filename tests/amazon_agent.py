"""Amazon's agent as it was recorded, speaking again: its requests byte for byte, its frames, its headers.

Three things differ from the record, since they must: the ARNs that the control plane chose, the time, and therefore
the signatures, which cover the very headers that the recorded ones cover. HTTP and websocket are written by hand, so
that nothing is sent that the recorded agent did not send.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

SESSION = Path(__file__).parent / "data" / "session-basic.jsonl"
RECORDED_HOST = "127.0.0.1:7070"
RECORDED_INSTANCE = "arn:aws:ecs:us-east-1:123456789012:container-instance/default/c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
TARGET_PREFIX = "AmazonEC2ContainerServiceV20141113"
REGION = "us-east-1"

Json = dict[str, Any]
Headers = list[tuple[str, str]]


def record() -> list[Json]:
    """Everything that was recorded, in order."""
    return [json.loads(line) for line in SESSION.read_text().splitlines()]


def recorded_calls(operation: str) -> list[Json]:
    return [line for line in record() if line.get("op") == operation]


def recorded_frames(which: str, kind: str, sender: str) -> list[str]:
    """Frames of one message type, from the ``agent`` or the ``service``, as they were on the wire."""
    direction = {"agent": "ws-recv", "service": "ws-send"}[sender]
    lines = [line["data"] for line in record() if line["kind"] == direction and line.get("which") == which]
    return [text for text in lines if json.loads(text[text.index("{") :])["type"] == kind]


def recorded_messages(which: str, kind: str, sender: str) -> list[Json]:
    """The bodies of those frames."""
    return [json.loads(text[text.index("{") :])["message"] for text in recorded_frames(which, kind, sender)]


class Closed(Exception):
    """The other end closed the websocket, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Answer:
    """An HTTP answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Json:
        return json.loads(self.body)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(int(head[0].split()[1]), headers, body)


class AmazonAgent:
    """The recorded agent, at another control plane."""

    def __init__(self, host: str, key: Credentials) -> None:
        self.host = host
        self.key = key
        self.instance = RECORDED_INSTANCE

    def translate(self, text: str) -> str:
        """The record's words with this session's names in them."""
        for write in (str, quote_plus):
            text = text.replace(write(RECORDED_INSTANCE), write(self.instance))
        return text.replace(RECORDED_HOST, self.host)

    def _headers(self, recorded: list[list[str]], method: str, target: str, body: bytes) -> Headers:
        """The recorded headers in their order, with a signature of now over the same ones."""
        values = {name: self.translate(value) for name, value in recorded}
        if "Content-Length" in values:
            values["Content-Length"] = str(len(body))
        claim = values["Authorization"]
        covered = claim.split("SignedHeaders=")[1].split(",")[0].split(";")
        signed = {name: value for name, value in values.items() if name.lower() in covered and name != "X-Amz-Date"}
        path, _, query = target.partition("?")
        values |= sign(method, path, query, signed, body, self.key, region=REGION, service="ecs", now=time.time())
        return [(name, values[name]) for name, _ in recorded]

    async def replay(self, call: Json, changes: dict[str, str] | None = None) -> Answer:
        """Send a recorded API call; ``changes`` are texts to replace in its body."""
        body = self.translate(call["raw"])
        for old, new in (changes or {}).items():
            body = body.replace(old, new)
        return await self._post(call["headers"], body.encode())

    async def call(self, operation: str, **fields: Any) -> Json:
        """An API call of somebody's, in the form of the recorded ones."""
        template = recorded_calls("DiscoverPollEndpoint")[0]["headers"]
        target = f"{TARGET_PREFIX}.{operation}"
        headers = [[name, target if name == "X-Amz-Target" else value] for name, value in template]
        answer = await self._post(headers, json.dumps(fields).encode())
        assert answer.status == 200, answer.body
        return answer.json

    async def _post(self, recorded: list[list[str]], body: bytes) -> Answer:
        reader, writer = await asyncio.open_connection(*self.host.split(":"))
        try:
            write_head(writer, "POST / HTTP/1.1", self._headers(recorded, "POST", "/", body))
            writer.write(body)
            return await read_answer(reader)
        finally:
            writer.close()

    async def open(self, which: str, changes: dict[str, str] | None = None) -> AgentWebsocket:
        """Open ``acs`` or ``tcs`` as recorded; AssertionError with the refusal when it is refused."""
        line = next(line for line in record() if line["kind"] == "ws-open" and line["which"] == which)
        target = self.translate(line["path"])
        for old, new in (changes or {}).items():
            target = target.replace(old, new)
        reader, writer = await asyncio.open_connection(*self.host.split(":"), limit=1 << 22)
        write_head(writer, f"GET {target} HTTP/1.1", self._headers(line["headers"], "GET", target, b""))
        answer = await read_answer(reader)
        if answer.status != 101:
            writer.close()
            raise AssertionError(answer.status, answer.json)
        return AgentWebsocket(self, target, reader, writer)


class AgentWebsocket:
    """The agent's end of one websocket."""

    def __init__(
        self, agent: AmazonAgent, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._agent = agent
        self._target = target
        self._reader = reader
        self.writer = writer

    async def __aenter__(self) -> AgentWebsocket:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, text: str) -> None:
        """One text frame."""
        self.writer.write(frame(text.encode()))
        await self.writer.drain()

    async def send_message(self, kind: str, **message: Any) -> None:
        await self.send(json.dumps({"type": kind, "message": message}, separators=(",", ":")))

    async def replay_signed(self, recorded: str) -> None:
        """One recorded TCS frame, with its block of headers signed anew."""
        block, _, body = recorded.partition("\r\n\r\n")
        headers = [list(line.split(": ", 1)) for line in block.split("\r\n")]
        text = self._agent.translate(body)
        signed = self._agent._headers(headers, "GET", self._target, text.encode())
        await self.send("".join(f"{name}: {value}\r\n" for name, value in signed) + "\r\n" + text)

    async def receive(self, seconds: float = 10.0) -> tuple[str, Json]:
        """The next message's type and body; Closed when the other end is done."""
        async with asyncio.timeout(seconds):
            while True:
                opcode, data = await self._frame()
                if opcode == 8:
                    raise Closed(struct.unpack("!H", data[:2])[0] if data else 1005)
                if opcode == 1:
                    envelope = json.loads(data)
                    return envelope["type"], envelope["message"]

    async def expect(self, kind: str) -> Json:
        """The body of the next message of a type; what else comes is passed over."""
        while True:
            found, message = await self.receive()
            if found == kind:
                return message

    async def acknowledge(self, message: Json) -> None:
        """As recorded: AckRequest with the full ARNs."""
        recorded = json.loads(recorded_frames("acs", "AckRequest", "agent")[0])["message"]
        values = {name: self._agent.translate(value) for name, value in recorded.items()}
        await self.send_message("AckRequest", **(values | {"messageId": message["messageId"]}))

    async def _frame(self) -> tuple[int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        return first & 0x0F, await self._reader.readexactly(size)


def write_head(writer: asyncio.StreamWriter, line: str, headers: Headers) -> None:
    writer.write((line + "\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n").encode())


def frame(data: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """A masked websocket frame."""
    size = len(data)
    head = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    mask = os.urandom(4)
    pad = mask * (size // 4 + 1)
    masked = int.from_bytes(data, "big") ^ int.from_bytes(pad[:size], "big")
    return head + mask + masked.to_bytes(size, "big")
