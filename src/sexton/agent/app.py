"""The agent's wiring: engine, identity, registration, tasks, connections. Nothing is decided here.

Start order: there are credentials, the state is ours and loaded, the container engine answers, this host registers,
tasks of an earlier process are taken up, and only then the connections open. Until it is registered an agent makes
nothing outside its data directory. A stop leaves the tasks running for the next process, unless the agent was started
to leave nothing behind: then it first stops listening to what else it should run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

from sexton.agent import ec2, register
from sexton.agent.admission import Admission
from sexton.agent.attachments import Attachments
from sexton.agent.checkpoint import Checkpoint, Saved
from sexton.agent.engine import Engine
from sexton.agent.gc import Cleanup
from sexton.agent.history import History
from sexton.agent.imagebook import ImageBook
from sexton.agent.instancehealth import InstanceHealth
from sexton.agent.introspection import Introspection, keep_listening
from sexton.agent.localapi import LocalApi
from sexton.agent.logs.delivery import Way
from sexton.agent.logs.ownlog import OwnLog
from sexton.agent.logs.ways import Ways
from sexton.agent.metadata.endpoint import TaskEndpoint
from sexton.agent.metadata.services import TaskServices
from sexton.agent.metadata.where import Where
from sexton.agent.metadata_block import lift_block, set_block
from sexton.agent.metrics import Metrics
from sexton.agent.networks import Abilities, Networks
from sexton.agent.oom import Victims
from sexton.agent.ports import PortAllocator
from sexton.agent.reporter import Reporter
from sexton.agent.rolekeys import FirstOf, RoleKeys
from sexton.agent.runner import Runner
from sexton.agent.sandboxes import Sandboxes
from sexton.agent.session import Session
from sexton.agent.sizing import Sizing, follow
from sexton.agent.standdown import StandDown
from sexton.agent.state import State, from_labels, of_this_machine, open_state
from sexton.agent.stats import CgroupStats
from sexton.agent.steps.context import Identity as Member
from sexton.agent.steps.context import StepContext
from sexton.agent.supplies import Supplies
from sexton.agent.telemetry import Telemetry
from sexton.cloud import places
from sexton.cloud.client import EcsClient
from sexton.cloud.credential_chain import agent_keyring
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.instance import Identity, InstanceService, is_instance
from sexton.cloud.logs import LogsClient
from sexton.cloud.places import dns_suffix
from sexton.cloud.services import Services
from sexton.core import awslogs, names
from sexton.core.awslogs import Destination
from sexton.core.hostpool import Pool, Share
from sexton.core.logstanding import FOLDER
from sexton.core.resources import registered
from sexton.core.task import ContainerStatus, DesiredTask
from sexton.core.wiring import tag_of
from sexton.host import gpus, network_probe
from sexton.host.shutdown import system_stops
from sexton.host.taskcgroup import TaskCgroups
from sexton.host.taskslice import TaskSlices
from sexton.kit.certificate import CertificateError, trusting
from sexton.kit.listener import Listener
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import EngineInfo, Runtime, RuntimeFault
from sexton.runtime.deadlines import Deadlines
from sexton.runtime.opening import open_runtime
from sexton.settings import Settings
from sexton.store.contract import Store, StoreError

log = logging.getLogger(__name__)

SOCKET_FILE = "agent.sock"
_PROXIES = frozenset({"http_proxy", "https_proxy"})
ENGINE_BACKOFF = Backoff(first=0.25, cap=30.0)
# How long tasks get to end when nothing may be left behind.
LEAVE_SECONDS = 45.0
# And how long what they wrote last gets to be delivered then.
DELIVER_SECONDS = 10.0
# Engines with this API take the option that says how soon lines are handed on.
ENGINE_FLUSHES = "1.41"


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
        self._listener: Listener | None = None
        self._checkpoint: Checkpoint | None = None
        self._book = ImageBook()
        self._engine: Engine | None = None
        self._ways: Ways | None = None
        self._cgroups: TaskCgroups | None = None
        self._limits = False
        self._endpoint: TaskEndpoint | None = None
        self._services: TaskServices | None = None
        self._networks: Networks | None = None
        self._attachments: Attachments | None = None
        self._history = History()
        self._victims = Victims()
        self._sizing: Sizing | None = None
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
        self._runtime = self._open_runtime()
        info = await self._wait_for_engine(self._runtime)
        if state.lost:
            state.tasks.update(await self._ask_labels(state, self._runtime))
        self._cgroups = _task_cgroups(settings, info)
        abilities = await network_abilities(settings)
        if abilities.interfaces and not settings.network_address:
            settings = msgspec.structs.replace(settings, network_address=own_address())
        self._limits = await _may_limit(settings, self._cgroups)
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
                task_limits=self._limits,
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
        if abilities.interfaces:
            await self._open_networks(settings, member, client, list(state.tasks.values()))
        await self._open(info, client, credentials, member, pool, where, list(state.tasks.values()))
        if instance is not None and settings.spot_draining:
            self._links.start("spot", ec2.drain_at_notice(instance, client, member))
        await self._listen()

    async def _open(
        self,
        info: EngineInfo,
        client: EcsClient,
        credentials: CredentialSource,
        identity: Member,
        pool: Pool,
        where: Where,
        saved: Sequence[Saved],
    ) -> None:
        assert self._runtime and self._http and self._checkpoint and self._endpoint
        settings, http = self._options.settings, self._http
        reserved = frozenset(settings.reserved_ports + settings.reserved_ports_udp)
        context = StepContext(
            runtime=self._runtime,
            settings=msgspec.structs.replace(settings, task_limits=self._limits),
            identity=identity,
            ports=PortAllocator(settings.dynamic_ports, reserved),
            supplies=self._supplies(settings, self._runtime, self._http, credentials),
            cgroups=self._cgroups,
            files=self._endpoint.files(identity, where, self._work),
            variables=self._endpoint.variables,
            networks=self._networks,
        )
        self._ways = self._log_ways(settings, info, context.supplies)
        context = context._replace(logs=self._ways)
        self._saving.start("checkpoint", self._checkpoint.run())
        self._engine = Engine(context, self._checkpoint, self._work, Admission(pool))
        self._services = TaskServices(
            self._endpoint,
            settings,
            identity,
            context.supplies.roles,
            self._engine.find,
            lambda keys: EcsClient(endpoint_of(settings), settings.region, keys, http),
            self._runtime,
        )
        self._endpoint.serve(context, info, client, self._engine.runners, where)
        await self._endpoint.start(self._links)
        reporter = Reporter(client, settings.cluster, self._work, self._engine.acknowledged)
        self._engine.start(reporter, saved)
        if self._ways is not None:
            self._ways.open()
        if settings.agent_log_group:
            to = _own_log(settings, self._options.environment, identity)
            self._links.start("own-log", OwnLog(LogsClient(self._http), to, context.supplies.roles.own).run())
        self._engine.on_oom = self._name_victim
        self._engine.on_stopped = self._after_stop
        if self._endpoint.open:
            self._links.start("faults", self._services.clear_faults(self._engine.runners()))
        health = InstanceHealth(self._runtime)
        session = Session(
            self._http,
            client,
            credentials,
            identity,
            settings.region,
            info,
            self._engine,
            self._checkpoint,
            context.supplies.roles,
            on_heartbeat=lambda: self._look_at(health),
            networks=self._networks,
            attachments=self._attachments,
        )
        stats = CgroupStats(Path(settings.cgroup_path))
        telemetry = Telemetry(
            self._http, client, credentials, context, settings.region, info, self._engine, stats, health
        )
        sizing = self._sizing = follow(context, self._engine, stats, info.cgroup_driver, self._store)
        if settings.cloudwatch:
            self._send_metrics(sizing, identity, credentials)
        telemetry.on_sample = sizing.sample
        self._links.start("sizes", sizing.run())
        self._links.start("clean-up", Cleanup(context, self._engine, info.root_dir).run())
        self._links.start("acs", self._until_stood_down(session))
        self._links.start("tcs", telemetry.run())
        if settings.introspection[1]:
            metrics = Metrics(context, self._engine, session, telemetry, reporter, stats, health, sizing.use)
            introspection = Introspection(identity, self._engine, self._endpoint.sights, metrics)
            self._links.start("introspection", keep_listening(introspection, *settings.introspection))
        self._listener = Listener(
            LocalApi(self._engine, session, self._runtime, identity, self._history, sizing, self._networks)
        )

    def _send_metrics(self, sizing: Sizing, member: Member, credentials: CredentialSource) -> None:
        """Imported where it is wanted, which is on few hosts."""
        from sexton.agent.cloudwatch import CloudWatch
        from sexton.agent.cloudwatch import Member as OnHost
        from sexton.cloud.monitoring import Monitoring

        assert self._http and self._checkpoint
        settings, environment = self._options.settings, self._options.environment
        sizing.cloudwatch = CloudWatch(
            Monitoring(self._http, environment, settings.region),
            settings.cloudwatch,
            OnHost(member.cluster, member.instance_arn, self._checkpoint.self.ec2_instance_id),
            FirstOf(agent_keyring(self._http, environ=environment), credentials),
            sizing.use,
        )
        self._links.start("cloudwatch", sizing.cloudwatch.run())

    async def _open_networks(
        self, settings: Settings, member: Member, client: EcsClient, saved: Sequence[Saved]
    ) -> None:
        assert self._runtime is not None and self._store is not None
        sandboxes = Sandboxes(self._runtime, settings, member.instance_arn, self._cgroups)
        self._networks = Networks(settings, member.instance_arn, sandboxes, self._work)
        live = [one.desired for one in saved if not one.known.removed]
        for delay in ENGINE_BACKOFF.delays():
            try:
                await self._networks.sweep(live)
                break
            except RuntimeFault as error:
                log.warning("waiting for the engine's list of sandboxes", extra={"reason": str(error)})
            await asyncio.sleep(delay)
        self._attachments = Attachments(self._store, client.call, member.cluster, self._links)
        await self._attachments.load()
        self._networks.on_released = self._attachments.forget
        if self._endpoint is not None and self._endpoint.open:
            doors = self._endpoint.doors
            self._networks.on_wired, self._networks.on_gone = doors.open, doors.close
            self._networks.on_adopted = doors.open_inside
            await self._networks.take_up(live)
        self._links.start("sandboxes", sandboxes.run())

    def _log_ways(self, settings: Settings, info: EngineInfo, supplies: Supplies) -> Ways | None:
        """Where the engine is on this host, it can reach a relay here."""
        if not settings.docker_host.startswith("unix:") or awslogs.DRIVER not in settings.logging_drivers:
            return None
        assert self._http
        return Ways(
            Path(settings.data_dir) / FOLDER,
            settings.log_spool << 20,
            LogsClient(self._http),
            self._options.environment,
            supplies.roles.kept,
            supplies.roles.own,
            self._is_over,
            region=settings.region,
            flush=ENGINE_FLUSHES in info.api_versions,
        )

    def _is_over(self, way: Way) -> bool:
        """Whether a container will write nothing more."""
        assert self._engine is not None
        runner = self._engine.find(way.task)
        return runner is None or runner.known.container(way.container).status is ContainerStatus.STOPPED

    def _supplies(
        self, settings: Settings, runtime: Runtime, http: aiohttp.ClientSession, credentials: CredentialSource
    ) -> Supplies:
        # Calls to AWS itself are made with what the host has for that; the key of a control plane is the last resort.
        own = FirstOf(agent_keyring(http, environ=self._options.environment), credentials)
        return Supplies(
            runtime,
            settings,
            Services(http, self._options.environment),
            RoleKeys(own, may_use_own=bool(settings.backend)),
            self._work,
            book=self._book,
        )

    async def _until_stood_down(self, session: Session) -> None:
        try:
            await session.run()
        except StandDown as reason:  # a decision: whoever owns this process hears of it, and no traceback is logged
            self._on_failure("acs", reason)

    async def _drain_if_the_host_ends(self, client: EcsClient, member: Member) -> None:
        """Nothing new comes here any more, and what runs gets its own time to stop and is reported."""
        assert self._engine is not None
        if not await system_stops():
            return
        log.warning("the host shuts down", extra={"tasks": len(self._engine.runners())})
        await ec2.drain(client, member)
        if not await self._engine.stop_all("Host is shutting down", LEAVE_SECONDS):
            log.warning("tasks are left to the engine", extra={"tasks": len(self._engine.runners())})

    def _name_victim(self, runner: Runner, container: str) -> None:
        self._links.start("oom", self._victims.name(runner, container))
        if self._sizing is not None:
            self._sizing.killed(runner, container)

    def _after_stop(self, desired: DesiredTask) -> None:
        if desired.task.enable_fault_injection and self._services is not None and self._engine is not None:
            self._work.start("faults", self._services.clear_faults(self._engine.runners()))

    def _look_at(self, health: InstanceHealth) -> None:
        self._links.start("health", health.check())

    async def stop(self) -> None:
        """Go down in reverse order; safe after a start that failed half-way."""
        if self._options.settings.shutdown_drain and self._client is not None and self._member is not None:
            await self._drain_if_the_host_ends(self._client, self._member)
        await self._links.close()
        if self._options.leave_nothing and self._engine is not None:
            await self._engine.leave_nothing(LEAVE_SECONDS)
            if self._services is not None and self._endpoint is not None and self._endpoint.open:
                await self._services.clear_faults(())
        if self._listener is not None:
            await self._listener.close()
        if self._endpoint is not None:
            await self._endpoint.close()
        if self._services is not None:
            self._services.close()
        if self._ways is not None:
            if self._options.leave_nothing:
                await self._ways.deliver_all(DELIVER_SECONDS)
            await self._ways.close(leave_nothing=self._options.leave_nothing)
        await self._work.close()
        if self._networks is not None:
            await self._networks.close(leave_nothing=self._options.leave_nothing)
        if self._member is not None:
            await lift_block(self._options.settings, tag_of(self._member.instance_arn))
        await self._saving.close()
        if self._checkpoint is not None:
            try:
                await self._checkpoint.flush()
                await self._book.flush()
                if self._sizing is not None:
                    await self._sizing.flush()
            except StoreError as error:
                log.error("state cannot be saved", extra={"reason": str(error)})
        if self._store is not None:
            await self._store.close()
        if self._runtime is not None:
            await self._runtime.close()
        if self._http is not None:
            await self._http.close()
        if self._cgroups is not None and self._options.leave_nothing:
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

    def _open_runtime(self) -> Runtime:
        try:
            return open_runtime(self._options.settings.docker_host, _deadlines(self._options.settings))
        except ValueError as error:
            raise StandDown(str(error), "Correct DOCKER_HOST and start the agent again") from None

    async def _listen(self) -> None:
        assert self._listener is not None
        path = Path(self._options.settings.data_dir) / SOCKET_FILE
        try:
            await self._listener.open_unix(path)
        except OSError as error:
            raise StandDown(
                f"cannot listen on {path}: {error.strerror or error}", "Choose another data directory with --data-dir"
            ) from None


def _trust(settings: Settings) -> ssl.SSLContext | bool:
    """Whose certificates are believed: the system's authorities, and the bundle's where one is given."""
    if not settings.ca_bundle:
        return True
    try:
        return trusting(settings.ca_bundle)
    except CertificateError as error:
        raise StandDown(str(error), "Correct AWS_CA_BUNDLE and start the agent again") from None


def open_http(settings: Settings) -> aiohttp.ClientSession:
    """The one session of an agent. The library looks at the proxy variables with every call, so only where there are
    some."""
    proxied = any(name.lower() in _PROXIES for name in os.environ)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, ssl=_trust(settings)), trust_env=proxied)


def endpoint_of(settings: Settings) -> str:
    """Where the ECS API is."""
    if settings.backend:
        return settings.backend if "://" in settings.backend else f"https://{settings.backend}"
    return f"https://ecs.{settings.region}.{dns_suffix(settings.region)}"


def _own_log(settings: Settings, environment: Mapping[str, str], identity: Member) -> Destination:
    """Where the agent's own log goes."""
    chosen = settings.logs_endpoint if "://" in settings.logs_endpoint else ""
    ours = settings.backend if settings.backend and "amazonaws" not in settings.backend else ""
    endpoint = chosen or places.configured("CLOUDWATCH_LOGS", environment) or ours
    if settings.logs_endpoint == "aws" or not endpoint:
        endpoint = places.endpoint("CLOUDWATCH_LOGS", settings.region, environment)
    stream = names.last_part(identity.instance_arn)
    return Destination(endpoint, settings.region, settings.agent_log_group, stream, create_group=True)


