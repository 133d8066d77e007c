"""The values in force: one immutable tree, filled by ``sources`` and handed to whoever needs it.

A default here is what holds where nobody says anything; it is Amazon's agent's own, except for the few that
``docs/moving.md`` names.
"""

from __future__ import annotations

import msgspec

LOGGING_DRIVERS = frozenset(
    [
        "awsfirelens",
        "awslogs",
        "fluentd",
        "gelf",
        "journald",
        "json-file",
        "logentries",
        "none",
        "splunk",
        "sumologic",
        "syslog",
    ]
)
LEVELS = ("crit", "error", "warn", "info", "debug", "none")


class Hidden(str):
    """A text that no log and no listing may show; whoever needs it uses it as the text it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'[hidden]'" if self else "''"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are seconds, memory is MiB."""

    # Who this host is.
    cluster: str = "default"
    region: str = "us-east-1"
    backend: str = ""
    docker_host: str = "unix:///var/run/docker.sock"
    config_json: str = "/etc/ecs/ecs.config.json"
    instance_attributes: dict[str, str] = {}
    instance_tags: dict[str, str] = {}
    propagate_tags: str = "none"
    external: bool = False
    credential_profile: str = "default"
    os_family: str = "LINUX"
    warm_pools: bool = False
    spot_draining: bool = False

    # What it remembers and says.
    data_dir: str = "/var/lib/sexton"
    checkpoint: bool = True
    log_level: str = "info"
    log_level_file: str = ""
    log_file: str = ""
    log_format: str = "logfmt"
    log_rollover: str = "size"
    log_max_mb: float = 5.0
    log_max_rolls: int = 24
    audit_file: str = ""
    audit_disabled: bool = False
    healthcheck_host: str = "localhost"

    # What it offers and what it keeps back.
    reserved_ports: tuple[int, ...] = (22, 2375, 2376, 51678, 51679)
    reserved_ports_udp: tuple[int, ...] = ()
    reserved_memory: int = 0
    logging_drivers: tuple[str, ...] = ("json-file", "syslog", "awslogs", "fluentd", "none")
    disable_privileged: bool = False
    selinux: bool = False
    apparmor: bool = False
    # None: where it can be done.
    task_limits: bool | None = None
    gpu_support: bool = False
    gpu_info: str = ""
    nvidia_runtime: str = "nvidia"
    volume_plugins: tuple[str, ...] = ()
    disable_metrics: bool = False
    metrics_interval: float = 10.0
    metadata_rate: tuple[int, int] = (40, 60)
    metadata_file: bool = False
    hide_zone: bool = False
    task_roles: bool = True
    task_roles_host: bool = True
    disable_health_checks: bool = False
    cgroup_path: str = "/sys/fs/cgroup"
    cpu_period: float = 0.1
    pids_limit: int = 0
    propagate_memory_limit: bool = False
    shared_volume_match: bool = False
    exclude_ipv6_bindings: bool = True
    dynamic_ports: tuple[int, int] | None = None

    # Tasks' own networks.
    task_eni: bool = True
    awsvpc_block_imds: bool = False
    bridge_block_imds: bool = False
    network_address: str = ""
    tunnel_port: int = 4789
    sandbox_pool: int = 4
    sandbox_refill: float = 0.3
    sandbox_idle: float = 600.0

    # How long things may take, and what is cleaned when.
    stop_timeout: float = 30.0
    start_timeout: float = 180.0
    create_timeout: float = 240.0
    manifest_timeout: float = 60.0
    pull_inactivity_timeout: float = 60.0
    pull_timeout: float = 7200.0
    pull_behavior: str = "default"
    pull_upfront: bool = False
    cleanup_wait: float = 3 * 3600.0
    cleanup_jitter: float = 0.0
    disable_image_cleanup: bool = False
    image_cleanup_interval: float = 1800.0
    image_minimum_age: float = 3600.0
    other_image_minimum_age: float = 3600.0
    images_per_cycle: int = 5
    other_containers_per_cycle: int = 5
    clean_untracked: bool = False
    excluded_images: tuple[str, ...] = ()
    engine_auth_type: str = ""
    engine_auth_data: Hidden = Hidden()

    # Ours.
    listen: str = "127.0.0.1:7070"
    introspection: tuple[str, int] = ("127.0.0.1", 51678)
    task_endpoint_port: int = 51679
    shutdown_drain: bool = False
    account: str = "000000000000"
    store: str = ""
    events_kept: int = 10_000
    identity_certificates: str = ""
    roles: str = "/etc/sexton/roles.toml"
    advertise: str = ""
    log_spool: int = 256
    agent_log_group: str = ""
    logs_max: int = 1024
    logs_endpoint: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    insecure_plaintext: bool = False
    ca_bundle: str = ""
    keep_stopped: float = 3600.0
    service_settle: float = 40.0
    cloudwatch: str = ""
    pull_limit: int = 8
    disk_reserve: int = 10
    debug_loop: bool = False

    # The caretaker.
    care: bool = True
    care_root: str = "/"
    care_policy: str = "/etc/sexton/care.toml"
    care_every: float = 0.0
    care_metrics: str = ""
    care_journal: bool = True
    care_webhook: str = ""
    care_webhook_secret_file: str = ""
