"""TCS, the websocket on which an agent reports metrics and health, and the control plane acknowledges.

``decode`` and ``encode`` read and write envelopes as in ``acs``. Frames of the agent carry a block of signed headers in
front of the envelope; ``tcs_frame`` takes the two apart and joins them. Times are Unix seconds with a fraction.
"""

from __future__ import annotations

from msgspec import Struct

from sexton.wire.envelope import Catalogue
from sexton.wire.scalars import Int64

# Statistics of one publishing interval.


class CWStatsSet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    min: float
    max: float
    sample_count: Int64
    sum: float


class UDoubleCWStatsSet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The same, of values that are never negative."""

    min: float
    max: float
    sample_count: Int64
    sum: float


class ULongStatsSet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Counters. What exceeds a signed 64-bit number is carried over in the overflow fields."""

    min: Int64
    max: Int64
    sample_count: Int64
    sum: Int64
    overflow_min: Int64 | None = None
    overflow_max: Int64 | None = None
    overflow_sum: Int64 | None = None


class NetworkStatsSet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    rx_bytes: ULongStatsSet | None = None
    rx_bytes_per_second: UDoubleCWStatsSet | None = None
    rx_dropped: ULongStatsSet | None = None
    rx_errors: ULongStatsSet | None = None
    rx_packets: ULongStatsSet | None = None
    tx_bytes: ULongStatsSet | None = None
    tx_bytes_per_second: UDoubleCWStatsSet | None = None
    tx_dropped: ULongStatsSet | None = None
    tx_errors: ULongStatsSet | None = None
    tx_packets: ULongStatsSet | None = None


class StorageStatsSet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    read_size_bytes: ULongStatsSet | None = None
    write_size_bytes: ULongStatsSet | None = None


class RestartStatsSet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    restart_count: Int64 | None = None


class Dimension(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    key: str | None = None
    value: str | None = None


class GeneralMetric(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    metric_name: str | None = None
    metric_values: tuple[float, ...] | None = None
    metric_counts: tuple[Int64, ...] | None = None
    metric_value_double: float | None = None
    metric_value_long: Int64 | None = None
    metric_value_stats_set: CWStatsSet | None = None
    unit: str | None = None


class GeneralMetricsWrapper(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """For Service Connect, ``metric_type`` 1 is ingress and 2 is egress."""

    dimensions: tuple[Dimension, ...] | None = None
    metric_type: str | None = None
    general_metrics: tuple[GeneralMetric, ...] | None = None


# Agent to control plane: metrics.


class MetricsMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Pages of one tick share ``message_id``; the last one has ``fin``."""

    cluster: str | None = None
    container_instance: str | None = None
    idle: bool | None = None
    message_id: str | None = None
    fin: bool | None = None


class ContainerMetric(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """CPU in percent of the host, memory in MiB."""

    container_arn: str | None = None
    container_name: str | None = None
    cpu_stats_set: CWStatsSet | None = None
    memory_stats_set: CWStatsSet | None = None
    network_stats_set: NetworkStatsSet | None = None
    storage_stats_set: StorageStatsSet | None = None
    restart_stats_set: RestartStatsSet | None = None
    general_metrics_payload: tuple[GeneralMetricsWrapper, ...] | None = None


class EphemeralStorageMetrics(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    bytes_utilized: ULongStatsSet | None = None


class VolumeMetric(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    volume_id: str | None = None
    volume_name: str | None = None
    utilized: UDoubleCWStatsSet | None = None
    size: UDoubleCWStatsSet | None = None


class TaskMetric(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    task_arn: str | None = None
    cluster_arn: str | None = None
    task_definition_family: str | None = None
    task_definition_version: str | None = None
    container_metrics: tuple[ContainerMetric, ...] | None = None
    ephemeral_storage_metrics: EphemeralStorageMetrics | None = None
    volume_metrics: tuple[VolumeMetric, ...] | None = None
    service_connect_metrics_wrapper: tuple[GeneralMetricsWrapper, ...] | None = None


class InstanceStorage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Filesystem use in percent."""

    root_filesystem: float | None = None
    data_filesystem: float | None = None


class InstanceMetrics(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    storage: InstanceStorage | None = None
    general_metrics_payload: tuple[GeneralMetricsWrapper, ...] | None = None


class PublishMetricsRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    metadata: MetricsMetadata | None = None
    instance_metrics: InstanceMetrics | None = None
    task_metrics: tuple[TaskMetric, ...] | None = None
    timestamp: float | None = None


# Agent to control plane: health of containers and of the instance.


class HealthMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    cluster: str | None = None
    container_instance: str | None = None
    message_id: str | None = None
    fin: bool | None = None


class ContainerHealth(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``health_status`` is ``HEALTHY``, ``UNHEALTHY`` or ``UNKNOWN``."""

    container_name: str | None = None
    health_status: str | None = None
    status_since: float | None = None
    status_message: str | None = None


class TaskHealth(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    task_arn: str | None = None
    cluster_arn: str | None = None
    task_definition_family: str | None = None
    task_definition_version: str | None = None
    containers: tuple[ContainerHealth, ...] | None = None


class PublishHealthRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    metadata: HealthMetadata | None = None
    tasks: tuple[TaskHealth, ...] | None = None
    timestamp: float | None = None


class InstanceStatusMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    cluster: str | None = None
    container_instance: str | None = None
    request_id: str | None = None


class InstanceStatus(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``status`` is ``OK``, ``IMPAIRED``, ``INSUFFICIENT_DATA`` or ``INITIALIZING``."""

    type: str | None = None
    status: str | None = None
    status_reason: str | None = None
    last_updated: float | None = None
    last_status_change: float | None = None


class PublishInstanceStatusRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    metadata: InstanceStatusMetadata | None = None
    statuses: tuple[InstanceStatus, ...] | None = None
    timestamp: float | None = None


class StartTelemetrySessionRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Part of the protocol, not sent by today's agents."""

    cluster: str | None = None
    container_instance: str | None = None


# Control plane to agent.


class AckPublishMetric(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class AckPublishHealth(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class AckPublishInstanceStatus(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class HeartbeatMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    healthy: bool | None = None


class StopTelemetrySessionMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class BadRequestException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class ResourceValidationException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class InvalidParameterException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


class ServerException(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    message: str | None = None


CATALOGUE = Catalogue(
    "TCS",
    PublishMetricsRequest,
    PublishHealthRequest,
    PublishInstanceStatusRequest,
    StartTelemetrySessionRequest,
    AckPublishMetric,
    AckPublishHealth,
    AckPublishInstanceStatus,
    HeartbeatMessage,
    StopTelemetrySessionMessage,
    BadRequestException,
    ResourceValidationException,
    InvalidParameterException,
    ServerException,
)

decode = CATALOGUE.decode
encode = CATALOGUE.encode
