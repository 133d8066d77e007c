"""Whether this host would join its cluster, and why not: asked beforehand, with no effect on anything.

Each question is asked even if an earlier one was answered badly, so that one look shows all that has to be mended.
Nothing is written, registered, created or locked; only calls that read are made. The exit code is that of the agent
which would start now: 0 it would join, 1 something is away that may come back, 5 it would stand down.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp

from sexton.agent import register
from sexton.agent.checkpoint import Self
from sexton.agent.metadata.reach import unserved
from sexton.agent.records import Records
from sexton.agent.standdown import EXIT_CODE, StandDown
from sexton.agent.state import RECORDS, STATE_FILE
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import Credentials, CredentialSource, NoCredentials
from sexton.core import names
from sexton.core.endpointrules import ADDRESS
from sexton.host import gpus, packetfilter
from sexton.host.gpus import Gpus
from sexton.host.packetfilter import FilterError
from sexton.runtime.contract import EngineInfo, RuntimeFault
from sexton.runtime.opening import open_runtime
from sexton.settings import Settings
from sexton.wire import ecs
from sexton.wire.errors import EcsError

MAY_HEAL = 1
# A question that takes longer has no answer now.
ANSWER_SECONDS = 10.0
# Refusals that say nothing about the cluster: whoever may register need not be allowed to describe.
_NOT_ALLOWED = frozenset({"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"})


class Finding(NamedTuple):
    """The answer to one question. ``code`` is what the agent would end with for it, 0 for nothing."""

    name: str
    code: int
    says: str
    cure: str = ""


class _Given:
    """Credentials that were found once; a check must not go through the chain for each call."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def current(self) -> Credentials:
        return self._credentials

    def forget(self, refused: Credentials) -> None:
        """There are no others."""


async def look(
    settings: Settings,
    http: aiohttp.ClientSession,
    credentials: CredentialSource,
    endpoint: str,
    memory_mib: int,
) -> list[Finding]:
    """Every finding, in the order in which the agent would come across them."""
    found, keys = await _credentials(credentials)
    findings = [found, _state(settings)]
    found, info = await _engine(settings)
    findings.append(found)
    if keys is not None:
        client = EcsClient(endpoint, settings.region, _Given(keys), http)
        findings += await _backend(client, settings, endpoint)
    devices = await gpus.find(settings.gpu_info, pause=0.0) if settings.gpu_support else gpus.NONE
    findings.append(_registration(settings, info, memory_mib, devices))
    findings.append(await _task_endpoint(settings))
    return findings


def exit_code(findings: list[Finding]) -> int:
    """What somebody has to mend outweighs what may come back by itself."""
    return max((one.code for one in findings), default=0)


def report(settings: Settings, findings: list[Finding]) -> str:
    """The findings for a person."""
    lines = []
    for one in findings:
        lines.append(f"{'ok  ' if not one.code else 'FAIL'} {one.name}: {one.says}")
        if one.cure:
            lines.append(f"     next: {one.cure}")
    verdicts = {
        0: f"This host would join cluster {settings.cluster}.",
        MAY_HEAL: "This host would not join now: the agent would wait or be started again.",
        EXIT_CODE: "This host would not join: the agent would stand down.",
    }
    return "\n".join([*lines, verdicts[exit_code(findings)]])


async def _credentials(source: CredentialSource) -> tuple[Finding, Credentials | None]:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            keys = await source.current()
    except TimeoutError:
        return Finding("credentials", MAY_HEAL, f"no answer within {ANSWER_SECONDS:g} s"), None
    except NoCredentials as error:
        code = MAY_HEAL if error.may_heal else EXIT_CODE
        return Finding("credentials", code, str(error), "Give the agent credentials"), None
    return Finding("credentials", 0, f"key {keys.access_key_id[:4]}..."), keys


