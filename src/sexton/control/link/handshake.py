"""Who an agent is, before its websocket opens: a signed GET that names a container instance of an active cluster.

A refusal is a small JSON body whose type decides what the agent does next, so each case has its own.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from sexton.cloud.sigv4_verify import SignatureRefused, Verifier
from sexton.control import authority
from sexton.control.context import Call, Context
from sexton.control.link.socket import AgentSocket, NoUpgrade
from sexton.control.ops import instances
from sexton.core import names
from sexton.kit import web
from sexton.store.contract import StoreError
from sexton.wire import ecs, network
from sexton.wire.errors import EcsError
from sexton.wire.refusal import Refusal, encode_refusal

MOST_VERSION = 255


class Peer(NamedTuple):
    """An agent that was let in."""

    call: Call
    cluster: str
    instance_arn: str
    instance_id: str
    full_sync: bool
    versions: ecs.VersionInfo = ecs.VersionInfo()  # of itself and its engine, as it says here and nowhere else
    networks: int = 0  # the version of its words for networks, if its agent makes its tasks' interfaces itself


class Refused(Exception):  # noqa: N818 - becomes the answer to the upgrade
    """The agent is not let in; ``response`` says why in the agent's own terms. A stranger, who has proven nothing,
    must not be able to fill the log."""

    def __init__(self, status: int, kind: str, message: str, *, stranger: bool = False) -> None:
        super().__init__(message)
        self.level = logging.DEBUG if stranger else logging.INFO
        self.response = web.Response(
            status=status, body=encode_refusal(Refusal(kind, message)), content_type="application/json"
        )


async def admit(
    context: Context,
    verifier: Verifier,
    request: web.BaseRequest,
    cluster_field: str,
    instance_field: str,
    action: str = "ecs:Poll",
) -> Peer:
    """Let an agent in, or raise Refused."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
    path, _, query = request.raw_path.partition("?")
    now = time.time()
    try:
        who = verifier.verify("GET", path, query, headers, b"", now)
    except SignatureRefused as error:
        raise Refused(403, "AccessDeniedException", error.message, stranger=True) from None
    call = Call.by(who, now, request.remote or "", secure=request.secure)
    try:
        if context.trouble():
            raise StoreError(context.trouble())
        try:
            return _known(context, call, request, cluster_field, instance_field, action)
        except Refused:
            # An agent that is refused stands down: it may have registered at another control plane a moment ago.
            if not (context.replica and await context.records.catch_up()):
                raise
        return _known(context, call, request, cluster_field, instance_field, action)
    except StoreError as error:
        raise Refused(503, "ServerException", f"The control plane's store is away: {error}") from None


def _known(
    context: Context, call: Call, request: web.BaseRequest, cluster_field: str, instance_field: str, action: str
) -> Peer:
    cluster = names.parse_cluster(request.query.get(cluster_field))
    entry = context.records.clusters.get(call.region, cluster) if cluster else None
    if cluster is None or entry is None or entry.value.cluster.status != "ACTIVE":
        raise Refused(400, "InvalidClusterException", "Cluster not found.")
    try:
        instance = instances.find(context, call, cluster, request.query.get(instance_field))
    except EcsError as error:
        raise Refused(400, "InvalidInstanceException", error.message) from None
    if instance is None:
        raise Refused(400, "InactiveInstanceException", "The container instance is not registered; it is inactive.")
    try:
        authority.check_instance(context, call, action, instance.value.arn)
    except EcsError as error:
        raise Refused(403, error.code, error.message) from None
    attributes = {one.name: one.value or "" for one in instance.value.instance.attributes or ()}
    return Peer(
        call=call,
        cluster=cluster,
        instance_arn=instance.value.arn,
        instance_id=names.last_part(instance.value.arn),
        full_sync="ecs.capability.full-sync" in attributes,
        versions=ecs.VersionInfo(
            agent_version=request.query.get("agentVersion", "")[:MOST_VERSION] or None,
            agent_hash=request.query.get("agentHash", "")[:MOST_VERSION] or None,
            docker_version=request.query.get("dockerVersion", "")[:MOST_VERSION] or None,
        ),
        networks=_version(attributes.get(network.CAPABILITY)),
    )


def _version(said: str | None) -> int:
    if said is None:
        return 0
    return int(said) if said.isdecimal() and said.isascii() else 1


async def open_socket(request: web.BaseRequest, ping_seconds: float | None = None) -> AgentSocket:
    """Answer the upgrade. Raises Refused when the request is no websocket upgrade."""
    try:
        return await AgentSocket.open(request, ping_seconds)
    except NoUpgrade:
        raise Refused(400, "BadRequestException", "This path takes websocket connections only.") from None
