"""What people and programs on this host may ask the agent: who it is, which tasks it has, and what they use.

GET /v1/metadata               this container instance
GET /v1/tasks                  its tasks, in the words that the control plane is told; ?taskarn= or ?dockerid= for one
GET /license                   the licence
GET /metrics                   the same and more for Prometheus, see ``agent/metrics``

Anything else is answered with this list. Plain HTTP without log-in, so it listens on loopback unless told otherwise.
A port that is taken is tried again and costs the agent nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sexton import __version__
from sexton.agent.engine import Engine
from sexton.agent.metadata.sights import Sights
from sexton.agent.runner import Runner
from sexton.agent.steps.context import Identity
from sexton.core.enginebody import engine_name
from sexton.core.sight import UNSEEN, Sight
from sexton.core.task import KnownContainer, TaskStatus
from sexton.kit import web
from sexton.kit.listener import Handler, Limits, Listener
from sexton.kit.retry import Backoff
from sexton.wire import acs_task

log = logging.getLogger(__name__)

COMMANDS = ("/v1/metadata", "/v1/tasks", "/license", "/metrics")
LISTEN_BACKOFF = Backoff(first=1.0, cap=60.0)
# As Amazon's agent has it: whoever is slower than this is not served.
LIMITS = Limits(connections=64, idle=5.0, body=5.0)
# A prefix of an id of this length or less is taken as one.
SHORT_ID = 12

LICENSE = """Sexton
Licensed under the Apache License, Version 2.0 (the "License"); you may not use it except in compliance with it.
You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the License is distributed on an
"AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific
language governing permissions and limitations under the License.
"""

_NO_TASK = {"Arn": "", "KnownStatus": "", "Family": "", "Version": "", "Containers": None}


class Introspection:
    """Answers one agent's questions. ``metrics`` makes the text for Prometheus when it is asked for."""

    def __init__(
        self, identity: Identity, engine: Engine, sights: Sights, metrics: Callable[[], tuple[bytes, str]]
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._sights = sights
        self._metrics = metrics

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return _json({"error": "this is for reading only"}, 405)
        match request.path:
            case "/v1/metadata":
                return _json(
                    {
                        "Cluster": self._identity.cluster,
                        "ContainerInstanceArn": self._identity.instance_arn or None,
                        "Version": f"Sexton - v{__version__}",
                    }
                )
            case "/v1/tasks":
                return await self._tasks(request)
            case "/license":
                return web.Response(text=LICENSE)
            case "/metrics":
                body, content_type = self._metrics()
                return web.Response(body=body, headers={"Content-Type": content_type})
        return _json({"AvailableCommands": COMMANDS})

    async def _tasks(self, request: web.BaseRequest) -> web.Response:
        arn, container = request.query.get("taskarn", ""), request.query.get("dockerid", "")
        runners = self._engine.runners()
        if not arn and not container:
            sights = await self._sights.of_all(runners)
            return _json({"Tasks": [_task(one, sights) for one in runners]})
        if arn and container:
            return _json(_NO_TASK, 400)
        found = [one for one in runners if one.arn == arn] if arn else _with_container(runners, container)
        if len(found) != 1:
            return _json(_NO_TASK, 400 if found else 404)
        return _json(_task(found[0], await self._sights.of_all(found)))


def _task(runner: Runner, sights: Mapping[str, Sight]) -> dict[str, Any]:
    task = runner.desired.task
    known = _word(runner.known.status)
    desired = "STOPPED" if runner.desired.stopped or runner.known.stop else "RUNNING"
    by_name = {one.name or "": one for one in task.containers or ()}
    shown: dict[str, Any] = {"Arn": runner.arn}
    if not (known == "STOPPED" and desired != "STOPPED"):
        shown["DesiredStatus"] = desired
    containers = [
        _container(task, by_name[one.name], one, sights.get(one.runtime_id, UNSEEN)) for one in runner.known.containers
    ]
    return shown | {
        "KnownStatus": known,
        "Family": task.family or "",
        "Version": task.version or "",
        "Containers": containers,
    }


def _container(task: acs_task.Task, wanted: acs_task.Container, one: KnownContainer, sight: Sight) -> dict[str, Any]:
    from sexton.core.taskview import networks, stamp  # an agent that nobody asks does without

    shown: dict[str, Any] = {
        "DockerId": one.runtime_id,
        "DockerName": engine_name(task, one.name),
        "Name": one.name,
        "Image": wanted.image or "",
        "ImageID": sight.image_id,
    }
    if one.created_at:
        shown["CreatedAt"] = stamp(one.created_at)
    if one.started_at:
        shown["StartedAt"] = stamp(one.started_at)
    ports = _ports(task, wanted, one)
    if ports:
        shown["Ports"] = ports
    if task.network_mode == "awsvpc":  # of the other modes Amazon's agent says nothing here
        shown["Networks"] = [msgspec.to_builtins(one) for one in networks(task, sight, version=3)]
    if sight.mounts:
        shown["Volumes"] = [
            {"DockerName": name, "Source": source, "Destination": at} if name else {"Source": source, "Destination": at}
            for name, source, at in sight.mounts
        ]
    if wanted.restart_policy and wanted.restart_policy.enabled:
        shown["RestartCount"] = one.restarts
    return shown


async def keep_listening(handler: Handler, host: str, port: int) -> None:
    """Serve until cancelled; a port that somebody else has is asked for again and again, said once."""
    said = False
    for delay in LISTEN_BACKOFF.delays():
        listener = Listener(handler, LIMITS)
        try:
            await listener.open(host, port)
        except OSError as error:
            if not said:
                log.warning(
                    "introspection cannot listen yet",
                    extra={"address": f"{host}:{port}", "reason": error.strerror or str(error)},
                )
                said = True
            await asyncio.sleep(delay)
            continue
        log.info("introspection listens", extra={"address": f"{host}:{port}"})
        try:
            await asyncio.Event().wait()
        finally:
            await listener.close()


def _with_container(runners: Iterable[Runner], container: str) -> list[Runner]:
    def matches(one: KnownContainer) -> bool:
        return one.runtime_id.startswith(container) if len(container) <= SHORT_ID else one.runtime_id == container

    return [runner for runner in runners for one in runner.known.containers if one.runtime_id and matches(one)]


def _word(status: TaskStatus) -> str:
    return str(status) if status in (TaskStatus.RUNNING, TaskStatus.STOPPED) else "PENDING"


def _ports(task: acs_task.Task, wanted: acs_task.Container, one: KnownContainer) -> list[dict[str, Any]]:
    """As published; until the engine says so, as asked for."""
    own = task.network_mode == "awsvpc"
    if one.bindings:
        return [
            {
                "ContainerPort": port.container_port,
                "Protocol": port.protocol,
                "HostPort": port.host_port,
                "HostIp": port.bind_ip,
            }
            for port in one.bindings
        ]
    asked = []
    for port in wanted.port_mappings or ():
        if port.container_port:
            shown: dict[str, Any] = {"ContainerPort": port.container_port, "Protocol": port.protocol or "tcp"}
            host_port = port.container_port if own else port.host_port
            asked.append(shown | ({"HostPort": host_port} if host_port else {}))
    return asked


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
