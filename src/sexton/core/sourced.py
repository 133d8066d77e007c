"""The parts of a payload that say where something is to be fetched from: secrets, log-ins, network file systems.

Only references travel: an agent fetches the values itself, with keys of its own.
"""

from __future__ import annotations

import re

from sexton.wire import acs_task, ecs

_ECR = re.compile(r"(?P<account>[0-9]{12})\.dkr\.ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.")


def secrets(one: ecs.ContainerDefinition, region: str) -> tuple[acs_task.Secret, ...] | None:
    """A container's secrets, those of its log driver among them."""
    given = [_secret(secret, region, "ENVIRONMENT_VARIABLE", "CONTAINER") for secret in one.secrets or ()]
    if one.log_configuration:
        options = one.log_configuration.secret_options or ()
        given += [_secret(secret, region, "BOOTSTRAP", "LOG_DRIVER") for secret in options]
    return tuple(given) or None


def _secret(secret: ecs.Secret, region: str, kind: str, target: str) -> acs_task.Secret:
    source = secret.value_from or ""
    return acs_task.Secret(
        name=secret.name,
        value_from=source,
        type=kind,
        region=_region(source) or region,
        provider="asm" if ":secretsmanager:" in source else "ssm",
        target=target,
    )


def registry(
    one: ecs.ContainerDefinition, definition: ecs.TaskDefinition, region: str
) -> acs_task.RegistryAuthentication | None:
    """How to log in for a container's image, when its definition or its name says so."""
    if one.repository_credentials:
        source = one.repository_credentials.credentials_parameter or ""
        return acs_task.RegistryAuthentication(
            type="asm",
            asm_auth_data=acs_task.ASMAuthData(credentials_parameter=source, region=_region(source) or region),
        )
    found = _ECR.match(one.image or "")
    if found is None:
        return None
    return acs_task.RegistryAuthentication(
        type="ecr",
        ecr_auth_data=acs_task.ECRAuthData(
            registry_id=found["account"],
            region=found["region"],
            use_execution_role=bool(definition.execution_role_arn),
        ),
    )


def efs(volume: ecs.Volume) -> acs_task.Volume:
    """A network file system of Amazon's."""
    given = volume.efs_volume_configuration or ecs.EFSVolumeConfiguration()
    auth = given.authorization_config
    access = auth and acs_task.EFSAuthorizationConfig(access_point_id=auth.access_point_id, iam=auth.iam)
    return acs_task.Volume(
        name=volume.name,
        type="efs",
        efs_volume_configuration=acs_task.EFSVolumeConfiguration(
            file_system_id=given.file_system_id,
            root_directory=given.root_directory,
            transit_encryption=given.transit_encryption,
            transit_encryption_port=given.transit_encryption_port,
            authorization_config=access or None,
        ),
    )


def _region(arn: str) -> str:
    parts = arn.split(":")
    return parts[3] if parts[0] == "arn" and len(parts) > 3 else ""
