"""The agent's life: it starts, it runs, it stops. What it is made of once it is registered is in ``parts``.

Start order: there are credentials, the state is ours and loaded, the container engine answers, this host registers,
tasks of an earlier process are taken up, and only then the connections open. Until it is registered an agent makes
nothing outside its data directory. A stop leaves the tasks running for the next process, unless the agent was started
to leave nothing behind: then it first stops listening to what else it should run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

from sexton.agent import ec2, register
from sexton.agent.abilities import address_of, may_limit, memory_mib, network_abilities, task_cgroups
from sexton.agent.checkpoint import Checkpoint, Saved
from sexton.agent.connections import ENGINE_BACKOFF, endpoint_of, open_engine, open_http
from sexton.agent.engine import Engine
from sexton.agent.history import History
from sexton.agent.imagebook import ImageBook
from sexton.agent.metadata.endpoint import TaskEndpoint
from sexton.agent.metadata.where import Where
from sexton.agent.metadata_block import lift_block, set_block
from sexton.agent.parts import Given, Parts
from sexton.agent.standdown import StandDown
from sexton.agent.state import State, from_labels, of_this_machine, open_state
from sexton.agent.steps.context import Identity as Member
from sexton.cloud.client import EcsClient
from sexton.cloud.credential_chain import agent_keyring
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.instance import Identity, InstanceService, is_instance
from sexton.core.hostpool import Pool, Share
from sexton.core.resources import registered
from sexton.core.wiring import tag_of
from sexton.host import gpus
from sexton.host.shutdown import system_stops
from sexton.host.taskcgroup import TaskCgroups
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import EngineInfo, Runtime, RuntimeFault
from sexton.settings import Settings
from sexton.store.contract import Store, StoreError

log = logging.getLogger(__name__)

SOCKET_FILE = "agent.sock"
# How long tasks get to end when nothing may be left behind.
LEAVE_SECONDS = 45.0
# And how long what they wrote last gets to be delivered then.
DELIVER_SECONDS = 10.0


class Options(NamedTuple):
    """What an agent is told beside its settings."""

    settings: Settings
    environment: Mapping[str, str]
    credentials: CredentialSource | None = None  # instead of the usual chain
    leave_nothing: bool = False


class Agent:
    """A running agent."""

    def __init__(self, options: Options, on_failure: Callable[[str, BaseException], None]) -> None:
        self._options = options
        self._on_failure = on_failure
        self._links = Nursery("agent", on_failure)
        self._saving = Nursery("state", on_failure)
        self._work = Nursery("tasks", on_failure)
        self._store: Store | None = None
        self._runtime: Runtime | None = None
        self._http: aiohttp.ClientSession | None = None
        self._checkpoint: Checkpoint | None = None
        self._book = ImageBook()
        self._cgroups: TaskCgroups | None = None
        self._endpoint: TaskEndpoint | None = None
        self._history = History()
        self._parts: Parts | None = None
        self._client: EcsClient | None = None
        self._member: Member | None = None

    async def start(self) -> None:
        """Come up. Waits for an engine that does not answer yet; StandDown when there is no use in waiting."""
        self._history.attach()
        settings = self._options.settings
        environment = self._options.environment
        self._http = open_http(settings)
        credentials = self._options.credentials or agent_keyring(
            self._http, environ=environment, external=settings.external, profile=settings.credential_profile
        )
        # Asked first: an agent without credentials has nothing to do here, whatever else is missing.
        try:
            await credentials.current()
        except NoCredentials as error:
            if not error.may_heal:
                raise StandDown(
                    str(error), "Give the agent credentials, or disable it on hosts that are not part of a cluster"
                ) from None
        instance = None
        if self._options.credentials is None and not settings.external and is_instance(environment):
            instance = InstanceService(environment, self._http)
        if instance is not None and settings.warm_pools:
            await ec2.leave_warm_pool(instance)
        who = await ec2.identity(instance) if instance is not None else Identity()
        state = await self._load_state(who)
        self._runtime = open_engine(settings)
        info = await self._wait_for_engine(self._runtime)
        if state.lost:
            state.tasks.update(await self._ask_labels(state, self._runtime))
        self._cgroups = task_cgroups(settings, info)
        abilities = await network_abilities(settings)
        if abilities.interfaces:
            settings = msgspec.structs.replace(settings, network_address=address_of(settings, abilities))
        limits = await may_limit(settings, self._cgroups)
        self._endpoint = TaskEndpoint(self._runtime, settings)
        await self._endpoint.prepare()
        devices = await gpus.find(settings.gpu_info) if settings.gpu_support else gpus.NONE
        client = self._client = EcsClient(endpoint_of(settings), settings.region, credentials, self._http)
        capacity = register.resources(settings, memory_mib())
        arn = await register.register(
            client,
            state.checkpoint,
            settings,
            register.attributes(
                settings,
                info,
                task_limits=limits,
                endpoint=self._endpoint.open,
                endpoint_of_host=self._endpoint.serves_host,
                networks=abilities,
                gpus=devices,
            ),
            capacity,
            who,
            await ec2.tags(self._http, environment, who, settings, credentials),
            devices,
        )
        amount, reserved = registered(capacity)
        pool = Pool(capacity=Share(amount=amount, gpus=frozenset(devices.ids)), reserved=reserved)
        member = self._member = Member(settings.cluster, arn)
        where = Where(settings.cluster, settings)
        if instance is not None:
            self._links.start("place", where.learn(instance))
        await set_block(settings, tag_of(arn))
        given = Given(
            self._options.settings,
            environment,
            self._http,
            credentials,
            client,
            member,
            where,
            self._runtime,
            info,
            state.store,
            state.checkpoint,
            self._book,
            self._history,
            self._endpoint,
            self._cgroups,
            limits,
            pool,
            list(state.tasks.values()),
        )
        self._parts = Parts(given, self._links, self._work, self._saving, self._on_failure)
        if abilities.interfaces:
            await self._parts.open_networks(settings)
        await self._parts.open()
        if instance is not None and settings.spot_draining:
            self._links.start("spot", ec2.drain_at_notice(instance, client, member))
        await self._listen()

    async def _drain_if_the_host_ends(self, client: EcsClient, member: Member, engine: Engine) -> None:
        """Nothing new comes here any more, and what runs gets its own time to stop and is reported."""
        if not await system_stops():
            return
        log.warning("the host shuts down", extra={"tasks": len(engine.runners())})
        await ec2.drain(client, member)
        if not await engine.stop_all("Host is shutting down", LEAVE_SECONDS):
            log.warning("tasks are left to the engine", extra={"tasks": len(engine.runners())})

    async def stop(self) -> None:
        """Go down in reverse order; safe after a start that failed half-way."""
        leave_nothing = self._options.leave_nothing
        parts, endpoint = self._parts, self._endpoint
        engine = parts.engine if parts is not None else None
        services = parts.services if parts is not None else None
        if self._options.settings.shutdown_drain and self._client and self._member and engine is not None:
            await self._drain_if_the_host_ends(self._client, self._member, engine)
        await self._links.close()
        if leave_nothing and engine is not None:
            await engine.leave_nothing(LEAVE_SECONDS)
            if services is not None and endpoint is not None and endpoint.open:
                await services.clear_faults(())
        if parts is not None and parts.listener is not None:
            await parts.listener.close()
        if endpoint is not None:
            await endpoint.close()
        if services is not None:
            services.close()
        if parts is not None and parts.ways is not None:
            if leave_nothing:
                await parts.ways.deliver_all(DELIVER_SECONDS)
            await parts.ways.close(leave_nothing=leave_nothing)
        await self._work.close()
        if parts is not None and parts.networks is not None:
            await parts.networks.close(leave_nothing=leave_nothing)
        if self._member is not None:
            await lift_block(self._options.settings, tag_of(self._member.instance_arn))
        await self._saving.close()
        if self._checkpoint is not None:
            try:
                await self._checkpoint.flush()
                await self._book.flush()
                if parts is not None and parts.sizing is not None:
                    await parts.sizing.flush()
            except StoreError as error:
                log.error("state cannot be saved", extra={"reason": str(error)})
        if self._store is not None:
            await self._store.close()
        if self._runtime is not None:
            await self._runtime.close()
        if self._http is not None:
            await self._http.close()
        if self._cgroups is not None and leave_nothing:
            await self._cgroups.remove_parent()
        if self._cgroups is not None:
            await self._cgroups.close()
        self._history.close()
        log.info("agent stopped")

    async def _wait_for_engine(self, runtime: Runtime) -> EngineInfo:
        """The engine's description; one line when it has to be waited for, and one when it came."""
        for attempt, delay in enumerate(ENGINE_BACKOFF.delays(), start=1):
            try:
                info = await runtime.describe()
            except RuntimeFault as error:
                if attempt == 1:
                    log.warning(
                        "waiting for the container engine",
                        extra={"engine": self._options.settings.docker_host, "reason": str(error)},
                    )
            else:
                log.info("container engine answers", extra={"engine": info.name, "version": info.version})
                return info
            await asyncio.sleep(delay)
        raise AssertionError("a backoff gives delays for ever")

    async def _load_state(self, who: Identity) -> State:
        settings = self._options.settings
        try:
            state = await open_state(Path(settings.data_dir), time.time(), remember=settings.checkpoint)
            state = await of_this_machine(state, who.instance_id)
        except StoreError as error:
            raise StandDown(f"this agent cannot have its state: {error}", "Then start the agent again") from None
        self._store, self._checkpoint = state.store, state.checkpoint
        self._book = ImageBook(state.store)
        await self._book.load()
        return state

    async def _ask_labels(self, state: State, runtime: Runtime) -> dict[str, Saved]:
        for delay in ENGINE_BACKOFF.delays():
            try:
                return await from_labels(state, runtime, self._options.settings.cluster, time.time())
            except RuntimeFault as error:
                log.warning("waiting for the engine's list of containers", extra={"reason": str(error)})
                await asyncio.sleep(delay)
        raise AssertionError("a backoff gives delays for ever")

    async def _listen(self) -> None:
        assert self._parts is not None and self._parts.listener is not None
        path = Path(self._options.settings.data_dir) / SOCKET_FILE
        try:
            await self._parts.listener.open_unix(path)
        except OSError as error:
            raise StandDown(
                f"cannot listen on {path}: {error.strerror or error}", "Choose another data directory with --data-dir"
            ) from None
