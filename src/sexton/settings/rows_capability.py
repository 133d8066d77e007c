"""Settings of what this host offers and what it keeps back: resources, log drivers, limits, metrics, ports."""

from __future__ import annotations

from functools import partial

from sexton.core import values
from sexton.settings.row import BadSetting, Setting
from sexton.settings.tree import LOGGING_DRIVERS

MOST_PIDS = 4_194_304


def _logging_drivers(raw: str) -> tuple[str, ...]:
    drivers = values.word_list(raw)
    unknown = sorted(set(drivers) - LOGGING_DRIVERS)
    if unknown:
        raise BadSetting(f"cannot use ECS_AVAILABLE_LOGGING_DRIVERS: Invalid logging drivers: {', '.join(unknown)}")
    return drivers


ROWS: tuple[Setting, ...] = (
    Setting("ECS_RESERVED_PORTS", "reserved_ports", values.port_list, "TCP ports no task gets", key="ReservedPorts"),
    Setting(
        "ECS_RESERVED_PORTS_UDP",
        "reserved_ports_udp",
        values.port_list,
        "UDP ports no task gets",
        key="ReservedPortsUDP",
    ),
    Setting(
        "ECS_RESERVED_MEMORY",
        "reserved_memory",
        partial(values.integer, lowest=0, highest=65535),
        "memory kept from tasks",
        "MiB",
        key="ReservedMemory",
    ),
    Setting(
        "ECS_AVAILABLE_LOGGING_DRIVERS",
        "logging_drivers",
        _logging_drivers,
        "log drivers that tasks may ask for; one that nobody knows ends the start",
        key="AvailableLoggingDrivers",
    ),
    Setting(
        "ECS_DISABLE_PRIVILEGED",
        "disable_privileged",
        values.boolean,
        "refuse privileged containers",
        key="PrivilegedDisabled",
    ),
    Setting("ECS_SELINUX_CAPABLE", "selinux", values.boolean, "offer SELinux options", key="SELinuxCapable"),
    Setting("ECS_APPARMOR_CAPABLE", "apparmor", values.boolean, "offer AppArmor options", key="AppArmorCapable"),
    Setting(
        "ECS_ENABLE_TASK_CPU_MEM_LIMIT",
        "task_limits",
        values.boolean,
        "hold a task to its own cpu and memory; unset means wherever the host allows it",
        key="TaskCPUMemLimit",
    ),
    Setting("ECS_ENABLE_GPU_SUPPORT", "gpu_support", values.boolean, "offer this host's GPUs", key="GPUSupportEnabled"),
    Setting(
        "ECS_NVIDIA_RUNTIME",
        "nvidia_runtime",
        values.text,
        "the engine's runtime for containers with a GPU",
        key="NvidiaRuntime",
    ),
    Setting(
        "ECS_VOLUME_PLUGIN_CAPABILITIES",
        "volume_plugins",
        values.word_list,
        "what this host's volume plugin can do, each advertised as a capability; efsAuth is the known one",
        key="VolumePluginCapabilities",
    ),
    Setting(
        "ECS_DISABLE_METRICS", "disable_metrics", values.boolean, "send no container metrics", key="DisableMetrics"
    ),
    Setting(
        "ECS_POLLING_METRICS_WAIT_DURATION",
        "metrics_interval",
        values.duration,
        "time between two readings of a container's counters",
        "seconds",
        minimum=5.0,
        maximum=20.0,
        key="PollingMetricsWaitDuration",
    ),
    Setting(
        "ECS_TASK_METADATA_RPS_LIMIT",
        "metadata_rate",
        values.rate_and_burst,
        "requests a second to one path of its endpoint that a task gets answered, and how many at once",
        key="TaskMetadataRPSLimit",
    ),
    Setting(
        "ECS_ENABLE_CONTAINER_METADATA",
        "metadata_file",
        values.boolean,
        "give each container a file that says who it is, named by its ECS_CONTAINER_METADATA_FILE",
        key="ContainerMetadataEnabled",
    ),
    Setting(
        "ECS_DISABLE_TASK_METADATA_AZ",
        "hide_zone",
        values.boolean,
        "do not tell tasks their availability zone",
    ),
    Setting(
        "ECS_ENABLE_TASK_IAM_ROLE",
        "task_roles",
        values.boolean,
        "offer roles to tasks, where tasks can reach the agent",
        key="TaskIAMRoleEnabled",
    ),
    Setting(
        "ECS_ENABLE_TASK_IAM_ROLE_NETWORK_HOST",
        "task_roles_host",
        values.boolean,
        "offer roles to tasks in network mode host as well",
        key="TaskIAMRoleEnabledForNetworkHost",
    ),
    Setting(
        "ECS_DISABLE_DOCKER_HEALTH_CHECK",
        "disable_health_checks",
        values.boolean,
        "do not offer container health checks",
        key="DisableDockerHealthCheck",
    ),
    Setting(
        "ECS_CGROUP_PATH", "cgroup_path", values.text, "where the cgroup hierarchies are mounted", key="CgroupPath"
    ),
    Setting(
        "ECS_CGROUP_CPU_PERIOD",
        "cpu_period",
        partial(values.duration_within, lowest=0.008, highest=0.1),
        "period of a task's CPU quota, from 8ms to 100ms",
        "seconds",
        key="CgroupCPUPeriod",
    ),
    Setting(
        "ECS_TASK_PIDS_LIMIT",
        "pids_limit",
        partial(values.integer, lowest=1, highest=MOST_PIDS),
        "processes and threads that a task may have; unset means no limit of the task's own",
        key="TaskPidsLimit",
    ),
    Setting(
        "ECS_PROPAGATE_TASK_MEMORY_LIMIT_CGROUPV2",
        "propagate_memory_limit",
        values.boolean,
        "on cgroup v2, hold a container that names no limit to its task's memory",
    ),
    Setting(
        "ECS_SHARED_VOLUME_MATCH_FULL_CONFIG",
        "shared_volume_match",
        values.boolean,
        "a shared volume that is there must have the driver's options and labels of the task as well",
        key="SharedVolumeMatchFullConfig",
    ),
    Setting(
        "ECS_EXCLUDE_IPV6_PORTBINDING",
        "exclude_ipv6_bindings",
        values.boolean,
        "leave out the IPv6 half of a published port when it is reported",
        key="ShouldExcludeIPv6PortBinding",
    ),
    Setting(
        "ECS_DYNAMIC_HOST_PORT_RANGE",
        "dynamic_ports",
        values.port_range,
        "host ports for containers that name none; unset means the kernel's local port range",
        key="DynamicHostPortRange",
    ),
)
