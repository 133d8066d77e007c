"""What a PayloadMessage says about a task: the task, its containers, volumes, network interfaces and credentials.

The control plane writes these, the agent reads them and turns them into desired state. Every field may be absent: which
ones a task cannot do without is the agent's decision, made where it can answer with a reason. Settings that the
container engine takes verbatim (user, capabilities, ulimits, health check, ...) travel as JSON text in
``DockerConfig``; the fields of the same meaning in ``LinuxParameters`` are for other kinds of agents.
"""

from __future__ import annotations

from msgspec import Struct

from sexton.wire.scalars import Int64, JsonValue


class IAMRoleCredentials(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Temporary keys of a role. ``expiration`` is opaque text that is echoed back in the acknowledgement."""

    credentials_id: str | None = None
    role_arn: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    expiration: str | None = None
    credential_scope: str | None = None

    def __repr__(self) -> str:
        return (
            f"IAMRoleCredentials(credentials_id={self.credentials_id!r}, role_arn={self.role_arn!r}, "
            f"expiration={self.expiration!r}, secrets hidden)"
        )


class EnvironmentFile(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    value: str | None = None
    type: str | None = None


class PortMapping(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Either ``container_port`` with ``host_port`` (0: any), or ``container_port_range`` as ``"a-b"``."""

    container_port: Int64 | None = None
    host_port: Int64 | None = None
    container_port_range: str | None = None
    protocol: str | None = None


class MountPoint(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    source_volume: str | None = None
    container_path: str | None = None
    read_only: bool | None = None


class VolumeFrom(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    source_container: str | None = None
    read_only: bool | None = None


class DockerConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``config`` and ``host_config`` are JSON text in the shape of the Docker Engine API of ``version``."""

    version: str | None = None
    config: str | None = None
    host_config: str | None = None


class ECRAuthData(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    registry_id: str | None = None
    region: str | None = None
    endpoint_override: str | None = None
    use_execution_role: bool | None = None


class ASMAuthData(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    credentials_parameter: str | None = None
    region: str | None = None


class RegistryAuthentication(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How to log in to the image's registry: ``type`` is ``ecr`` or ``asm`` and selects the other field."""

    type: str | None = None
    ecr_auth_data: ECRAuthData | None = None
    asm_auth_data: ASMAuthData | None = None


class Secret(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A reference to a secret, never its value."""

    name: str | None = None
    value_from: str | None = None
    container_path: str | None = None
    type: str | None = None
    region: str | None = None
    provider: str | None = None
    target: str | None = None


class ContainerDependency(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    container_name: str | None = None
    condition: str | None = None


class FirelensConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    type: str | None = None
    options: dict[str, str] | None = None


class ManagedAgent(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str | None = None
    properties: dict[str, str] | None = None


class RestartPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    enabled: bool | None = None
    ignored_exit_codes: tuple[Int64, ...] | None = None
    restart_attempt_period: Int64 | None = None


class KernelCapabilities(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    add: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None


class Device(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    host_path: str | None = None
    container_path: str | None = None
    permissions: tuple[str, ...] | None = None


class LinuxParameters(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    capabilities: KernelCapabilities | None = None
    devices: tuple[Device, ...] | None = None
    init_process_enabled: bool | None = None
    shared_memory_size: Int64 | None = None


class Container(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``cpu`` in shares, ``memory`` in MiB, timeouts in seconds. ``overrides`` comes as an object or as its text."""

    name: str | None = None
    image: str | None = None
    command: tuple[str, ...] | None = None
    entry_point: tuple[str, ...] | None = None
    environment: dict[str, str] | None = None
    environment_files: tuple[EnvironmentFile, ...] | None = None
    essential: bool | None = None
    cpu: Int64 | None = None
    memory: Int64 | None = None
    links: tuple[str, ...] | None = None
    port_mappings: tuple[PortMapping, ...] | None = None
    mount_points: tuple[MountPoint, ...] | None = None
    volumes_from: tuple[VolumeFrom, ...] | None = None
    docker_config: DockerConfig | None = None
    overrides: str | dict[str, JsonValue] | None = None
    health_check_type: str | None = None
    registry_authentication: RegistryAuthentication | None = None
    logs_auth_strategy: str | None = None
    secrets: tuple[Secret, ...] | None = None
    depends_on: tuple[ContainerDependency, ...] | None = None
    start_timeout: Int64 | None = None
    stop_timeout: Int64 | None = None
    firelens_configuration: FirelensConfiguration | None = None
    managed_agents: tuple[ManagedAgent, ...] | None = None
    restart_policy: RestartPolicy | None = None
    credential_specs: tuple[str, ...] | None = None
    container_arn: str | None = None
    network_interface_names: tuple[str, ...] | None = None
    linux_parameters: LinuxParameters | None = None
    privileged: bool | None = None


class HostVolume(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    source_path: str | None = None


class DockerVolumeConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    scope: str | None = None
    autoprovision: bool | None = None
    driver: str | None = None
    driver_opts: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class EFSAuthorizationConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    access_point_id: str | None = None
    iam: str | None = None


class EFSVolumeConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    file_system_id: str | None = None
    root_directory: str | None = None
    transit_encryption: str | None = None
    transit_encryption_port: Int64 | None = None
    authorization_config: EFSAuthorizationConfig | None = None


class FSxAuthorizationConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    credentials_parameter: str | None = None
    domain: str | None = None


class FSxVolumeConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    file_system_id: str | None = None
    root_directory: str | None = None
    authorization_config: FSxAuthorizationConfig | None = None


class EBSVolumeConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    volume_id: str | None = None
    delete_on_termination: bool | None = None
    device_name: str | None = None
    filesystem_type: str | None = None


class LogDriverVolumeConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    driver: str | None = None


class Volume(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``type`` says which of the configurations is meant; absent means ``host``."""

    name: str | None = None
    type: str | None = None
    host: HostVolume | None = None
    docker_volume_configuration: DockerVolumeConfiguration | None = None
    efs_volume_configuration: EFSVolumeConfiguration | None = None
    fsx_windows_file_server_volume_configuration: FSxVolumeConfiguration | None = None
    ebs_volume_configuration: EBSVolumeConfiguration | None = None
    log_driver_volume_configuration: LogDriverVolumeConfiguration | None = None


class VlanProperties(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    vlan_id: str | None = None
    trunk_interface_mac_address: str | None = None


class IPv4Address(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    private_address: str | None = None
    primary: bool | None = None


class IPv6Address(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    address: str | None = None
    primary: bool | None = None


class ElasticNetworkInterface(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One network interface of an awsvpc task, or the trunk that carries those of many."""

    name: str | None = None
    mac_address: str | None = None
    ec2_id: str | None = None
    attachment_arn: str | None = None
    index: Int64 | None = None
    interface_association_protocol: str | None = None
    interface_vlan_properties: VlanProperties | None = None
    interface_tunnel_properties: dict[str, JsonValue] | None = None
    interface_veth_properties: dict[str, JsonValue] | None = None
    ipv4_addresses: tuple[IPv4Address, ...] | None = None
    ipv6_addresses: tuple[IPv6Address, ...] | None = None
    domain_name: tuple[str, ...] | None = None
    domain_name_servers: tuple[str, ...] | None = None
    private_dns_name: str | None = None
    subnet_gateway_ipv4_address: str | None = None
    subnet_gateway_ipv6_address: str | None = None


class AttachmentProperty(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str | None = None
    value: str | None = None


class Attachment(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    attachment_arn: str | None = None
    attachment_type: str | None = None
    attachment_properties: tuple[AttachmentProperty, ...] | None = None


class AssociationContent(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    value: str | None = None
    encoding: str | None = None


class Association(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A GPU or accelerator, and the containers it is given to."""

    name: str | None = None
    type: str | None = None
    content: AssociationContent | None = None
    containers: tuple[str, ...] | None = None


class ProxyConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    type: str | None = None
    container_name: str | None = None
    properties: dict[str, str] | None = None


class TrustedExecutionConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    isolation_mode: str | None = None


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``cpu`` in vCPU, ``memory`` in MiB. ``desired_status`` is ``RUNNING`` or ``STOPPED``."""

    arn: str | None = None
    task_cluster_arn: str | None = None
    family: str | None = None
    version: str | None = None
    desired_status: str | None = None
    containers: tuple[Container, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    overrides: str | dict[str, JsonValue] | None = None
    zone: str | None = None
    task_definition_account_id: str | None = None
    service_name: str | None = None
    group: str | None = None
    role_credentials: IAMRoleCredentials | None = None
    execution_role_credentials: IAMRoleCredentials | None = None
    elastic_network_interfaces: tuple[ElasticNetworkInterface, ...] | None = None
    network_mode: str | None = None
    cpu: float | None = None
    memory: Int64 | None = None
    associations: tuple[Association, ...] | None = None
    pid_mode: str | None = None
    ipc_mode: str | None = None
    proxy_configuration: ProxyConfiguration | None = None
    agent_configuration: str | None = None
    launch_type: str | None = None
    attachments: tuple[Attachment, ...] | None = None
    enable_fault_injection: bool | None = None
    trusted_execution_configuration: TrustedExecutionConfiguration | None = None
