"""PutMetricData in as few calls as its limits allow; a call whose answer is lost is told from one that never left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlencode

import aiohttp
import pytest
from aiohttp import web

from node import free_port
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Credentials
from sexton.cloud.monitoring import MOST_BYTES, MOST_METRICS, Lost, Monitoring, _fields, batches
from sexton.core.insights import Datum
from sexton.wire.errors import EcsError

KEYS = Credentials("AKID", "secret")
DATUM = Datum("CpuUtilized", "None", (("ClusterName", "c & d"),), ((1.5, 2), (0.0, 1)))


def test_batches_keep_order_and_both_limits() -> None:
    small = [DATUM] * 2500
    assert [len(batch) for batch in batches(small)] == [MOST_METRICS, MOST_METRICS, 500]

    wide = [Datum(f"m{n}", "None", DATUM.dimensions, tuple((v + n / 1000, 1) for v in range(150))) for n in range(300)]
    made = list(batches(wide))
    assert [one for batch in made for one in batch] == wide
    assert 1 < len(made) < 20
    for batch in made:
        form = {}
        for number, one in enumerate(batch, start=1):
            form |= _fields(number, one, "2026-01-01T00:00:00Z")
        assert len(urlencode(form)) <= MOST_BYTES
    assert list(batches([])) == []


class Service:
    """Takes one call and answers as told."""

    def __init__(self) -> None:
        self.answer = web.Response(text="<PutMetricDataResponse/>")
        self.forms: list[dict[str, str]] = []
        self.hangs_up = False

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.forms.append(dict(parse_qsl(await request.text())))
        if self.hangs_up:
            assert request.transport is not None
            request.transport.close()
        return self.answer


@pytest.fixture
async def service() -> AsyncIterator[tuple[Service, Monitoring]]:
    made, port = Service(), free_port()
    runner = web.ServerRunner(web.Server(made))  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession() as http:
        yield made, Monitoring(http, {"AWS_ENDPOINT_URL_CLOUDWATCH": f"http://127.0.0.1:{port}"}, "eu-west-1")
    await runner.cleanup()


async def test_what_is_sent(service: tuple[Service, Monitoring]) -> None:
    made, monitoring = service
    await monitoring.put("ECS/ContainerInsights", 1_700_000_000.0, [DATUM], KEYS)

    assert made.forms == [
        {
            "Action": "PutMetricData",
            "Version": "2010-08-01",
            "Namespace": "ECS/ContainerInsights",
            "MetricData.member.1.MetricName": "CpuUtilized",
            "MetricData.member.1.Unit": "None",
            "MetricData.member.1.Timestamp": "2023-11-14T22:13:20Z",
            "MetricData.member.1.Dimensions.member.1.Name": "ClusterName",
            "MetricData.member.1.Dimensions.member.1.Value": "c & d",
            "MetricData.member.1.Values.member.1": "1.5",
            "MetricData.member.1.Counts.member.1": "2",
            "MetricData.member.1.Values.member.2": "0",
            "MetricData.member.1.Counts.member.2": "1",
        }
    ]


async def test_a_refusal_has_the_services_own_words(service: tuple[Service, Monitoring]) -> None:
    made, monitoring = service
    text = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
    made.answer = web.Response(status=403, text=text)

    with pytest.raises(EcsError, match="not you") as caught:
        await monitoring.put("N", 0.0, [DATUM], KEYS)
    assert (caught.value.code, caught.value.status) == ("AccessDenied", 403)


async def test_an_answer_that_is_lost_and_a_call_that_never_left(service: tuple[Service, Monitoring]) -> None:
    made, monitoring = service
    made.hangs_up = True
    with pytest.raises(Lost):
        await monitoring.put("N", 0.0, [DATUM], KEYS)

    async with aiohttp.ClientSession() as http:
        nobody = Monitoring(http, {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}, "eu-west-1")
        with pytest.raises(Unreachable):
            await nobody.put("N", 0.0, [DATUM], KEYS)
    await asyncio.sleep(0)


def test_without_a_setting_it_is_amazons_own() -> None:
    assert Monitoring(None, {}, "eu-west-1").url == "https://monitoring.eu-west-1.amazonaws.com"  # type: ignore[arg-type]
