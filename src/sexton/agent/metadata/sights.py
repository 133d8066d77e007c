"""What the engine shows of containers: which image, which labels, which addresses and mounts.

One call per container and start, when somebody first wants to know. The answer of a container that is not known to run
is not kept, since it is about to change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from sexton.agent.runner import Runner
from sexton.core.sight import Sight
from sexton.core.task import KnownContainer
from sexton.runtime.contract import ContainerInfo, NotFound, Refused, Runtime, Unavailable

# A few hundred bytes each; more containers than a host has.
MOST_KEPT = 1024


class Sights:
    """Looks at containers and remembers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._kept: OrderedDict[str, tuple[float, Sight]] = OrderedDict()

    async def of(self, one: KnownContainer, *, anew: bool = False) -> Sight | None:
        """One container; None while the engine is away."""
        if not one.runtime_id:
            return Sight()
        kept = self._kept.get(one.runtime_id)
        if kept is not None and kept[0] == one.running_since and not anew:
            return kept[1]
        try:
            sight = _sight(await self._runtime.inspect(one.runtime_id))
        except NotFound:
            sight = Sight()
        except (Unavailable, Refused):
            return kept[1] if kept is not None and not anew else None
        if one.running_since:
            self._kept[one.runtime_id] = (one.running_since, sight)
            self._kept.move_to_end(one.runtime_id)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return sight

    async def of_all(self, runners: Iterable[Runner]) -> dict[str, Sight]:
        """All containers of these tasks by their id in the engine; those that cannot be seen now are missing."""
        found = {}
        for runner in runners:
            for one in runner.known.containers:
                sight = await self.of(one) if one.runtime_id else None
                if sight is not None:
                    found[one.runtime_id] = sight
        return found


def _sight(info: ContainerInfo) -> Sight:
    return Sight(
        info.image_id,
        dict(info.labels),
        tuple((one.name, one.ipv4, one.ipv6) for one in info.networks),
        tuple((one.name, one.source, one.destination) for one in info.mounts),
    )