def _state(settings: Settings) -> Finding:
    place = Path(settings.data_dir)
    if not settings.checkpoint:
        return Finding("state", 0, "nothing is remembered (ECS_CHECKPOINT), so it would register as a new instance")
    nearest = next(path for path in (place, *place.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("state", EXIT_CODE, f"cannot write to {nearest}", "Choose another ECS_DATADIR")
    path = place / STATE_FILE
    if not path.exists():
        return Finding("state", 0, f"none in {place} yet, so it would register as a new instance")
    me = Records(place / RECORDS).identity(Self) or Self()
    if me.cluster and names.parse_cluster(me.cluster) != names.parse_cluster(settings.cluster):
        return Finding(
            "state",
            EXIT_CODE,
            f"it belongs to cluster {me.cluster}, and {settings.cluster} is configured",
            f"Set ECS_CLUSTER back, or remove {place} to join the other cluster as a new instance",
        )
    return Finding("state", 0, f"it would come back as {me.instance_arn or 'a new instance'}")


async def _engine(settings: Settings) -> tuple[Finding, EngineInfo | None]:
    start_it = "Start it, or set DOCKER_HOST; the agent waits for it"
    try:
        runtime = open_runtime(settings.docker_host)
    except ValueError as error:
        return Finding("engine", EXIT_CODE, str(error), "Correct DOCKER_HOST"), None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            info = await runtime.describe()
    except TimeoutError:
        return Finding("engine", MAY_HEAL, f"no answer within {ANSWER_SECONDS:g} s", start_it), None
    except RuntimeFault as error:
        return Finding("engine", MAY_HEAL, str(error), start_it), None
    finally:
        await runtime.close()
    return Finding("engine", 0, f"{info.name} {info.version}, API {info.api_version}"), info


async def _backend(client: EcsClient, settings: Settings, endpoint: str) -> list[Finding]:
    describe = ecs.DescribeClustersRequest(clusters=(settings.cluster,))
    try:
        answer = await client.call("DescribeClusters", describe, ecs.DescribeClustersResponse)
    except Unreachable as error:
        return [Finding("control plane", MAY_HEAL, str(error), "Check ECS_BACKEND_HOST, the region and the network")]
    except EcsError as error:
        reached = Finding("control plane", 0, f"{endpoint} answers")
        if error.code in _NOT_ALLOWED:
            may = "whether it is known cannot be told: these credentials may not describe clusters"
            return [reached, Finding("cluster", 0, may)]
        return [
            Finding("control plane", EXIT_CODE, f"{endpoint} refuses: {error}", "Correct the credentials or the region")
        ]
    reached = Finding("control plane", 0, f"{endpoint} answers in region {settings.region}")
    known = [one for one in answer.clusters or () if one.status in (None, "ACTIVE")]
    if known:
        return [reached, Finding("cluster", 0, f"{settings.cluster} is active")]
    if settings.cluster == names.DEFAULT_CLUSTER:
        return [reached, Finding("cluster", 0, "the default cluster is not there yet and would be made")]
    return [
        reached,
        Finding(
            "cluster", EXIT_CODE, f"there is no cluster {settings.cluster}", "Correct ECS_CLUSTER, or make the cluster"
        ),
    ]


def _registration(settings: Settings, info: EngineInfo | None, memory_mib: int, devices: Gpus) -> Finding:
    try:
        capacity = register.resources(settings, memory_mib)
    except StandDown as error:
        return Finding("registration", EXIT_CODE, error.cause, error.cure)
    by_name = {one.name: one for one in capacity}
    offer = f"{by_name['CPU'].integer_value} CPU units, {by_name['MEMORY'].integer_value} MiB"
    if settings.gpu_support:
        offer += f", {len(devices.ids)} GPUs"
    if info is not None:
        offered = register.attributes(settings, info, task_limits=settings.task_limits is not False, gpus=devices)
        offer += f", {len(offered)} attributes"
    return Finding("registration", 0, f"it would offer {offer}")


async def _task_endpoint(settings: Settings) -> Finding:
    """Tasks run without one, so its want ends nothing."""
    name = "task endpoint"
    reason = unserved(settings)
    if reason:
        return Finding(name, 0, f"none: {reason}; tasks find nothing at {ADDRESS}")
    try:
        await packetfilter.listing("tables", "ip")
    except FilterError as error:
        return Finding(name, 0, f"none: {error}; tasks find nothing at {ADDRESS}", "Install nftables, and be root")
    return Finding(name, 0, f"tasks would find it at {ADDRESS}")


async def run(settings: Settings, environment: Mapping[str, str]) -> int:
    """Look, print, and give the exit code."""
    from sexton.agent.abilities import memory_mib
    from sexton.agent.connections import endpoint_of, open_http
    from sexton.cloud.credential_chain import agent_keyring

    try:
        session = open_http(settings)
    except StandDown as error:
        findings = [Finding("settings", EXIT_CODE, error.cause, error.cure)]
        print(report(settings, findings))  # noqa: T201 - it is what was asked for
        return exit_code(findings)
    async with session as http:
        keyring = agent_keyring(
            http, environ=environment, external=settings.external, profile=settings.credential_profile
        )
        findings = await look(settings, http, keyring, endpoint_of(settings), memory_mib())
    print(report(settings, findings))  # noqa: T201 - it is what was asked for
    return exit_code(findings)


async def healthcheck(settings: Settings) -> int:
    """Whether an agent answers on this host: any answer is one."""
    port = settings.introspection[1]
    url = f"http://{settings.healthcheck_host}:{port}/v1/metadata"
    try:
        timeout = aiohttp.ClientTimeout(total=25.0)
        async with aiohttp.ClientSession(timeout=timeout) as http, http.head(url):
            return 0
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        print(f"sexton: cannot reach an agent at {url}: {error}")  # noqa: T201
        return 1
