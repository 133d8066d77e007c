"""The link's races and dead ends, forced one by one over real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from amazon_agent import AmazonAgent, Closed, recorded_calls
from plane import open_plane
from sexton.control.link import acs as acs_module
from sexton.core import render
from unit.control.world import Gate


@pytest.fixture
async def plane(tmp_path):
    async with open_plane(tmp_path) as made:
        yield made


@pytest.fixture
async def agent(plane):
    agent = AmazonAgent(plane.host, plane.key)
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0])
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    container = {"name": "main", "image": "bb", "memory": 8}
    await agent.call("RegisterTaskDefinition", family="web", networkMode="none", containerDefinitions=[container])
    return agent


async def connected(agent):
    answer = await agent.call("DescribeContainerInstances", containerInstances=[agent.instance])
    return answer["containerInstances"][0]["agentConnected"]


async def test_an_agent_that_comes_back_while_its_end_is_being_written_is_connected(agent, plane):
    async with await agent.open("acs") as first:
        await first.expect("HeartbeatMessage")
        gate = Gate(plane.control._store, "instances/")
    await gate.reached.wait()

    async with await agent.open("acs") as second:
        gate.opened.set()
        await second.expect("HeartbeatMessage")
        revision = plane.control._store.revision
        async with asyncio.timeout(10):  # the end of the first is written, and then the truth
            while plane.control._store.revision < revision + 1 or not await connected(agent):
                await asyncio.sleep(0.001)


async def test_a_payload_that_goes_unacknowledged_is_sent_again(agent, monkeypatch):
    monkeypatch.setattr(acs_module, "RESEND_AFTER", 0.05)
    monkeypatch.setattr("sexton.control.link.delivery.RESEND_AFTER", 0.05)
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        await agent.call("RunTask", taskDefinition="web")
        first, second = await acs.expect("PayloadMessage"), await acs.expect("PayloadMessage")
        assert first["tasks"] == second["tasks"]
        await acs.acknowledge(second)


async def test_an_agent_that_answers_no_heartbeat_is_let_go(agent, monkeypatch):
    monkeypatch.setattr(acs_module, "HEARTBEAT_SECONDS", 0.01)
    async with await agent.open("acs") as acs:
        with pytest.raises(Closed) as closed:
            await acs.expect("nothing more")
    assert closed.value.code == 1001


async def test_an_agent_that_stops_reading_is_let_go(agent, monkeypatch):
    """It must not hold its place for ever because nothing more can be sent to it."""
    monkeypatch.setattr("sexton.control.link.socket.SEND_SECONDS", 0.2)
    monkeypatch.setattr(acs_module, "HEARTBEAT_SECONDS", 0)
    monkeypatch.setattr(acs_module, "MISSED_HEARTBEATS", 10**9)
    async with await agent.open("acs") as acs:
        acs.writer.transport.pause_reading()
        acs.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with asyncio.timeout(15):
            while not await connected(agent):
                await asyncio.sleep(0.01)
            while await connected(agent):
                await asyncio.sleep(0.05)


async def test_a_delivery_that_fails_ends_the_connection_so_that_the_agent_comes_again(agent, monkeypatch, caplog):
    payload = render.payload

    def failing(*_):
        raise RuntimeError("a fault of ours")

    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        monkeypatch.setattr(render, "payload", failing)
        task = (await agent.call("RunTask", taskDefinition="web"))["tasks"][0]["taskArn"]
        with pytest.raises(asyncio.IncompleteReadError):
            await acs.expect("nothing more")
    monkeypatch.setattr(render, "payload", payload)
    async with await agent.open("acs") as acs:
        assert (await acs.expect("PayloadMessage"))["tasks"][0]["arn"] == task
    assert "background task failed" in caplog.text


async def test_more_tasks_than_one_message_takes_all_arrive(agent):
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        wanted = set()
        for _ in range(3):
            answer = await agent.call("RunTask", taskDefinition="web", count=10)
            wanted |= {task["taskArn"] for task in answer["tasks"]}
    told = set()
    async with await agent.open("acs") as acs:
        while told != wanted:
            payload = await acs.expect("PayloadMessage")
            assert len(payload["tasks"]) <= 10
            told |= {task["arn"] for task in payload["tasks"]}
            await acs.acknowledge(payload)
