"""Tasks' own networks on this host: from a task to its namespace.

What routes for tasks is brought into force before any task needs it (``agent/routing.py``), and is what a task's
interface is looked up in. A task's way:

    begin    its network is made, while its images are pulled
    join     its sandbox, whose namespace its containers are created for
    wired    the interface is in the namespace and packets pass; no container starts before
    release  the interface and the sandbox are gone

Each is done once however many containers ask, and again after a restart of this process, which finds what there was:
names follow from the task, orders say how things shall be. What belongs to no task is removed at start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from sexton.agent.networkfault import FAILED, NetworkFault
from sexton.agent.routing import Routing
from sexton.agent.sandboxes import Sandbox, Sandboxes
from sexton.core import sandbox, wiring
from sexton.core.names import last_part
from sexton.core.task import DesiredTask
from sexton.host import namespaces
from sexton.host.devices import by_hardware_address, names_in
from sexton.host.network import NetworkError, NetworkWorker
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import RuntimeFault
from sexton.settings import Settings
from sexton.wire import acs_task
from sexton.wire.network import PROTOCOL, Interface, SextonNetworkMessage

log = logging.getLogger(__name__)

# The state that names an interface is sent before its task; longer than this means that it does not come.
STATE_SECONDS = 10.0
# An agent that has just started has heard nothing yet, and its control plane may be away.
FIRST_STATE_SECONDS = 300.0
# A task comes after its device was confirmed to be here.
DEVICE_SECONDS = 10.0
DEVICE_POLL = 0.1
METADATA_SERVICES = ("169.254.169.254/32", "fd00:ec2::254/128")
_RESOLVERS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")


class Wired(NamedTuple):
    """A task's network as far as it has come."""

    joined: asyncio.Future[Sandbox]
    ready: asyncio.Future[None]
    work: asyncio.Task[None]


