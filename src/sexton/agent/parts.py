"""What a registered agent is made of, and how its parts know each other. Nothing is decided here.

``open_networks`` first, on hosts that can give tasks networks of their own, then ``open``, which takes up the tasks of
an earlier process and opens the connections. Parts are held from the moment they are made, so that a start which fails
half-way can be gone down from. What few hosts use is imported where it is wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import msgspec

from sexton.agent.admission import Admission
from sexton.agent.checkpoint import Checkpoint, Saved
from sexton.agent.connections import ENGINE_BACKOFF, endpoint_of, own_log
from sexton.agent.engine import Engine
from sexton.agent.gc import Cleanup
from sexton.agent.history import History
from sexton.agent.imagebook import ImageBook
from sexton.agent.instancehealth import InstanceHealth
from sexton.agent.localapi import LocalApi
from sexton.agent.metadata.endpoint import TaskEndpoint
from sexton.agent.metadata.services import TaskServices
from sexton.agent.metadata.where import Where
from sexton.agent.oom import Victims
from sexton.agent.ports import PortAllocator
from sexton.agent.reporter import Reporter
from sexton.agent.rolekeys import FirstOf, RoleKeys
from sexton.agent.runner import Runner
from sexton.agent.session import Session
from sexton.agent.sizing import Sizing, follow
from sexton.agent.standdown import StandDown
from sexton.agent.stats import CgroupStats
from sexton.agent.steps.context import Identity as Member
from sexton.agent.steps.context import StepContext
from sexton.agent.supplies import Supplies
from sexton.agent.telemetry import Telemetry
from sexton.cloud.client import EcsClient
from sexton.cloud.credential_chain import agent_keyring
from sexton.cloud.credentials import CredentialSource
from sexton.cloud.services import Services
from sexton.core import awslogs
from sexton.core.hostpool import Pool
from sexton.core.task import ContainerStatus, DesiredTask
from sexton.host.taskcgroup import TaskCgroups
from sexton.kit.listener import Listener
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import EngineInfo, Runtime, RuntimeFault
from sexton.settings import Settings
from sexton.store.contract import Store

if TYPE_CHECKING:
    from sexton.agent.attachments import Attachments
    from sexton.agent.logs.delivery import Way
    from sexton.agent.logs.ways import Ways
    from sexton.agent.networks import Networks

log = logging.getLogger(__name__)

# Engines with this API take the option that says how soon lines are handed on.
ENGINE_FLUSHES = "1.41"


class Given(NamedTuple):
    """What there is once this host is registered."""

    settings: Settings
    environment: Mapping[str, str]
    http: aiohttp.ClientSession
    credentials: CredentialSource
    client: EcsClient
    member: Member
    where: Where
    runtime: Runtime
    info: EngineInfo
    store: Store
    checkpoint: Checkpoint
    book: ImageBook
    history: History
    endpoint: TaskEndpoint
    cgroups: TaskCgroups | None
    task_limits: bool
    pool: Pool
    saved: Sequence[Saved]


class Parts:
    """The parts of one agent. ``links`` are ended before its tasks' ``work``, and ``saving`` after that."""

    def __init__(
        self,
        given: Given,
        links: Nursery,
        work: Nursery,
        saving: Nursery,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._given = given
        self._links = links
        self._work = work
        self._saving = saving
        self._on_failure = on_failure
        self._victims = Victims()
        self._attachments: Attachments | None = None
        self.networks: Networks | None = None
        self.engine: Engine | None = None
        self.ways: Ways | None = None
        self.services: TaskServices | None = None
        self.sizing: Sizing | None = None
        self.listener: Listener | None = None

    async def open_networks(self, settings: Settings) -> None:
        """With the settings that the host registered with."""
        from sexton.agent.attachments import Attachments  # for hosts that can have such tasks
        from sexton.agent.networks import Networks
        from sexton.agent.sandboxes import Sandboxes

        given, member = self._given, self._given.member
        sandboxes = Sandboxes(given.runtime, settings, member.instance_arn, given.cgroups)
        self.networks = Networks(settings, member.instance_arn, sandboxes, self._work)
        live = [one.desired for one in given.saved if not one.known.removed]
        for delay in ENGINE_BACKOFF.delays():
            try:
                await self.networks.sweep(live)
                break
            except RuntimeFault as error:
                log.warning("waiting for the engine's list of sandboxes", extra={"reason": str(error)})
            await asyncio.sleep(delay)
        self._attachments = Attachments(given.store, given.client.call, member.cluster, self._links)
        await self._attachments.load()
        self.networks.on_released = self._attachments.forget
        self.networks.on_attached = self._attachments.confirm
        if given.endpoint.open:
            doors = given.endpoint.doors
            self.networks.on_wired, self.networks.on_gone = doors.open, doors.close
            self.networks.on_adopted = doors.open_inside
            await self.networks.take_up(live)
        self._links.start("sandboxes", sandboxes.run())

    async def open(self) -> None:
        """Take up the tasks, then connect."""
        given, settings, http = self._given, self._given.settings, self._given.http
        info, client, member, endpoint = given.info, given.client, given.member, given.endpoint
        reserved = frozenset(settings.reserved_ports + settings.reserved_ports_udp)
        context = StepContext(
            runtime=given.runtime,
            settings=msgspec.structs.replace(settings, task_limits=given.task_limits),
            identity=member,
            ports=PortAllocator(settings.dynamic_ports, reserved),
            supplies=self._supplies(),
            cgroups=given.cgroups,
            files=endpoint.files(member, given.where, self._work),
            variables=endpoint.variables,
            networks=self.networks,
        )
        self.ways = self._log_ways(context.supplies)
        context = context._replace(logs=self.ways)
        self._saving.start("checkpoint", given.checkpoint.run())
        self.engine = Engine(context, given.checkpoint, self._work, Admission(given.pool))
        self.services = TaskServices(
            endpoint,
            settings,
            member,
            context.supplies.roles,
            self.engine.find,
            lambda keys: EcsClient(endpoint_of(settings), settings.region, keys, http),
            given.runtime,
        )
        endpoint.serve(context, info, client, self.engine.runners, given.where)
        await endpoint.start(self._links)
        reporter = Reporter(client, settings.cluster, self._work, self.engine.acknowledged)
        self.engine.start(reporter, given.saved)
        if self.ways is not None:
            self.ways.open()
        if settings.agent_log_group:
            self._send_own_log(context.supplies)
        self.engine.on_oom = self._name_victim
        self.engine.on_stopped = self._after_stop
        if endpoint.open:
            self._links.start("faults", self.services.clear_faults(self.engine.runners()))
        self._connect(context, self.engine, reporter)

    def _connect(self, context: StepContext, engine: Engine, reporter: Reporter) -> None:
        """The control plane, those who ask on this host, and what is done by the clock."""
        given, settings, http = self._given, self._given.settings, self._given.http
        info, client, member = given.info, given.client, given.member
        health = InstanceHealth(given.runtime)
        session = Session(
            http,
            client,
            given.credentials,
            member,
            settings.region,
            info,
            engine,
            given.checkpoint,
            context.supplies.roles,
            on_heartbeat=lambda: self._look_at(health),
            networks=self.networks,
            attachments=self._attachments,
        )
        stats = CgroupStats(Path(settings.cgroup_path))
        telemetry = Telemetry(http, client, given.credentials, context, settings.region, info, engine, stats, health)
        sizing = self.sizing = follow(context, engine, stats, info.cgroup_driver, given.store)
        if settings.cloudwatch:
            self._send_metrics(sizing)
        telemetry.on_sample = sizing.sample
        self._links.start("sizes", sizing.run())
        self._links.start("clean-up", Cleanup(context, engine, info.root_dir).run())
        self._links.start("acs", self._until_stood_down(session))
        self._links.start("tcs", telemetry.run())
        if settings.introspection[1]:
            from sexton.agent.introspection import Introspection, keep_listening  # unless it is off
            from sexton.agent.metrics import Metrics

            metrics = Metrics(context, engine, session, telemetry, reporter, stats, health, sizing.use_of_late)
            introspection = Introspection(member, engine, given.endpoint.sights, metrics)
            self._links.start("introspection", keep_listening(introspection, *settings.introspection))
        self.listener = Listener(LocalApi(engine, session, given.runtime, member, given.history, sizing, self.networks))

    def _send_metrics(self, sizing: Sizing) -> None:
        """Imported where it is wanted, which is on few hosts."""
        from sexton.agent.cloudwatch import CloudWatch
        from sexton.agent.cloudwatch import Member as OnHost
        from sexton.cloud.monitoring import Monitoring

        given, settings, member = self._given, self._given.settings, self._given.member
        sizing.cloudwatch = CloudWatch(
            Monitoring(given.http, given.environment, settings.region),
            settings.cloudwatch,
            OnHost(member.cluster, member.instance_arn, given.checkpoint.self.ec2_instance_id),
            self._own_keys(),
            sizing.use,
        )
        self._links.start("cloudwatch", sizing.cloudwatch.run())

    def _send_own_log(self, supplies: Supplies) -> None:
        """Imported where it is wanted, which is on few hosts."""
        from sexton.agent.logs.ownlog import OwnLog
        from sexton.cloud.logs import LogsClient

        given = self._given
        to = own_log(given.settings, given.environment, given.member.instance_arn)
        self._links.start("own-log", OwnLog(LogsClient(given.http), to, supplies.roles.own).run())

    def _log_ways(self, supplies: Supplies) -> Ways | None:
        """Where the engine is on this host, it can reach a relay here."""
        given, settings = self._given, self._given.settings
        if not settings.docker_host.startswith("unix:") or awslogs.DRIVER not in settings.logging_drivers:
            return None
        from sexton.agent.logs.ways import Ways  # for hosts that have the driver
        from sexton.cloud.logs import LogsClient
        from sexton.core.logstanding import FOLDER

        return Ways(
            Path(settings.data_dir) / FOLDER,
            settings.log_spool << 20,
            LogsClient(given.http),
            given.environment,
            supplies.roles.kept,
            supplies.roles.own,
            self._is_over,
            region=settings.region,
            flush=ENGINE_FLUSHES in given.info.api_versions,
        )

    def _is_over(self, way: Way) -> bool:
        """Whether a container will write nothing more."""
        assert self.engine is not None
        runner = self.engine.find(way.task)
        return runner is None or runner.known.container(way.container).status is ContainerStatus.STOPPED

    def _own_keys(self) -> FirstOf:
        """Calls to AWS itself are made with what the host has for that; the key of a control plane is the last
        resort."""
        return FirstOf(agent_keyring(self._given.http, environ=self._given.environment), self._given.credentials)

    def _supplies(self) -> Supplies:
        given, settings = self._given, self._given.settings
        return Supplies(
            given.runtime,
            settings,
            Services(given.http, given.environment),
            RoleKeys(self._own_keys(), may_use_own=bool(settings.backend)),
            self._work,
            book=given.book,
        )

    async def _until_stood_down(self, session: Session) -> None:
        try:
            await session.run()
        except StandDown as reason:  # a decision: whoever owns this process hears of it, and no traceback is logged
            self._on_failure("acs", reason)

    def _name_victim(self, runner: Runner, container: str) -> None:
        self._links.start("oom", self._victims.name(runner, container))
        if self.sizing is not None:
            self.sizing.killed(runner, container)

    def _after_stop(self, desired: DesiredTask) -> None:
        if desired.task.enable_fault_injection and self.services is not None and self.engine is not None:
            self._work.start("faults", self.services.clear_faults(self.engine.runners()))

    def _look_at(self, health: InstanceHealth) -> None:
        self._links.start("health", health.check())
