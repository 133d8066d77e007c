"""Fetch what a container is to be given from elsewhere: parameters, secrets, environment files.

All of a container's at once, with the keys of the task's execution role. One that cannot be had ends the task, since
a program that starts without its password does worse things than not starting. Errors name references, never values.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from typing import Any

from sexton.agent.rolekeys import MissingRole
from sexton.agent.steps.context import StepContext
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.exchange import Unreachable
from sexton.core import envfile, injection
from sexton.core.injection import NOTHING, BadReference, SecretRef, Values
from sexton.core.task import DesiredTask
from sexton.wire import acs_task
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

# A container names a few; more at once would only be throttled.
AT_ONCE = 8
_FAULTS = (EcsError, Unreachable, NoCredentials, MissingRole, BadReference)


class NotFetched(Exception):  # noqa: N818 - becomes the reason of a task
    """Something could not be had; the message is the task's reason."""


async def fetch_values(context: StepContext, desired: DesiredTask, container: acs_task.Container) -> Values:
    """Everything the container asks for; NotFetched with the reason when that cannot be."""
    secrets = container.secrets or ()
    files = container.environment_files or ()
    if not secrets and not files:
        return NOTHING
    what = "ASM secret" if any(injection.provider_of(one) == "asm" for one in secrets) else "SSM secret"
    try:
        keys = await context.supplies.roles.execution(desired.task)
    except MissingRole as error:
        raise NotFetched(f"{what if secrets else 'Environment file'} resource: {error}") from None
    turn = asyncio.Semaphore(AT_ONCE)
    parameters = _by_region(context, secrets)
    references = _by_reference(context, secrets)
    jobs: list[Coroutine[Any, Any, Any]] = [
        *(_parameters(context, turn, region, names, keys) for region, names in parameters.items()),
        *(_secret(context, turn, ref, keys) for ref in references),
        *(_file(context, turn, one, keys) for one in files),
    ]
    # To their end, all of them: a person who corrects one name wants to hear of the other two as well.
    ended = await asyncio.gather(*jobs, return_exceptions=True)
    problems = list(dict.fromkeys(str(one) for one in ended if isinstance(one, NotFetched)))
    answers: list[Any] = []
    for one in ended:
        if isinstance(one, BaseException) and not isinstance(one, NotFetched):
            raise one
        answers.append(one)
    if problems:
        raise NotFetched(";".join(problems))
    count = len(parameters)
    found = dict(zip(parameters, answers[:count], strict=True))
    texts = dict(zip(references, answers[count : count + len(references)], strict=True))
    values = _values(context, secrets, found, texts, answers[count + len(references) :])
    log.info(
        "values fetched",
        extra={
            "task": desired.arn,
            "container": container.name,
            "secrets": len(values.secrets) + len(values.log_options),
            "files": len(files),
        },
    )
    return values


def _by_region(context: StepContext, secrets: Sequence[acs_task.Secret]) -> dict[str, list[str]]:
    regions: dict[str, list[str]] = defaultdict(list)
    for one in secrets:
        if injection.provider_of(one) == "ssm":
            regions[injection.region_of(one, context.settings.region)].append(one.value_from or "")
    return regions


def _reference(context: StepContext, secret: acs_task.Secret) -> SecretRef:
    return injection.read_reference(secret.value_from or "", injection.region_of(secret, context.settings.region))


def _by_reference(context: StepContext, secrets: Sequence[acs_task.Secret]) -> list[SecretRef]:
    """Each version of each secret once, however many of its keys are asked for."""
    references: dict[SecretRef, None] = {}
    for one in secrets:
        if injection.provider_of(one) == "asm":
            try:
                references[_reference(context, one)._replace(key="")] = None
            except BadReference as error:
                raise NotFetched(str(error)) from None
    return list(references)


async def _parameters(
    context: StepContext, turn: asyncio.Semaphore, region: str, names: list[str], keys: CredentialSource
) -> dict[str, str]:
    failed = f"Fetching secret data from SSM Parameter Store in {region}"
    try:
        async with turn:
            found = await context.supplies.services.parameters(region, names, keys)
    except _FAULTS as error:
        raise NotFetched(f"{failed}: {error}") from None
    if found.invalid:
        raise NotFetched(f"{failed}: invalid parameters: {', '.join(found.invalid)}")
    values = {}
    for asked in names:
        given = [found.values[name] for name in injection.parameter_names(asked) if name in found.values]
        if not given:
            raise NotFetched(f"{failed}: invalid parameters: {asked}")
        values[asked] = given[0]
    return values


async def _secret(context: StepContext, turn: asyncio.Semaphore, ref: SecretRef, keys: CredentialSource) -> str:
    failed = f"Fetching secret data from AWS Secrets Manager in region {ref.region}: secret {ref.arn}"
    try:
        async with turn:
            text = await context.supplies.services.secret(
                ref.region, ref.arn, keys, stage=ref.stage, version=ref.version
            )
    except EcsError as error:
        if error.code == "ResourceNotFoundException":
            raise NotFetched(
                f"ResourceNotFoundException: The task can't retrieve the secret with ARN '{ref.arn}' from AWS Secrets "
                f"Manager. Check that it exists in {ref.region} and that its version does: {error.message}"
            ) from None
        raise NotFetched(f"{failed}: {error}") from None
    except _FAULTS as error:
        raise NotFetched(f"{failed}: {error}") from None
    if text is None:
        raise NotFetched(f"{failed}: it holds bytes, not text")
    return text


async def _file(
    context: StepContext, turn: asyncio.Semaphore, file: acs_task.EnvironmentFile, keys: CredentialSource
) -> dict[str, str]:
    where = file.value or ""
    try:
        bucket, key = injection.bucket_and_key(where)
        async with turn:
            content = await context.supplies.services.object(context.settings.region, bucket, key, keys)
    except _FAULTS as error:
        raise NotFetched(f"Unable to download environment file {where}: {error}") from None
    return envfile.parse(content)


def _values(
    context: StepContext,
    secrets: Sequence[acs_task.Secret],
    parameters: dict[str, dict[str, str]],
    texts: dict[SecretRef, str],
    files: Sequence[Any],
) -> Values:
    environment: dict[str, str] = {}
    log_options: dict[str, str] = {}
    for one in secrets:
        if injection.provider_of(one) == "asm":
            ref = _reference(context, one)
            try:
                value = injection.pick(texts[ref._replace(key="")], ref)
            except BadReference as error:
                raise NotFetched(str(error)) from None
        else:
            region = injection.region_of(one, context.settings.region)
            value = parameters[region][one.value_from or ""]
        (log_options if one.target == "LOG_DRIVER" else environment)[one.name or ""] = value
    return Values(envfile.merge(files), environment, log_options)