class Networks:
    """The networks of one container instance."""

    def __init__(self, settings: Settings, instance_arn: str, sandboxes: Sandboxes, nursery: Nursery) -> None:
        self._settings = settings
        self._tag = wiring.tag_of(instance_arn)
        self._sandboxes = sandboxes
        self._nursery = nursery
        self._worker = NetworkWorker()
        self.routing = Routing(settings, self._tag, self._worker, nursery)
        self._wired: dict[str, Wired] = {}  # by task
        self.on_released: Callable[[str], Awaitable[None]] = _nothing  # of a device of the host's
        self.on_attached: Callable[[str, str], None] = lambda task, attachment: None
        self.on_wired: Callable[[str, str, str], Awaitable[object]] = _nothing  # task, router, device
        self.on_adopted: Callable[[str, str], Awaitable[object]] = _nothing  # task, its namespace
        self.on_gone: Callable[[str], Awaitable[None]] = _nothing  # task

    @property
    def helper(self) -> int | None:
        """The process that wires, while there is one."""
        return self._worker.pid

    def interface_of(self, task: acs_task.Task) -> Interface | None:
        """A task's interface, as the control plane describes it."""
        given = _given(task)
        return self.routing.interface(given.ec2_id) if given is not None else None

    async def follow(self, message: SextonNetworkMessage) -> bool:
        """Bring a state into force; whether it is. One with interfaces of this host means that tasks come."""
        if any(not one.host for one in message.interfaces):
            self._sandboxes.want()
        return await self.routing.follow(message)

    def begin(self, desired: DesiredTask) -> None:
        """A task comes that needs its network soon: there is no use in waiting for its images first."""
        if _given(desired.task) is not None:
            self._begun(desired)

    async def join(self, desired: DesiredTask) -> str:
        """The engine's id of the container whose network the task's own ones share. NetworkFault, RuntimeFault."""
        return (await asyncio.shield(self._begun(desired).joined)).id

    async def wired(self, desired: DesiredTask) -> None:
        """Returns once the task's interface is there and its rules are in force. NetworkFault, RuntimeFault."""
        await asyncio.shield(self._begun(desired).ready)

    def _begun(self, desired: DesiredTask) -> Wired:
        found = self._wired.get(desired.arn)
        if found is not None and not _is_to_be_repeated(found):
            return found
        loop = asyncio.get_running_loop()
        joined: asyncio.Future[Sandbox] = loop.create_future()
        ready: asyncio.Future[None] = loop.create_future()
        work = self._nursery.start(f"network-{last_part(desired.arn)}", self._wire(desired, joined, ready))
        self._wired[desired.arn] = Wired(joined, ready, work)
        return self._wired[desired.arn]

    async def _wire(self, desired: DesiredTask, joined: asyncio.Future[Sandbox], ready: asyncio.Future[None]) -> None:
        try:
            await self._wire_or_raise(desired, joined)
            ready.set_result(None)
        except NetworkError as error:
            _fail(NetworkFault(f"{FAILED}{error}"), joined, ready)
        except (NetworkFault, RuntimeFault) as error:
            _fail(error, joined, ready)
        except BaseException:
            joined.cancel()
            ready.cancel()
            raise

    async def _wire_or_raise(self, desired: DesiredTask, joined: asyncio.Future[Sandbox]) -> None:
        given = _given(desired.task)
        if given is None:
            raise NetworkFault(f"{FAILED}the task has no interface")
        warming = self._nursery.start("helper", self._worker.warm())
        task_id = last_part(desired.arn)
        # Whoever is given a name by the control plane of Amazon's gets it; our own's tasks have a sandbox's.
        hostname = "" if given.interface_association_protocol == PROTOCOL else given.private_dns_name or ""
        try:
            held = await self._sandboxes.take(task_id, hostname)
        except sandbox.NoProgram as error:
            raise NetworkFault(f"{FAILED}{error}") from None
        write_files(held, given, hostname)
        joined.set_result(held)
        await warming
        order: wiring.Plug | wiring.Adopt
        if given.interface_association_protocol == PROTOCOL:
            order = await self._plug_order(given, held.namespace)
        else:
            order = await self._adopt_order(given, held.namespace)
        await self._worker.ask(order)
        if isinstance(order, wiring.Plug):
            self.on_attached(desired.arn, given.attachment_arn or "")
            await self.on_wired(desired.arn, order.router, order.device)
        else:
            await self.on_adopted(desired.arn, held.namespace)
        log.info(
            "task has its network", extra={"task": desired.arn, "interface": given.ec2_id, "sandbox": held.id[:12]}
        )

    async def _plug_order(self, given: acs_task.ElasticNetworkInterface, namespace: str) -> wiring.Plug:
        try:
            async with asyncio.timeout(STATE_SECONDS if self.routing.state else FIRST_STATE_SECONDS):
                state, mine = await self.routing.settled(given.ec2_id)
        except TimeoutError:
            raise NetworkFault(f"{FAILED}the control plane did not describe interface {given.ec2_id}") from None
        if self.routing.trouble:
            raise NetworkFault(f"{FAILED}{self.routing.trouble}")
        order = wiring.plug(state, mine, self._tag, namespace, self._blackholes)
        if order is None:
            raise NetworkFault(f"{FAILED}the control plane did not describe subnet {mine.subnet}")
        return order

    async def _adopt_order(self, given: acs_task.ElasticNetworkInterface, namespace: str) -> wiring.Adopt:
        """Once the device is on this host, or in the task already: an earlier process may have got that far."""
        order = wiring.adopt(given, namespace, self._blackholes)
        for _ in range(round(DEVICE_SECONDS / DEVICE_POLL)):
            if order.mac in by_hardware_address() or order.mac in by_hardware_address(namespace):
                return order
            await asyncio.sleep(DEVICE_POLL)
        raise NetworkFault(f"{FAILED}no device of this host has the hardware address {order.mac}")

    @property
    def _blackholes(self) -> tuple[str, ...]:
        return METADATA_SERVICES if self._settings.awsvpc_block_imds else ()

    async def release(self, desired: DesiredTask) -> None:
        """Have nothing left of a task's network. RuntimeFault or NetworkError: to be tried again."""
        given = _given(desired.task)
        if given is None:
            return
        wired = self._wired.pop(desired.arn, None)
        if wired is not None:
            wired.work.cancel()
            await asyncio.wait([wired.work])
        await self.on_gone(desired.arn)
        if given.interface_association_protocol != PROTOCOL:
            await self._give_device_back(desired, given)
        elif self.routing.names():
            await self._worker.ask(
                wiring.Unplug(tag=self._tag, device=wiring.device_of(given.ec2_id or ""), addresses=_addresses(given))
            )
        await self._sandboxes.give_back(last_part(desired.arn))

    def gone(self, container_id: str) -> str:
        """A sandbox has ended; the task that had it, if one did."""
        self._sandboxes.gone(container_id)
        return next((arn for arn, one in self._wired.items() if _holds(one, container_id)), "")

    async def _give_device_back(self, desired: DesiredTask, given: acs_task.ElasticNetworkInterface) -> None:
        mac = (given.mac_address or "").lower()
        held = await self._sandboxes.find(last_part(desired.arn))
        if held is not None and mac in by_hardware_address(held.namespace):
            await self._worker.ask(wiring.Release(namespace=held.namespace, mac=mac))
        await self.on_released(mac)

    async def sweep(self, tasks: Iterable[DesiredTask]) -> None:
        """Remove what an earlier process left of tasks that are no more."""
        here = [(one, given) for one in tasks if (given := _given(one.task)) is not None]
        await self._sandboxes.sweep({last_part(one.arn) for one, _ in here})
        if here:
            self._sandboxes.want()
        if not self.routing.names() and not self._has_uplinks():
            return
        order = wiring.Clear(
            tag=self._tag,
            devices=tuple(wiring.device_of(given.ec2_id or "") for _, given in here),
            addresses=tuple(one for _, given in here for one in _addresses(given)),
        )
        try:
            await self._worker.ask(order)
        except NetworkError as error:
            log.error("leftovers of networks cannot be removed", extra={"reason": str(error)})

    async def take_up(self, tasks: Iterable[DesiredTask]) -> None:
        """Have those know again who serve tasks that an earlier process wired."""
        routers = {name: names_in(namespaces.path_of(name)) for name in self.routing.names()}
        for one in tasks:
            given = _given(one.task)
            device = wiring.device_of(given.ec2_id or "") if given else ""
            for name, devices in routers.items():
                if device in devices:
                    await self.on_wired(one.arn, name, device)
            if given and given.interface_association_protocol != PROTOCOL:
                try:
                    held = await self._sandboxes.find(last_part(one.arn))
                except RuntimeFault as error:
                    log.warning("sandbox cannot be looked for", extra={"task": one.arn, "reason": str(error)})
                    continue
                if held is not None:
                    await self.on_adopted(one.arn, held.namespace)

    def vpc_of(self, task: acs_task.Task) -> str:
        """The VPC that a task is in; unknown until the control plane has said so."""
        interface, state = self.interface_of(task), self.routing.state
        if interface is None or state is None:
            return ""
        return next((one.vpc for one in state.subnets if one.id == interface.subnet), "")

    def _has_uplinks(self) -> bool:
        return any(name.startswith(wiring.uplink_prefix(self._tag)) for _, name in socket.if_nameindex())

    async def close(self, *, leave_nothing: bool) -> None:
        """End the helper; the networks stay for the next process, unless nothing may be left."""
        if leave_nothing:
            with contextlib.suppress(RuntimeFault):
                await self._sandboxes.empty()
            if self.routing.names() or self._has_uplinks():
                try:
                    await self._worker.ask(wiring.Clear(tag=self._tag, everything=True))
                except NetworkError as error:
                    log.error("networks are left behind", extra={"reason": str(error)})
        await self._worker.close()


