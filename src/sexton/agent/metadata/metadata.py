"""Metadata of versions 2, 3 and 4: the task, its containers, their use, their tags, their devices.

Version 2 knows the task by where the call comes from, and so only a task with a network of its own; 3 and 4 by the
name in the path, and answer a call for a task that it cannot come from as one for nobody. Errors are JSON texts, in
the words and with the codes of Amazon's agent, which are not the same in the three versions.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from sexton.agent.metadata.identity import Names, Subject
from sexton.agent.metadata.origin import Origin
from sexton.agent.metadata.routes import Call, Routes
from sexton.agent.metadata.sights import Sights
from sexton.agent.metadata.tags import Tags
from sexton.agent.metadata.usage import Usage
from sexton.agent.runner import Runner
from sexton.agent.steps.context import Identity
from sexton.core import taskview
from sexton.core.sight import UNSEEN, Place
from sexton.core.task import KnownContainer
from sexton.kit import web
from sexton.wire import metadata

NO_ARN = "unable to get task arn from request: unable to get task Arn from v3 endpoint ID: "
NO_CONTAINER = "unable to get container ID from request: unable to get docker ID from v3 endpoint ID: "


class _Codes(NamedTuple):
    """How a version says that it knows nobody of that name."""

    metadata: HTTPStatus
    stats: HTTPStatus
    failed: HTTPStatus


_CODES = {
    3: _Codes(HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_REQUEST, HTTPStatus.BAD_REQUEST),
    4: _Codes(HTTPStatus.NOT_FOUND, HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR),
}


class MetadataApi:
    """Answers one agent's tasks."""

    def __init__(
        self,
        names: Names,
        origin: Origin,
        sights: Sights,
        usage: Usage,
        tags: Tags,
        identity: Identity,
        place: Callable[[Runner], Place],
    ) -> None:
        self._names = names
        self._origin = origin
        self._sights = sights
        self._usage = usage
        self._tags = tags
        self._identity = identity
        self._place = place

    def add_to(self, routes: Routes) -> None:
        for slash in ("", "/"):
            routes.add("/v2/metadata" + slash, lambda call: self._task_v2(call))
            routes.add("/v2/metadataWithTags" + slash, lambda call: self._task_v2(call, tags=True))
            routes.add("/v2/stats" + slash, self._task_stats_v2)
        routes.add("/v2/metadata/{container}", self._container_v2)
        routes.add("/v2/stats/{container}", self._container_stats_v2)
        for version in (3, 4):
            self._add_version(routes, version)

    def _add_version(self, routes: Routes, version: int) -> None:
        base = f"/v{version}/{{name}}"
        routes.add(base, lambda call: self._container(call, version))
        routes.add(base + "/task", lambda call: self._task(call, version))
        routes.add(base + "/taskWithTags", lambda call: self._task(call, version, tags=True))
        routes.add(base + "/stats", lambda call: self._container_stats(call, version))
        routes.add(base + "/task/stats", lambda call: self._task_stats(call, version))
        routes.add(base + "/associations/{type}", lambda call: self._associations(call, version))
        routes.add(base + "/associations/{type}/{association*}", lambda call: self._association(call, version))

    async def find(self, call: Call) -> Subject | None:
        """Whose name is in the path, if the call can come from there."""
        subject = self._names.find(call.found["name"])
        if subject is None or not await self._origin.is_of(call.caller, subject.runner):
            return None
        return subject

    async def _container(self, call: Call, version: int) -> web.Response:
        subject = await self.find(call)
        if subject is None or not subject.known.runtime_id:
            words = f"V{version} container metadata handler: {NO_CONTAINER}{call.found['name']}"
            return said(words, _CODES[version].metadata)
        return answer(await self._container_view(subject.runner, subject.known, version))

    async def _container_view(self, runner: Runner, one: KnownContainer, version: int) -> metadata.Container:
        sight = await self._sights.of(one) or UNSEEN
        return taskview.container(runner.desired, runner.known, one, sight, version=version)

    async def _task(self, call: Call, version: int, *, tags: bool = False) -> web.Response:
        subject = await self.find(call)
        if subject is None:
            words = f"V{version} task metadata handler: {NO_ARN}{call.found['name']}"
            return said(words, _CODES[version].metadata)
        return answer(await self._task_view(subject.runner, version, tags=tags))

    async def _task_view(self, runner: Runner, version: int, *, tags: bool) -> metadata.Task:
        sights = await self._sights.of_all([runner])
        view = taskview.task(runner.desired, runner.known, sights, self._place(runner), version=version)
        return await self._with_tags(view, version) if tags else view

    async def _with_tags(self, view: metadata.Task, version: int) -> metadata.Task:
        instance = await self._tags.of(self._identity.instance_arn, "ContainerInstanceTags")
        task = await self._tags.of(view.task_arn, "TaskTags")
        problems = tuple(one for one in (instance, task) if isinstance(one, metadata.TagError))
        return msgspec.structs.replace(
            view,
            container_instance_tags=instance if isinstance(instance, dict) else {},
            task_tags=task if isinstance(task, dict) else {},
            errors=problems if version >= 4 else (),
        )

    async def _container_stats(self, call: Call, version: int) -> web.Response:
        subject = await self.find(call)
        if subject is None:
            words = f"V{version} container stats handler: {NO_ARN}{call.found['name']}"
            return said(words, _CODES[version].stats)
        if not subject.known.runtime_id:
            words = f"V{version} container stats handler: {NO_CONTAINER}{call.found['name']}"
            return said(words, _CODES[version].stats)
        return await self._stats_of(subject.runner, subject.known, _CODES[version].failed, rates=version >= 4)

    async def _stats_of(
        self, runner: Runner, one: KnownContainer, failed: HTTPStatus, *, rates: bool = False
    ) -> web.Response:
        body = await self._usage.of(runner, one, rates=rates)
        return answer(body) if body else said(f"Unable to get container stats for: {one.runtime_id}", failed)

    async def _task_stats(self, call: Call, version: int) -> web.Response:
        subject = await self.find(call)
        if subject is None:
            words = f"V{version} task stats handler: {NO_ARN}{call.found['name']}"
            return said(words, _CODES[version].stats)
        return answer(await self._usage.of_task(subject.runner, rates=version >= 4))

    async def _associations(self, call: Call, version: int) -> web.Response:
        subject = await self.find(call)
        if subject is None:
            words = NO_CONTAINER.replace("container ID", "container id") + call.found["name"]
            return said(f"V{version} container associations handler: {words}", HTTPStatus.BAD_REQUEST)
        names = [
            one.name
            for one in subject.runner.desired.task.associations or ()
            if one.type == call.found["type"] and subject.container in (one.containers or ())
        ]
        return answer({"Associations": names})

    async def _association(self, call: Call, version: int) -> web.Response:
        subject = await self.find(call)
        if subject is None:
            words = f"V{version} container associations handler: {NO_ARN}{call.found['name']}"
            return said(words, HTTPStatus.BAD_REQUEST)
        kind, name = call.found["type"], call.found["association"]
        for one in subject.runner.desired.task.associations or ():
            if (one.type, one.name) == (kind, name) and one.content is not None:
                return web.Response(
                    body=(one.content.value or "").encode(), headers={"Content-Type": "application/json"}
                )
        words = f"Unable to write container association response: cannot find association {name} of type {kind}"
        return said(words, HTTPStatus.BAD_REQUEST)

    def _own(self, call: Call) -> Runner | web.Response:
        """The task in whose network the call was made."""
        runner = self._names.runner(call.caller.task) if call.caller.task else None
        if runner is not None:
            return runner
        words = f"Unable to get task arn from request: unable to associate '{call.caller.address}' with task"
        return said(words, HTTPStatus.BAD_REQUEST)

    async def _task_v2(self, call: Call, *, tags: bool = False) -> web.Response:
        runner = self._own(call)
        if isinstance(runner, web.Response):
            return runner
        return answer(await self._task_view(runner, 2, tags=tags))

    async def _container_v2(self, call: Call) -> web.Response:
        runner = self._own(call)
        if isinstance(runner, web.Response):
            return runner
        one = _made(runner, call.found["container"])
        if one is None:  # those of other tasks are none of its business, which Amazon's agent does not look at
            words = f"Unable to generate metadata for container '{call.found['container']}'"
            return said(words, HTTPStatus.BAD_REQUEST)
        return answer(await self._container_view(runner, one, 2))

    async def _task_stats_v2(self, call: Call) -> web.Response:
        runner = self._own(call)
        if isinstance(runner, web.Response):
            return runner
        return answer(await self._usage.of_task(runner, rates=False))

    async def _container_stats_v2(self, call: Call) -> web.Response:
        runner = self._own(call)
        if isinstance(runner, web.Response):
            return runner
        one = _made(runner, call.found["container"])
        if one is None:
            return said(f"Unable to get container stats for: {call.found['container']}", HTTPStatus.BAD_REQUEST)
        return await self._stats_of(runner, one, HTTPStatus.BAD_REQUEST)


def _made(runner: Runner, runtime_id: str) -> KnownContainer | None:
    return next((one for one in runner.known.containers if runtime_id and one.runtime_id == runtime_id), None)


def answer(value: object, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), headers={"Content-Type": "application/json"})


def said(words: str, status: int) -> web.Response:
    """An error, which is a JSON text."""
    return answer(words, status)
