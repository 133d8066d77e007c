"""Which values a container is to be given from elsewhere, and how they and its own become one environment.

A payload names secrets and files; nothing here ever holds a value longer than it takes to put it in its place.

    environment files  <  environment  <  secrets        the right one wins
    log-driver secrets are options of the log driver instead
    AWS_REGION and AWS_DEFAULT_REGION are added where none of the above and no variable of the image says either
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from sexton.wire import acs_task

REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")


class Values(NamedTuple):
    """What was fetched for one container. Shows names only."""

    files: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    log_options: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Values(files={sorted(self.files)}, secrets={sorted(self.secrets)}, log={sorted(self.log_options)})"


NOTHING = Values()


class SecretRef(NamedTuple):
    """A secret of Secrets Manager: which one, which version of it, and which key of the JSON it holds."""

    region: str
    arn: str
    key: str = ""
    stage: str = ""
    version: str = ""


class BadReference(ValueError):  # noqa: N818 - becomes the reason of a task
    """A reference that names nothing; the message says what it should look like."""


def region_of(secret: acs_task.Secret, default: str) -> str:
    """The region a secret is in: what the payload says, what its ARN says, or the host's own."""
    parts = (secret.value_from or "").split(":")
    in_arn = parts[3] if parts[0] == "arn" and len(parts) > 3 else ""
    return secret.region or in_arn or default


def provider_of(secret: acs_task.Secret) -> str:
    """``asm`` or ``ssm``."""
    return secret.provider or ("asm" if ":secretsmanager:" in (secret.value_from or "") else "ssm")


def read_reference(value_from: str, region: str) -> SecretRef:
    """Take ``arn:...:secret:name[:key[:stage[:version]]]`` apart."""
    parts = value_from.split(":")
    if parts[0] != "arn":
        return SecretRef(region, value_from)
    if len(parts) < 7 or len(parts) > 10:
        raise BadReference(
            f"unexpected ARN format with parameters when trying to retrieve ASM secret: {value_from}; "
            "write arn:...:secret:NAME:JSON-KEY:VERSION-STAGE:VERSION-ID"
        )
    key, stage, version = [*parts[7:], "", "", ""][:3]
    return SecretRef(region, ":".join(parts[:7]), key, stage, version)


def pick(text: str, ref: SecretRef) -> str:
    """The value a reference means in a secret's text; the text never shows in an error."""
    if not ref.key:
        return text
    try:
        held = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadReference(f"retrieved secret from Secrets Manager did not contain JSON object for {ref.arn}") from None
    if ref.key not in held:
        raise BadReference(f"retrieved secret from Secrets Manager did not contain json key {ref.key}")
    raw = bytes(held[ref.key])
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:  # a number, a truth value or something larger: as it is written
        return raw.decode("utf-8", "replace")


def parameter_names(value_from: str) -> tuple[str, ...]:
    """What a parameter that was asked for by this reference may be called in the answer."""
    if not value_from.startswith("arn:"):
        return (value_from,)
    name = value_from.split(":", 5)[-1].removeprefix("parameter")
    return (value_from, name, name.removeprefix("/"))


def bucket_and_key(arn: str) -> tuple[str, str]:
    """Bucket and key of ``arn:aws:s3:::bucket/key``."""
    parts = arn.split(":", 5)
    if len(parts) == 6 and parts[0] == "arn" and parts[2] == "s3":
        bucket, slash, key = parts[5].partition("/")
        if bucket and slash and key:
            return bucket, key
    raise BadReference(f"unable to parse S3 ARN {arn}; write arn:aws:s3:::BUCKET/KEY")


def environment(
    own: Mapping[str, str], values: Values, *, region: str = "", image_variables: Iterable[str] = ()
) -> dict[str, str]:
    """The whole environment of a container."""
    whole = {**values.files, **own, **values.secrets}
    if region and not any(name in whole for name in REGION_NAMES) and not set(REGION_NAMES) & set(image_variables):
        whole.update(dict.fromkeys(REGION_NAMES, region))
    return whole
