"""Whom the agent calls and on what terms: the one HTTP session, where the ECS API and the agent's own log are, and the
container engine with how long each of its answers may take.

Nothing is called here: what cannot be right is said at once, before anything else is begun.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

import aiohttp

from sexton.agent.standdown import StandDown
from sexton.cloud import places
from sexton.cloud.places import dns_suffix
from sexton.core import names
from sexton.core.awslogs import Destination
from sexton.kit.certificate import CertificateError, trusting
from sexton.kit.retry import Backoff
from sexton.runtime.contract import Runtime
from sexton.runtime.deadlines import Deadlines
from sexton.runtime.opening import open_runtime
from sexton.settings import Settings

_PROXIES = frozenset({"http_proxy", "https_proxy"})
# How an engine that does not answer is asked again.
ENGINE_BACKOFF = Backoff(first=0.25, cap=30.0)


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


def own_log(settings: Settings, environment: Mapping[str, str], instance_arn: str) -> Destination:
    """Where the agent's own log goes."""
    chosen = settings.logs_endpoint if "://" in settings.logs_endpoint else ""
    ours = settings.backend if settings.backend and "amazonaws" not in settings.backend else ""
    endpoint = chosen or places.configured("CLOUDWATCH_LOGS", environment) or ours
    if settings.logs_endpoint == "aws" or not endpoint:
        endpoint = places.endpoint("CLOUDWATCH_LOGS", settings.region, environment)
    stream = names.last_part(instance_arn)
    return Destination(endpoint, settings.region, settings.agent_log_group, stream, create_group=True)


def open_engine(settings: Settings) -> Runtime:
    """The container engine, which may not answer yet."""
    deadlines = Deadlines(
        create=settings.create_timeout,
        start=settings.start_timeout,
        pull=settings.pull_timeout,
        pull_silence=settings.pull_inactivity_timeout,
        manifest=settings.manifest_timeout,
    )
    try:
        return open_runtime(settings.docker_host, deadlines)
    except ValueError as error:
        raise StandDown(str(error), "Correct DOCKER_HOST and start the agent again") from None
