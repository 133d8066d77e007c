"""From a container's port mappings to what is published, and back from what an engine says it has published.

A mapping names one port of the container or a range of them; a host port may be given or is chosen when the container
is made, for a range as many in a row. A range stays one binding, as it is reported; the engine is told each port.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from sexton.core.task import Binding
from sexton.wire import acs_task

# So many ports of a container that uses a range can be reported.
MOST_BINDINGS = 100
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what the engine publishes on, as the API reports it

_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_PROTOCOLS = (None, "", "tcp", "udp")


class BadMapping(Exception):  # noqa: N818 - becomes the reason of a task
    """A mapping that cannot be published; the message begins with the error's name on the wire."""


def publishes(task: acs_task.Task) -> bool:
    """Whether the engine publishes ports; in other modes than bridge there is nothing to publish."""
    return (task.network_mode or "bridge") == "bridge"


def check(task: acs_task.Task, container: acs_task.Container) -> None:
    """BadMapping for a mapping that no host could publish."""
    mappings = container.port_mappings or ()
    ports = 0
    for mapping in mappings:
        if mapping.protocol not in _PROTOCOLS:
            raise BadMapping(f"UnrecognizedTransportProtocol: {mapping.protocol}")
        first, last = _span(mapping)
        if not 0 < first <= last < 65536 or not 0 <= (mapping.host_port or 0) < 65536:
            raise BadMapping(f"UnparsablePort: container {container.name} asks for {mapping.container_port_range or 0}")
        ports += last - first + 1
    if publishes(task) and any(one.container_port_range for one in mappings) and ports > MOST_BINDINGS:
        raise BadMapping(
            f"HostConfigError: container {container.name} publishes {ports} ports, of which {MOST_BINDINGS} "
            "can be reported when one mapping is a range"
        )


def _span(mapping: acs_task.PortMapping) -> tuple[int, int]:
    if not mapping.container_port_range:
        return mapping.container_port or 0, mapping.container_port or 0
    found = _RANGE.fullmatch(mapping.container_port_range)
    if found is None:
        raise BadMapping(f"UnparsablePort: {mapping.container_port_range}")
    return int(found[1]), int(found[2])


def choose(task: acs_task.Task, container: acs_task.Container, take: Callable[[str, int], int]) -> tuple[Binding, ...]:
    """The bindings of a container that is about to be made; ``take`` gives the first of so many free host ports."""
    if not publishes(task):
        return ()
    bindings = []
    for mapping in container.port_mappings or ():
        first, last = _span(mapping)
        protocol = mapping.protocol or "tcp"
        fixed = 0 if mapping.container_port_range else mapping.host_port
        bindings.append(_binding(mapping, fixed or take(protocol, last - first + 1), EVERYWHERE))
    return tuple(bindings)


def _binding(mapping: acs_task.PortMapping, host_port: int, address: str) -> Binding:
    first, last = _span(mapping)
    return Binding(
        container_port=first,
        host_port=host_port,
        bind_ip=address,
        protocol=mapping.protocol or "tcp",
        span=last - first + 1 if mapping.container_port_range else 0,
    )


def each(bindings: Iterable[Binding]) -> Iterator[tuple[int, int, str]]:
    """Every single port: of the container, of the host, and its protocol."""
    for one in bindings:
        for offset in range(one.span or 1):
            yield one.container_port + offset, one.host_port + offset, one.protocol


def seen(container: acs_task.Container, ports: Iterable[tuple[int, int, str, str]]) -> tuple[Binding, ...]:
    """The bindings that an engine has published, given as (container port, host port, protocol, address)."""
    published = {(port, protocol, address): host for port, host, protocol, address in ports}
    bindings = []
    for mapping in container.port_mappings or ():
        first, last = _span(mapping)
        protocol = mapping.protocol or "tcp"
        addresses = sorted({at for port, kind, at in published if port == first and kind == protocol})
        for address in addresses:
            bindings.append(_binding(mapping, published[first, protocol, address], address))
            for port in range(first, last + 1):
                published.pop((port, protocol, address), None)
    # Whatever else it says is published, from a payload's own settings.
    bindings += [
        Binding(container_port=port, host_port=host, bind_ip=address, protocol=protocol)
        for (port, protocol, address), host in published.items()
    ]
    return tuple(bindings)
