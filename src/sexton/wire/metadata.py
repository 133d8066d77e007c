"""What a task is told of itself at its endpoint: the bodies of metadata v2, v3 and v4, and of the metadata file.

Names and order are those of Amazon's agent. A field that has a default is left out where it has it, as there; the
others are always said. Version 4 adds fields to the same shapes, which stay empty, and so unsaid, for the older ones.
"""

from __future__ import annotations

from msgspec import Struct, field

Number = int | float


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cpu: Number | None = field(name="CPU", default=None)
    memory: int | None = field(name="Memory", default=None)


class Port(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    container_port: int = 0
    protocol: str = ""
    host_port: int = 0
    host_ip: str = ""


class Network(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whatever comes after the addresses is only of version 4, and only of an interface of the task's own."""

    network_mode: str = field(name="NetworkMode", default="")
    ipv4_addresses: tuple[str, ...] = field(name="IPv4Addresses", default=())
    ipv6_addresses: tuple[str, ...] = field(name="IPv6Addresses", default=())
    attachment_index: int | None = field(name="AttachmentIndex", default=None)
    mac_address: str = field(name="MACAddress", default="")
    ipv4_subnet: str = field(name="IPv4SubnetCIDRBlock", default="")
    ipv6_subnet: str = field(name="IPv6SubnetCIDRBlock", default="")
    domain_name_servers: tuple[str, ...] = field(name="DomainNameServers", default=())
    domain_name_search_list: tuple[str, ...] = field(name="DomainNameSearchList", default=())
    private_dns_name: str = field(name="PrivateDNSName", default="")
    gateway_ipv4: str = field(name="SubnetGatewayIpv4Address", default="")
    gateway_ipv6: str = field(name="SubnetGatewayIpv6Address", default="")


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    status: str = ""
    status_since: str = ""
    exit_code: int = 0
    output: str = ""


class Volume(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    docker_name: str = ""
    source: str = ""
    destination: str = ""


class Container(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    docker_id: str
    name: str
    docker_name: str
    image: str
    image_id: str = field(name="ImageID")
    ports: tuple[Port, ...] = ()
    labels: dict[str, str] = {}
    desired_status: str
    known_status: str
    exit_code: int | None = None
    limits: Limits
    created_at: str = ""
    started_at: str = ""
    finished_at: str = ""
    type: str
    networks: tuple[Network, ...] = ()
    health: Health | None = None
    volumes: tuple[Volume, ...] = ()
    # Version 4.
    log_driver: str = ""
    log_options: dict[str, str] = {}
    container_arn: str = field(name="ContainerARN", default="")
    restart_count: int | None = None


class TagError(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    error_field: str = ""
    error_code: str = ""
    error_message: str = ""
    status_code: int = 0
    request_id: str = ""
    resource_arn: str = field(name="ResourceARN", default="")


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    cluster: str
    task_arn: str = field(name="TaskARN")
    family: str
    revision: str
    desired_status: str = ""
    known_status: str
    containers: tuple[Container, ...] = ()
    limits: Limits | None = None
    pull_started_at: str = ""
    pull_stopped_at: str = ""
    execution_stopped_at: str = ""
    availability_zone: str = ""
    task_tags: dict[str, str] = {}
    container_instance_tags: dict[str, str] = {}
    # Version 4.
    launch_type: str = ""
    errors: tuple[TagError, ...] = ()
    vpc_id: str = field(name="VPCID", default="")
    service_name: str = ""
    fault_injection_enabled: bool | None = None
    availability_zone_id: str = field(name="AvailabilityZoneID", default="")


class FilePort(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    container_port: int = 0
    container_port_range: str = ""
    host_port: int = 0
    bind_ip: str = ""
    protocol: str = ""


class File(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    """The metadata file of one container."""

    cluster: str = ""
    container_instance_arn: str = field(name="ContainerInstanceARN", default="")
    task_arn: str = field(name="TaskARN", default="")
    task_definition_family: str = ""
    task_definition_revision: str = ""
    container_id: str = field(name="ContainerID", default="")
    container_name: str = ""
    docker_container_name: str = ""
    image_id: str = field(name="ImageID", default="")
    image_name: str = ""
    port_mappings: tuple[FilePort, ...] = ()
    networks: tuple[Network, ...] = ()
    metadata_file_status: str = ""
    availability_zone: str = ""
    host_private_ipv4: str = field(name="HostPrivateIPv4Address", default="")
    host_public_ipv4: str = field(name="HostPublicIPv4Address", default="")
    host_ipv6: str = field(name="HostIPv6Address", default="")
