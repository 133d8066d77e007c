"""Looks whether the container engine answers, and how long it takes: one that is stuck starts and stops nothing.

A socket nobody listens at is no engine; one whose listener is silent is trouble, and the other probe's blindness has
its reason here.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.shortage import judge_engine
from sexton.runtime.contract import RuntimeFault, TimedOut

# An engine that is slower than this is stuck for whoever waits for it.
DEADLINE = 2.5


async def look(scene: Scene) -> Outcome:
    if scene.docker_host.startswith("unix://"):
        socket = Path(scene.docker_host.removeprefix("unix://"))
        try:
            if not socket.exists():  # noqa: ASYNC240 - one stat on a local file system
                return NotPresent(f"no container engine listens at {socket}")
        except OSError as error:
            return CouldNotLook(f"cannot reach the container engine at {socket}: {error.strerror}", "Run it as root.")
    from sexton.runtime.opening import open_runtime  # an HTTP client is only loaded when there is somebody to talk to

    try:
        runtime = open_runtime(scene.docker_host)
    except ValueError as error:
        return CouldNotLook(str(error), "Give --docker-host (or DOCKER_HOST) an address of that kind.")
    begun = time.monotonic()
    took: float | None = None
    version = ""
    try:
        async with asyncio.timeout(DEADLINE):
            engine = await runtime.describe()
            await runtime.list({"sexton.none": "none"})  # a question about no container still takes the engine's locks
        took = time.monotonic() - begun
        version = f"{engine.name} {engine.version}"
    except (TimeoutError, TimedOut):
        pass
    except RuntimeFault as fault:
        return CouldNotLook(
            f"cannot ask the container engine at {scene.docker_host}: {fault}",
            "Check that it runs and that this user may use it: docker info.",
        )
    finally:
        await runtime.close()
    finding = judge_engine(took, DEADLINE, scene.docker_host)
    says = f"no answer within {DEADLINE:g} s" if took is None else f"{version} answers in {took * 1000:.0f} ms"
    return Looked(
        says=says,
        findings=() if finding is None else (finding,),
        figures={} if took is None else {"answer_microseconds": round(took * 1e6)},
    )


PROBE = Probe(
    name="engine",
    reads=("the container engine: what it is, and a list of containers that are none",),
    cost="two requests, a few milliseconds on a healthy host; 2.5 s at most",
    look=look,
    every=30.0,
)
