"""Read by the type checker, never run: what other code may rely on has the types it promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

from sexton import settings
from sexton.core import names, placement, resources
from sexton.core import task as core
from sexton.runtime.contract import ContainerInfo, Runtime
from sexton.runtime.opening import open_runtime
from sexton.store.contract import KeyValue, Page, Put, Store, TxnResult
from sexton.store.opening import open_store
from sexton.wire import acs_task, ecs


def decisions(desired: core.DesiredTask, known: core.KnownTask, event: core.Event) -> None:
    assert_type(core.plan(desired, known), tuple[core.Move, ...])
    assert_type(core.observe(desired, known, event), core.KnownTask)
    assert_type(core.TRANSITIONS[core.ContainerStatus.NONE, core.Happened.PULLED], core.ContainerStatus)
    assert_type(known.container("app").exit_code, int | None)
    assert_type(desired.task, acs_task.Task)
    known.stop = True  # type: ignore[misc]  # values do not change


def places(hosts: list[placement.Host], demand: resources.Resources) -> None:
    host, refusals = placement.choose(hosts, demand, ())
    assert_type(host, placement.Host | None)
    assert_type(refusals, tuple[placement.Refusal, ...])


def ids(place: names.Place) -> None:
    assert_type(names.task_arn(place, "default", "id"), names.TaskArn)
    assert_type(names.parse_task("id"), names.Member | None)
    arn: names.InstanceArn = names.task_arn(place, "default", "id")  # type: ignore[assignment]  # ids are not mixed up
    del arn


def shapes(request: ecs.RunTaskRequest) -> None:
    assert_type(request.count, int | None)
    assert_type(request.overrides, ecs.TaskOverride | None)
    ecs.RunTaskRequest(count="1")  # type: ignore[arg-type]


async def stores() -> None:
    store = await open_store("sqlite:///tmp/x")
    assert_type(store, Store)
    assert_type(await store.get("key"), KeyValue | None)
    assert_type(await store.range("prefix"), Page)
    assert_type(await store.txn([], [Put("key", b"value")]), TxnResult)
    await store.txn([], [Put("key", "text")])  # type: ignore[arg-type]


async def engines() -> None:
    runtime = open_runtime("unix:///run/docker.sock")
    assert_type(runtime, Runtime)
    assert_type(await runtime.inspect("id"), ContainerInfo)
    async with runtime.events() as events:
        async for event in events:
            assert_type(event.labels, Mapping[str, str])


def values() -> None:
    loaded = settings.load({})
    assert_type(loaded.settings.cluster, str)
    assert_type(loaded.settings.dynamic_ports, tuple[int, int] | None)
    loaded.settings.cluster = "x"  # type: ignore[misc]
