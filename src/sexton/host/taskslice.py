"""A task's cgroup where cgroups are systemd's: a slice of its own, with its limits, and the same clean end.

An engine with systemd's driver, which is the default on cgroup v2, takes the name of a slice as a container's parent
and has systemd make a scope below it. What is written past systemd into such a cgroup is overwritten at its next
change, so limits are told to systemd itself. A slice is started before the first container needs it, which is one call
that does nothing when it was done before; it is drained while it is still there, like any task's cgroup, and then
stopped. Names are those of Amazon's agent: ``ecstasks-<task id>.slice`` below ``ecstasks.slice``.

The connection to systemd is opened with the first task and kept; the library for it is only loaded then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sexton.host.systemd_bus import MANAGER, MANAGER_PATH, call, connect
from sexton.host.taskcgroup import Limits, TaskCgroups

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

log = logging.getLogger(__name__)

SLICES = "ecstasks"
# systemd answers within milliseconds; one that reads hundreds of unit files anew takes seconds.
ANSWER_SECONDS = 10.0
_EXISTS = "org.freedesktop.systemd1.UnitExists"
_UNKNOWN = "org.freedesktop.systemd1.NoSuchUnit"


class TaskSlices(TaskCgroups):
    """Task slices of the systemd whose root directory this is."""

    def __init__(self, mount: Path, proc: Path = Path("/proc"), root: Path = Path("/")) -> None:
        super().__init__(mount, proc)
        self._root = root
        self._bus: MessageBus | None = None
        self._opening = asyncio.Lock()
        self._home = _home(proc)

    async def writable(self) -> bool:
        try:
            await self._ask("GetUnit", "s", ["-.slice"])
        except OSError as error:
            log.warning("systemd cannot be asked", extra={"reason": str(error)})
            return False
        return True

    def parent(self, task_id: str) -> str:
        return f"{SLICES}-{task_id}.slice"

    def group(self, task_id: str) -> str:
        return f"{self._home}/{SLICES}.slice/{self.parent(task_id)}"

    def container_group(self, task_id: str, container_id: str) -> str:
        return f"{self.group(task_id)}/docker-{container_id}.scope"

    async def prepare(self, task_id: str, limits: Limits) -> None:
        """Start the task's slice with its limits; OSError says why not."""
        name, told = self.parent(task_id), _properties(limits)
        described = [["Description", _variant("s", f"ECS task {task_id}")], *told]
        try:
            await self._ask("StartTransientUnit", "ssa(sv)a(sa(sv))", [name, "replace", described, []])
        except _RefusedError as refused:
            if refused.kind != _EXISTS:
                raise
            await self._ask("SetUnitProperties", "sba(sv)", [name, True, told])

    async def _remove(self, task_id: str) -> bool:
        """Stop the slice, which ends whatever unit is still below it; what the engine made beside it goes as well."""
        if any(self._place(top, task_id).is_dir() for top in self._tops) and not self._in_use(task_id):
            try:
                await self._ask("StopUnit", "ss", [self.parent(task_id), "replace"])
            except OSError as error:
                if not (isinstance(error, _RefusedError) and error.kind == _UNKNOWN):
                    log.warning("slice cannot be stopped", extra={"task": task_id, "reason": str(error)})
        return await super()._remove(task_id)

    def _in_use(self, task_id: str) -> bool:
        """Whether something still runs there: it is never ended in passing."""
        return bool(self._processes(task_id, ""))

    async def remove_parent(self) -> None:
        """Stop the common slice where nothing is left below it, not even another agent's."""
        common = f"{self._home}/{SLICES}.slice".lstrip("/")
        if any(path.is_dir() for top in self._tops for path in _below(top / common)):
            return
        with contextlib.suppress(OSError):
            await self._ask("StopUnit", "ss", [f"{SLICES}.slice", "replace"])
            for top in self._tops:
                with contextlib.suppress(OSError):
                    (top / common).rmdir()

    async def close(self) -> None:
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    async def _ask(self, member: str, signature: str, body: list[Any]) -> Any:
        """One call of the manager, over a connection that is opened anew when the last one is gone; OSError when there
        is none to be had."""
        from dbus_fast import AuthError, DBusError

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                bus = await self._connected()
                return await call(bus, MANAGER_PATH, f"{MANAGER}.Manager", member, signature, body)
        except TimeoutError:
            raise OSError(f"systemd did not answer within {ANSWER_SECONDS:g} s") from None
        except (EOFError, AuthError) as error:
            raise OSError(f"systemd cannot be asked: {error or 'it hung up'}") from None
        except DBusError as error:
            raise _RefusedError(error.type, str(error)) from None

    async def _connected(self) -> MessageBus:
        async with self._opening:
            if self._bus is None or not self._bus.connected:
                self._bus = await connect(self._root)
            return self._bus


class _RefusedError(OSError):
    """systemd's own answer; ``kind`` is the error's name on the bus."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"systemd does not do it: {text}")
        self.kind = kind


def _home(proc: Path) -> str:
    """Where systemd has its cgroups: at the top of each hierarchy, unless it was itself started somewhere below."""
    try:
        lines = (proc / "1/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "name=systemd" in controllers or (not controllers and len(lines) == 1):
            return path.removesuffix("/").removesuffix("/init.scope").rstrip("/")
    return ""


def _properties(limits: Limits) -> list[list[Any]]:
    """The limits in systemd's words, which mean the same on every kind of hierarchy; counted, so that they bind."""
    told: dict[str, tuple[str, Any]] = {
        "CPUAccounting": ("b", True),
        "MemoryAccounting": ("b", True),
        "TasksAccounting": ("b", True),
    }
    if limits.cpu_quota:
        told["CPUQuotaPerSecUSec"] = ("t", round(limits.cpu_quota * 1_000_000))
        told["CPUQuotaPeriodUSec"] = ("t", limits.period_us)
    elif limits.cpu_weight:
        told["CPUWeight"] = ("t", limits.cpu_weight)
    if limits.memory:
        told["MemoryMax"] = ("t", limits.memory)
    if limits.pids:
        told["TasksMax"] = ("t", limits.pids)
    return [[name, _variant(kind, value)] for name, (kind, value) in told.items()]


def _variant(kind: str, value: Any) -> Any:
    from dbus_fast import Variant

    return Variant(kind, value)


def _below(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except OSError:
        return []