async def _nothing(*_: str) -> None:
    """Nobody wants to know."""


def _given(task: acs_task.Task) -> acs_task.ElasticNetworkInterface | None:
    """The interface of an awsvpc task."""
    if task.network_mode != "awsvpc":
        return None
    return next(iter(task.elastic_network_interfaces or ()), None)


def _addresses(given: acs_task.ElasticNetworkInterface) -> tuple[str, ...]:
    found = [one.private_address for one in given.ipv4_addresses or ()]
    found += [one.address for one in given.ipv6_addresses or ()]
    return tuple(one for one in found if one)


def _is_to_be_repeated(wired: Wired) -> bool:
    """An engine that did not answer, or did not want to, may do so the next time; what is wrong stays wrong."""
    if not wired.ready.done():
        return False
    if wired.ready.cancelled():
        return True
    return isinstance(wired.ready.exception(), RuntimeFault)


def _holds(wired: Wired, container_id: str) -> bool:
    joined = wired.joined
    if not joined.done() or joined.cancelled() or joined.exception() is not None:
        return False
    return joined.result().id == container_id


def _fail(error: Exception, *futures: asyncio.Future[Sandbox] | asyncio.Future[None]) -> None:
    for one in futures:
        if not one.done():
            one.set_exception(error)
            one.exception()  # seen, whether or not anybody waits for it


def write_files(held: Sandbox, given: acs_task.ElasticNetworkInterface, hostname: str) -> None:
    """The names a task knows: the engine puts these files of the sandbox into each of its containers."""
    servers, search = tuple(given.domain_name_servers or ()), tuple(given.domain_name or ())
    resolver = sandbox.resolver_file(servers, search) if servers else sandbox.resolver_of_host(_of_host())
    own = (given.private_dns_name or "", hostname or held.hostname)
    for path, text in ((held.hosts_path, sandbox.hosts_file(own, _addresses(given))), (held.resolver_path, resolver)):
        if not path:
            continue
        try:
            # In place: the engine has the file itself mounted, not its name.
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
        except OSError as error:
            raise NetworkFault(f"{FAILED}cannot write {path}: {error.strerror or error}") from None


def _of_host() -> str:
    for path in _RESOLVERS:
        with contextlib.suppress(OSError):
            return Path(path).read_text()
    return ""