def _deadlines(settings: Settings) -> Deadlines:
    return Deadlines(
        create=settings.create_timeout,
        start=settings.start_timeout,
        pull=settings.pull_timeout,
        pull_silence=settings.pull_inactivity_timeout,
        manifest=settings.manifest_timeout,
    )


def _task_cgroups(settings: Settings, info: EngineInfo) -> TaskCgroups | None:
    """A parent per task: a path where the engine makes its cgroups itself, a slice where systemd makes them for it."""
    match info.cgroup_driver:
        case "cgroupfs":
            return TaskCgroups(Path(settings.cgroup_path))
        case "systemd":
            return TaskSlices(Path(settings.cgroup_path))
        case _:
            return None


async def _may_limit(settings: Settings, cgroups: TaskCgroups | None) -> bool:
    """Whether tasks are held to limits of their own. Whoever asks for that in so many words gets it or no agent."""
    if settings.task_limits is False:
        return False
    if cgroups is not None and await cgroups.writable():
        return True
    if settings.task_limits:
        raise StandDown(
            f"cannot hold tasks to limits: no cgroups can be made below {settings.cgroup_path}",
            "Give the agent writable cgroups, or leave ECS_ENABLE_TASK_CPU_MEM_LIMIT out",
        )
    log.warning("tasks have no limits of their own here", extra={"cgroups": settings.cgroup_path})
    return False


async def network_abilities(settings: Settings) -> Abilities:
    """What this host can do for tasks' own networks; said once when it cannot."""
    if not settings.task_eni:
        return Abilities()
    if not settings.docker_host.startswith("unix://"):
        return Abilities()
    found = await network_probe.obstacles()
    for what in (network_probe.INTERFACES, network_probe.GROUPS):
        if what in found:
            log.warning("tasks cannot have a network of their own here", extra={"reason": found[what]})
            return Abilities()
    if network_probe.TUNNELS in found:
        log.warning("tasks cannot reach those of other hosts", extra={"reason": found[network_probe.TUNNELS]})
    return Abilities(interfaces=True, tunnels=network_probe.TUNNELS not in found)


def own_address() -> str:
    """The address this host has towards the world; nothing when it has no way there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route, sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
