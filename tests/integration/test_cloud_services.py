"""The calls to other services, against moto's server: what it stores comes back, what it lacks is named."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from cloudparts import KEYS, REGION, Moto
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring
from sexton.cloud.services import Services
from sexton.wire.errors import EcsError

pytestmark = pytest.mark.timeout(90)  # the server needs seconds to load, more on a busy machine

RING = Keyring([Static(Credentials(KEYS["aws_access_key_id"], KEYS["aws_secret_access_key"]))])


@pytest.fixture
async def services(moto: Moto) -> AsyncIterator[Services]:
    async with aiohttp.ClientSession() as session:
        yield Services(session, moto.environment())


async def test_parameters_are_found_by_name_and_by_arn(moto: Moto, services: Services) -> None:
    ssm = moto.client("ssm")
    for number in range(12):
        ssm.put_parameter(Name=f"/cloud/p{number}", Value=f"v{number}", Type="SecureString")
    arn = ssm.get_parameter(Name="/cloud/p3")["Parameter"]["ARN"]

    found = await services.parameters(REGION, [*(f"/cloud/p{n}" for n in range(12)), arn, "/cloud/none"], RING)

    assert found.values["/cloud/p11"] == "v11" and found.values[arn] == "v3"
    assert found.invalid == ("/cloud/none",)


async def test_secrets_are_found_whole_and_by_version(moto: Moto, services: Services) -> None:
    asm = moto.client("secretsmanager")
    made = asm.create_secret(Name="cloud/db", SecretString=json.dumps({"user": "u"}))
    asm.put_secret_value(SecretId=made["ARN"], SecretString="new")

    assert await services.secret(REGION, made["ARN"], RING) == "new"
    assert await services.secret(REGION, made["ARN"], RING, stage="AWSPREVIOUS") == '{"user": "u"}'
    assert await services.secret(REGION, made["ARN"], RING, version=made["VersionId"]) == '{"user": "u"}'
    with pytest.raises(EcsError, match="ResourceNotFoundException"):
        await services.secret(REGION, made["ARN"] + "x", RING)


async def test_objects_come_back_byte_for_byte(moto: Moto, services: Services) -> None:
    s3 = moto.client("s3")
    s3.create_bucket(Bucket="cloud-files")
    s3.put_object(Bucket="cloud-files", Key="a dir/ü+.env", Body=b"A=\xff\n")

    assert await services.object(REGION, "cloud-files", "a dir/ü+.env", RING) == b"A=\xff\n"
    with pytest.raises(EcsError, match="NoSuchKey"):
        await services.object(REGION, "cloud-files", "other", RING)


async def test_a_registry_hands_out_a_token(services: Services) -> None:
    token = await services.registry_token(REGION, "123456789012", RING)

    assert token.user == "AWS" and token.password and token.expires_at > 0
