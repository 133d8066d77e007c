"""ACS, the websocket on which the control plane tells an agent what to run, and the agent acknowledges.

Plain text frames both ways, each an envelope. ``decode`` reads a frame of either direction, ``encode`` writes one from
a shape of this module or passes a received message on unchanged. The shapes inside a payload are in ``acs_task``.
Absent fields are None; which of them a message cannot do without is judged by the side that receives it.
"""

from __future__ import annotations

from msgspec import Struct

from sexton.wire.acs_task import Attachment, ElasticNetworkInterface, IAMRoleCredentials, Task
from sexton.wire.envelope import Catalogue
from sexton.wire.network import SextonNetworkMessage
from sexton.wire.scalars import Int64

# Control plane to agent.


class HeartbeatMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    healthy: bool | None = None
    message_id: str | None = None


class PayloadMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Tasks to run or to stop. ``generated_at`` is in milliseconds; ``seq_num`` only ever grows."""

    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    generated_at: Int64 | None = None
    seq_num: Int64 | None = None
    timeline: Int64 | None = None
    tasks: tuple[Task, ...] | None = None


class IAMRoleCredentialsMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Fresh keys for a running task. ``role_type`` is ``TaskApplication`` or ``TaskExecution``."""

    message_id: str | None = None
    task_arn: str | None = None
    task_cluster_arn: str | None = None
    role_type: str | None = None
    role_credentials: IAMRoleCredentials | None = None


class AttachTaskNetworkInterfacesMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Interfaces that will appear for a task, to be confirmed within ``wait_timeout_ms``."""

    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    generated_at: Int64 | None = None
    task_arn: str | None = None
    task_cluster_arn: str | None = None
    wait_timeout_ms: Int64 | None = None
    elastic_network_interfaces: tuple[ElasticNetworkInterface, ...] | None = None


class AttachInstanceNetworkInterfacesMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The same for the instance itself: the trunk interface."""

    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    generated_at: Int64 | None = None
    wait_timeout_ms: Int64 | None = None
    elastic_network_interfaces: tuple[ElasticNetworkInterface, ...] | None = None


class ConfirmAttachmentMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A volume that will appear for a task, to be confirmed within ``wait_timeout_ms``."""

    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    generated_at: Int64 | None = None
    task_arn: str | None = None
    task_cluster_arn: str | None = None
    wait_timeout_ms: Int64 | None = None
    attachment: Attachment | None = None


class TaskIdentifier(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A task in a manifest or a list of stop candidates."""

    task_arn: str | None = None
    task_cluster_arn: str | None = None
    desired_status: str | None = None


class TaskManifestMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Every task that should be on the instance at ``timeline``."""

    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    generated_at: Int64 | None = None
    timeline: Int64 | None = None
    tasks: tuple[TaskIdentifier, ...] | None = None


class TaskStopVerificationAck(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Which of the agent's stop candidates may really stop. ``message_id`` is that of the manifest."""

    message_id: str | None = None
    generated_at: Int64 | None = None
    stop_tasks: tuple[TaskIdentifier, ...] | None = None


class UpdateInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a new agent is, and the SHA-256 of it in hex."""

    location: str | None = None
    signature: str | None = None


class StageUpdateMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    update_info: UpdateInfo | None = None


class PerformUpdateMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    message_id: str | None = None
    update_info: UpdateInfo | None = None


class CloseMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class ErrorMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


# Agent to control plane.


class AckRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    cluster: str | None = None
    container_instance: str | None = None
    message_id: str | None = None


class NackRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    cluster: str | None = None
    container_instance: str | None = None
    message_id: str | None = None
    reason: str | None = None


class HeartbeatAckRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message_id: str | None = None


class IAMRoleCredentialsAckRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message_id: str | None = None
    credentials_id: str | None = None
    expiration: str | None = None


class TaskStopVerificationMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Tasks that run here although the manifest does not list them."""

    message_id: str | None = None
    stop_candidates: tuple[TaskIdentifier, ...] | None = None


# Refusals, from the control plane.


class ServerException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class BadRequestException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class InvalidClusterException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class InvalidInstanceException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class AccessDeniedException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class InactiveInstanceException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The instance is deregistered; calling again soon cannot help."""

    message: str | None = None


CATALOGUE = Catalogue(
    "ACS",
    HeartbeatMessage,
    PayloadMessage,
    IAMRoleCredentialsMessage,
    AttachTaskNetworkInterfacesMessage,
    AttachInstanceNetworkInterfacesMessage,
    ConfirmAttachmentMessage,
    TaskManifestMessage,
    TaskStopVerificationAck,
    StageUpdateMessage,
    PerformUpdateMessage,
    CloseMessage,
    ErrorMessage,
    AckRequest,
    NackRequest,
    HeartbeatAckRequest,
    IAMRoleCredentialsAckRequest,
    TaskStopVerificationMessage,
    ServerException,
    BadRequestException,
    InvalidClusterException,
    InvalidInstanceException,
    AccessDeniedException,
    InactiveInstanceException,
    SextonNetworkMessage,
)

decode = CATALOGUE.decode
encode = CATALOGUE.encode
