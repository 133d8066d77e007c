"""Removes images that no container uses and that are older than the rule says, the oldest first, few at a time.

Names are taken away one by one, as the engine allows: an image in use is refused by the engine itself, also when a
container begins to use it in between. What was removed can be pulled again; what was only built here is lost, so an
image without a registry's digest is left alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import Cannot, Did, Plan, PlannedStep, Proof
from sexton.core.finding import Finding, size
from sexton.core.policy import PruneImages
from sexton.core.pruning import Stored, unused_images
from sexton.runtime.contract import Conflict, Runtime, RuntimeFault
from sexton.runtime.opening import open_runtime

# An engine lists its images within this time, computing sizes meanwhile.
LIST_SECONDS = 20.0


async def plan(ground: Ground, finding: Finding) -> Plan | Cannot:
    try:
        runtime = open_runtime(ground.docker_host)
    except ValueError as error:
        return Cannot(str(error), "Give DOCKER_HOST an address of that kind.")
    try:
        async with asyncio.timeout(LIST_SECONDS):
            engine = await runtime.describe()
            images, used = await _images_and_users(runtime)
    except TimeoutError:
        return Cannot(f"the container engine did not list its images within {LIST_SECONDS:g} s", "See docker info.")
    except RuntimeFault as fault:
        return Cannot(f"cannot ask the container engine at {ground.docker_host}: {fault}", "See docker info.")
    finally:
        await runtime.close()
    mount = finding.fingerprint.split("/", 2)[-1]
    if not _same_disk(ground.root, mount, engine.root_dir):
        return Cannot(f"the container engine keeps nothing on {mount}: its images are in {engine.root_dir}")
    rule = ground.rule if isinstance(ground.rule, PruneImages) else PruneImages()
    chosen = unused_images(images, used, older_than=ground.now - rule.unused_for, most=rule.most_touched)
    if not chosen:
        return Cannot("every image is in use, too young, or exists nowhere else: none is removed")
    return Plan(
        remedy=REMEDY.name,
        fingerprint=finding.fingerprint,
        target="images",
        says=f"remove {len(chosen)} images that no container uses, up to {size(sum(one.size for one in chosen))}",
        steps=tuple(
            PlannedStep(name, f"remove {name} ({size(image.size)})")
            for image in chosen
            for name in image.names or (image.id,)
        ),
        undo=tuple(f"docker pull {ref}" for image in chosen for ref in image.names),
        touches=len(chosen),
        seconds=ground.rule.seconds,
    )


def _same_disk(root: Path, mount: str, folder: str) -> bool:
    """Does removing images help there? Where nobody can tell, the finding decides."""
    if not folder:
        return True
    try:
        return os.stat(root / mount.lstrip("/")).st_dev == os.stat(root / folder.lstrip("/")).st_dev
    except OSError:
        return True


async def _images_and_users(runtime: Runtime) -> tuple[list[Stored], frozenset[str]]:
    """All images, and the ids of those that some container is made from."""
    images = [
        Stored(id=image.id, names=image.tags, size=image.size, created=image.created_at, elsewhere=bool(image.digests))
        for image in await runtime.images()
    ]
    return images, frozenset([brief.image_id for brief in await runtime.list({})])


async def carry_out(ground: Ground, planned: Plan, done: frozenset[str]) -> AsyncIterator[Did]:
    runtime = open_runtime(ground.docker_host)
    try:
        await runtime.describe()
        for step in planned.steps:
            if step.key in done:
                continue
            try:
                await runtime.remove_image(step.key)
            except Conflict as busy:
                yield Did(step.key, f"left: {busy}")
            else:
                yield Did(step.key, f"{step.key} is removed")
    except RuntimeFault as fault:
        raise CannotAct(f"the container engine does not remove images: {fault}") from fault
    finally:
        await runtime.close()


async def prove(ground: Ground, planned: Plan) -> Proof:
    runtime = open_runtime(ground.docker_host)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            await runtime.describe()
            images = await runtime.images()
    except (TimeoutError, RuntimeFault) as fault:
        return Proof(False, f"cannot see which images are left: {fault or 'no answer'}")
    finally:
        await runtime.close()
    here = {ref for image in images for ref in (*image.tags, image.id)}
    left = [step.key for step in planned.steps if step.key in here]
    gone = len(planned.steps) - len(left)
    stays = f"; still there: {', '.join(left[:5])}" if left else ""
    return Proof(gone > 0, f"{gone} of {len(planned.steps)} names are gone{stays}")


REMEDY = Remedy(
    name="prune-images",
    answers=("disk/*",),
    touches="images that no container uses and that a registry has, older than 'unused-for'",
    plan=plan,
    carry_out=carry_out,
    prove=prove,
)
