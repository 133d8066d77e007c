"""The Docker driver against engines that no test machine has: old, new, exchanged, slow and broken ones."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from sexton.runtime.contract import (
    Conflict,
    EventKind,
    NotFound,
    Progress,
    Refused,
    RuntimeFault,
    State,
    TimedOut,
    Unavailable,
)
from sexton.runtime.deadlines import Deadlines
from sexton.runtime.docker import CREATIONS, STARTS, DockerRuntime
from unit.runtime.scripted_engine import ScriptedEngine, scripted_engine

HURRY = Deadlines(version=0.1, inspect=0.1, create=0.1, stream=0.1, pull_begin=0.1, pull_silence=0.1, pull=0.3)
FOUND = msgspec.json.encode({"Id": "abc", "Name": "/web"}).decode()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    async with scripted_engine(tmp_path / "docker.sock") as made:
        yield made


@pytest.fixture
async def runtime(engine: ScriptedEngine) -> AsyncIterator[DockerRuntime]:
    made = DockerRuntime(engine.url)
    yield made
    await made.close()


@pytest.fixture
async def hurried(engine: ScriptedEngine) -> AsyncIterator[DockerRuntime]:
    made = DockerRuntime(engine.url, HURRY)
    yield made
    await made.close()


class TestVersion:
    async def test_the_newest_version_both_ends_speak_is_used(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        engine.versions = {"ApiVersion": "1.99", "MinAPIVersion": "1.44"}
        engine.answer("GET /containers/web/json", text=FOUND)

        await runtime.inspect("web")

        assert engine.requests == ["GET /version", "GET /v1.47/containers/web/json"]

    async def test_it_is_agreed_once(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        engine.answer("GET /containers/web/json", text=FOUND)

        await asyncio.gather(*(runtime.inspect("web") for _ in range(5)))

        assert engine.requests.count("GET /version") == 1

    async def test_an_engine_that_was_exchanged_is_asked_again(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        async def only_1_40(request: web.Request) -> web.StreamResponse:
            if not request.path.startswith("/v1.40/"):
                text = "client version 1.44 is too new. Maximum supported API version is 1.40"
                return web.json_response({"message": text}, status=400)
            return web.Response(text=FOUND)

        engine.answer("GET /containers/web/json", text=FOUND)
        await runtime.inspect("web")
        engine.versions = {"ApiVersion": "1.40", "MinAPIVersion": "1.12"}
        engine.routes["GET /containers/web/json"] = only_1_40

        assert (await runtime.inspect("web")).id == "abc"

    async def test_after_a_break_the_version_is_agreed_again(self, tmp_path: Path) -> None:
        path = tmp_path / "engine.sock"
        runtime = DockerRuntime(f"unix://{path}")
        async with scripted_engine(path) as engine:
            engine.answer("GET /info")
            assert (await runtime.describe()).version == "99.0"
        with pytest.raises(Unavailable):
            await runtime.inspect("web")
        async with scripted_engine(path) as engine:
            engine.versions = {"Version": "100.0", "ApiVersion": "1.46", "MinAPIVersion": "1.44"}
            engine.answer("GET /info")
            described = await runtime.describe()
        await runtime.close()

        assert (described.version, described.api_versions) == ("100.0", ("1.44", "1.45", "1.46"))

    @pytest.mark.parametrize(
        "versions",
        [{"ApiVersion": "1.20"}, {"ApiVersion": "1.60", "MinAPIVersion": "1.48"}, {"Hello": "world"}],
    )
    async def test_an_engine_without_a_shared_version_is_refused(
        self, engine: ScriptedEngine, runtime: DockerRuntime, versions: dict[str, str]
    ) -> None:
        engine.versions = versions

        with pytest.raises(Refused, match="cannot use this engine"):
            await runtime.describe()


class TestSilence:
    async def test_a_call_past_its_deadline_is_timed_out_and_hangs_up(
        self, engine: ScriptedEngine, hurried: DockerRuntime
    ) -> None:
        gone = engine.hang("POST /containers/create")

        with pytest.raises(TimedOut, match=r"containers/create within 0\.1 s") as failed:
            await hurried.create("web", {"Image": "x"})

        assert failed.value.after == 0.1
        await asyncio.wait_for(gone.wait(), 5)

    async def test_a_cancelled_call_hangs_up(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        gone = engine.hang("POST /containers/web/start")
        starting = asyncio.create_task(runtime.start("web"))
        while "POST /v1.44/containers/web/start" not in engine.requests:
            await asyncio.sleep(0.001)

        starting.cancel()

        await asyncio.wait_for(gone.wait(), 5)

    async def test_an_engine_that_hangs_at_the_version_has_not_been_asked_yet(
        self, engine: ScriptedEngine, hurried: DockerRuntime
    ) -> None:
        engine.hang("GET /version")

        with pytest.raises(Unavailable, match="no answer to GET /version") as failed:
            await hurried.inspect("web")
        assert not isinstance(failed.value, TimedOut)  # nothing can have had an effect

    async def test_starts_that_hang_hold_back_the_others_for_a_moment_only(
        self, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sexton.runtime.docker.PATIENCE", 0.02)
        runtime = DockerRuntime(engine.url)
        engine.hang("POST /containers/stuck/start")
        engine.answer("POST /containers/web/start", 304)
        starting = [asyncio.create_task(runtime.start("stuck")) for _ in range(50)]
        await asyncio.sleep(0)

        await asyncio.wait_for(runtime.start("web"), 10)

        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await runtime.close()

    async def test_a_hundred_hanging_calls_hold_up_nobody(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        engine.hang("POST /containers/web/stop")
        engine.answer("GET /containers/web/json", text=FOUND)
        stopping = [asyncio.create_task(runtime.stop("web", 30)) for _ in range(150)]
        while engine.requests.count("POST /v1.44/containers/web/stop") < len(stopping):
            await asyncio.sleep(0.01)

        assert (await asyncio.wait_for(runtime.inspect("web"), 5)).id == "abc"

        for task in stopping:
            task.cancel()
        await asyncio.gather(*stopping, return_exceptions=True)

    @pytest.mark.parametrize("steady", [False, True])
    async def test_a_pull_may_neither_fall_silent_nor_crawl_for_ever(
        self, engine: ScriptedEngine, hurried: DockerRuntime, steady: bool
    ) -> None:
        async def drip(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while not engine.leave.is_set():
                await response.write(b'{"status":"Downloading"}\n')
                await asyncio.sleep(0.02 if steady else 1)
            return response

        engine.routes["POST /images/create"] = drip
        begun = time.monotonic()

        with pytest.raises(TimedOut):
            [progress async for progress in hurried.pull("app")]

        taken = time.monotonic() - begun
        assert taken >= 0.28 if steady else taken < 0.28


class TestFaults:
    @pytest.mark.parametrize(
        ("status", "text", "kind"),
        [
            (400, '{"message":"invalid reference"}', Refused),
            (404, '{"message":"No such container: web"}', NotFound),
            (404, '{"message":"network lan not found"}', Refused),
            (409, '{"message":"is paused"}', Conflict),
            (500, '{"message":"OCI runtime create failed: exec: \\"x\\": executable file not found"}', Refused),
            (500, '{"message":"Bind for 0.0.0.0:80 failed: port is already allocated"}', Refused),
            (500, '{"message":"connection error: dial unix /run/containerd.sock: unavailable"}', Unavailable),
            (500, '{"message":"daemon is shutting down"}', Unavailable),
            (503, "upstream is gone", Unavailable),
            (301, "", Refused),
        ],
    )
    async def test_what_a_start_s_answer_means(
        self, engine: ScriptedEngine, runtime: DockerRuntime, status: int, text: str, kind: type[RuntimeFault]
    ) -> None:
        engine.answer("POST /containers/web/start", status, text)

        with pytest.raises(RuntimeFault) as failed:
            await runtime.start("web")

        assert type(failed.value) is kind
        words = msgspec.json.decode(text)["message"] if text.startswith("{") else text
        assert words in str(failed.value)

    async def test_what_is_already_so_is_no_error(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        engine.answer("POST /containers/web/start", 304, "")
        engine.answer("POST /containers/web/stop", 304, "")

        await runtime.start("web")
        await runtime.stop("web", 0)

    async def test_a_redirection_is_not_followed_to_something_else(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        async def elsewhere(request: web.Request) -> web.StreamResponse:
            raise web.HTTPMovedPermanently("/v1.44/containers/other/json")

        engine.routes["GET /containers/web/json"] = elsewhere
        engine.answer("GET /containers/other/json", text=FOUND)

        with pytest.raises(Refused):
            await runtime.inspect("web")

    async def test_an_answer_that_is_no_engine_s_is_no_answer(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        engine.answer("GET /containers/web/json", text="<html>welcome</html>")

        with pytest.raises(Unavailable, match="does a Docker engine answer at this address"):
            await runtime.inspect("web")

    async def test_a_socket_that_is_not_there_says_so(self, tmp_path: Path) -> None:
        runtime = DockerRuntime(f"unix://{tmp_path}/none.sock")

        with pytest.raises(Unavailable, match=r"none\.sock: No such file or directory; is it running\?"):
            await runtime.inspect("web")
        await runtime.close()

    async def test_a_name_that_leads_nowhere_yet_is_to_be_tried_again(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        engine.answer("POST /containers/create", 409, '{"message":"The name is already in use"}')
        engine.answer("GET /containers/web/json", 404, '{"message":"No such container: web"}')
        with pytest.raises(Unavailable, match="another creation"):
            await runtime.create("web", {"Image": "x"})

        engine.answer("GET /containers/web/json", text=FOUND)
        with pytest.raises(Conflict, match="already in use"):
            await runtime.create("web", {"Image": "x"})

    async def test_an_old_engine_s_500_for_a_signal_is_a_conflict(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        engine.answer("POST /containers/web/kill", 500, '{"message":"Container abc is not running"}')

        with pytest.raises(Conflict):
            await runtime.signal("web", "TERM")


class TestPull:
    @pytest.mark.parametrize(
        ("ref", "repository", "tag"),
        [
            ("app", "app", "latest"),
            ("app:1", "app", "1"),
            ("host:5000/team/app", "host:5000/team/app", "latest"),
            ("host:5000/team/app:1", "host:5000/team/app", "1"),
            ("app@sha256:00ff", "app", "sha256:00ff"),
            ("host:5000/app:1@sha256:00ff", "host:5000/app", "sha256:00ff"),
        ],
    )
    async def test_one_tag_is_asked_for_never_all(
        self, engine: ScriptedEngine, runtime: DockerRuntime, ref: str, repository: str, tag: str
    ) -> None:
        asked = {}

        async def remember(request: web.Request) -> web.StreamResponse:
            asked.update(request.query)
            return web.Response(text='{"status":"Pulling from app","id":"latest"}\n')

        engine.routes["POST /images/create"] = remember

        assert [progress async for progress in runtime.pull(ref)] == [Progress(status="Pulling from app")]
        assert asked == {"fromImage": repository, "tag": tag}

    async def test_progress_is_told_in_bytes_and_the_last_line_needs_no_end(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        line = b'{"status":"Downloading","progressDetail":{"current":5,"total":9},"id":"layer"}'
        engine.stream("POST /images/create", line[:20], line[20:] + b"\r\n" + line)

        expected = Progress(layer="layer", status="Downloading", current=5, total=9)
        assert [progress async for progress in runtime.pull("app")] == [expected, expected]

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("manifest for app:1 not found: manifest unknown", NotFound),
            ("pull access denied for app, repository does not exist or may require login", NotFound),
            ("no basic auth credentials", Refused),
            ("write /var/lib/docker/tmp: no space left on device", Refused),
            ('Get "https://r/v2/": dial tcp: lookup r: no such host', Unavailable),
            ('Get "https://r/v2/": net/http: TLS handshake timeout', Unavailable),
            ("toomanyrequests: You have reached your pull rate limit", Unavailable),
            ("unexpected EOF", Unavailable),
        ],
    )
    async def test_an_error_in_the_stream_is_told_apart(
        self, engine: ScriptedEngine, runtime: DockerRuntime, text: str, kind: type[RuntimeFault]
    ) -> None:
        engine.stream("POST /images/create", b'{"status":"Pulling"}\n', msgspec.json.encode({"error": text}) + b"\n")

        with pytest.raises(RuntimeFault) as failed:
            [progress async for progress in runtime.pull("app")]

        assert (type(failed.value), str(failed.value)) == (kind, text)

    async def test_a_pull_whose_engine_dies_is_unavailable(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        engine.stream("POST /images/create", b'{"status":"Pulling"}\n', then="cut")

        with pytest.raises(Unavailable):
            [progress async for progress in runtime.pull("app")]

    async def test_credentials_travel_in_the_header_alone(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        seen = []

        async def remember(request: web.Request) -> web.StreamResponse:
            seen.append((request.headers["X-Registry-Auth"], request.path_qs))
            return web.json_response({"message": "unauthorized"}, status=500)

        engine.routes["POST /images/create"] = remember

        with pytest.raises(Refused) as failed:
            [progress async for progress in runtime.pull("app", {"username": "u", "password": "hunter2"})]

        assert seen[0][0] == "eyJ1c2VybmFtZSI6InUiLCJwYXNzd29yZCI6Imh1bnRlcjIifQ=="
        assert "hunter2" not in str(failed.value) + seen[0][1]


class TestEvents:
    async def test_a_stream_the_engine_ends_is_a_broken_one(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        engine.stream(
            "GET /events",
            b'{"status":"die","id":"abc","from":"app","time":17,"timeNano":17000000001}\n{"status":"exec_start: x"',
            b',"id":"abc"}\n{"Action":"health_status: unhealthy","time":18,',
            b'"Actor":{"ID":"abc","Attributes":{"name":"web","a":"b"}}}\n',
        )

        seen = []
        async with runtime.events(since=16) as stream:
            with pytest.raises(Unavailable, match="ended the stream"):
                async for event in stream:
                    seen.append(event)

        assert [(event.kind, event.container_id, event.image, event.health) for event in seen] == [
            (EventKind.DIE, "abc", "app", ""),
            (EventKind.HEALTH, "abc", "", "unhealthy"),
        ]
        assert [event.time for event in seen] == [17.000000001, 18.0]
        assert seen[1].labels == {"a": "b"}

    async def test_an_engine_that_never_subscribes_is_timed_out(
        self, engine: ScriptedEngine, hurried: DockerRuntime
    ) -> None:
        engine.hang("GET /events")

        with pytest.raises(TimedOut):
            async with hurried.events():
                raise AssertionError("no stream can be open")

    async def test_leaving_the_stream_hangs_up(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        gone = engine.stream("GET /events", b'{"status":"start","id":"abc","time":1}\n', then="open")

        async with runtime.events() as stream:
            assert (await anext(stream)).kind is EventKind.START

        await asyncio.wait_for(gone.wait(), 5)


class TestInspect:
    async def test_nulls_and_odd_times_are_taken_as_absent(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        reply = {
            "Id": "abc",
            "Name": "/web",
            "Created": "yesterday",
            "State": {"Running": False, "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "", "Health": None},
            "Config": {"Labels": None},
            "NetworkSettings": {"Ports": None},
        }
        engine.answer("GET /containers/web/json", text=msgspec.json.encode(reply).decode())

        info = await runtime.inspect("web")

        assert (info.state, info.created_at, info.exit_code) == (State.CREATED, 0.0, None)
        assert (info.labels, info.ports, info.health) == ({}, (), "")

    async def test_an_end_is_read_with_all_its_causes(self, engine: ScriptedEngine, runtime: DockerRuntime) -> None:
        reply = {
            "Id": "abc",
            "State": {
                "OOMKilled": True,
                "ExitCode": 137,
                "Error": "out of memory",
                "StartedAt": "2026-01-02T03:04:05.123456789Z",
                "FinishedAt": "2026-01-02T04:04:06+01:00",
                "Health": {"Status": "unhealthy"},
            },
            "NetworkSettings": {
                "Ports": {
                    "53/udp": [{"HostIp": "127.0.0.1", "HostPort": "1053"}, {"HostIp": "::", "HostPort": "1053"}],
                    "80/tcp": None,
                }
            },
        }
        engine.answer("GET /containers/web/json", text=msgspec.json.encode(reply).decode())

        info = await runtime.inspect("web")

        assert (info.state, info.exit_code, info.oom_killed, info.error) == (State.EXITED, 137, True, "out of memory")
        assert (info.started_at, info.finished_at) == (1767323045.123456, 1767323046.0)
        assert info.health == "unhealthy"
        assert [(port.container_port, port.host_port, port.bind_ip, port.protocol) for port in info.ports] == [
            (53, 1053, "127.0.0.1", "udp"),
            (53, 1053, "::", "udp"),
        ]

    async def test_a_linked_container_goes_by_its_own_name(
        self, engine: ScriptedEngine, runtime: DockerRuntime
    ) -> None:
        rows = [{"Id": "abc", "Names": ["/other/alias", "/web"], "State": "paused", "Created": 7}, {"Id": "d"}]
        engine.answer("GET /containers/json", text=msgspec.json.encode(rows).decode())

        first, second = await runtime.list({})

        assert (first.name, first.state, first.created_at) == ("web", State.RUNNING, 7.0)
        assert (second.name, second.state) == ("", State.EXITED)


async def test_names_from_outside_cannot_reach_another_call(engine: ScriptedEngine, runtime: DockerRuntime) -> None:
    for ref in ("web/start", "../images/json", "web?force=1", "web#x", "web%2fstart"):
        with pytest.raises(RuntimeFault):
            await runtime.inspect(ref)

    asked = [request for request in engine.requests if request != "GET /version"]
    assert len(asked) == 5
    assert all(re.fullmatch(r"GET /v1\.44/containers/[^/?#]+/json", request) for request in asked)


async def test_a_log_s_last_line_needs_no_end(engine: ScriptedEngine, runtime: DockerRuntime) -> None:
    engine.stream("GET /containers/web/logs", b"2026-01-02T03:04:05Z one\n2026-01-02T03:04:05Z t", b"wo")

    assert [line.text async for line in runtime.logs("web")] == ["one", "two"]


@pytest.mark.parametrize("url", ["", "docker.sock", "unix://", "unix://docker.sock", "ssh://host", "tcp://"])
def test_addresses_it_cannot_use_are_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(ValueError, match=r"write unix:///path/to/docker\.sock"):
        DockerRuntime(url)


async def test_the_cgroup_needs_the_engine_s_driver(engine: ScriptedEngine, runtime: DockerRuntime) -> None:
    engine.answer("GET /containers/web/json", text=FOUND)
    engine.answer("GET /info", text='{"CgroupDriver":"systemd","CgroupVersion":"2"}')
    info = await runtime.inspect("web")
    with pytest.raises(RuntimeFault, match="describe"):
        runtime.cgroup(info, "")

    assert (await runtime.describe()).cgroup_version == 2
    assert runtime.cgroup(info, "ecstasks-t1.slice") == "/ecstasks.slice/ecstasks-t1.slice/docker-abc.scope"


async def test_no_more_is_made_and_started_at_once_than_an_engine_does_well(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sexton.runtime.docker.os.cpu_count", lambda: 2)
    runtime = DockerRuntime(engine.url)
    under_way, most = dict.fromkeys(("create", "start"), 0), dict.fromkeys(("create", "start"), 0)

    async def respond(request: web.Request) -> web.StreamResponse:
        what = request.path.rpartition("/")[2]
        under_way[what] += 1
        most[what] = max(most[what], under_way[what])
        await asyncio.sleep(0.005)
        under_way[what] -= 1
        return web.json_response({"Id": "abc"}, status=201)

    engine.routes = {"POST /containers/create": respond, "POST /containers/web/start": respond}
    await asyncio.gather(
        *(runtime.create(f"web{number}", {"Image": "x"}) for number in range(50)),
        *(runtime.start("web") for _ in range(50)),
    )
    await runtime.close()
    assert most == {"create": CREATIONS, "start": STARTS}
