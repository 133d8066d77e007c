"""Where the keys of roles come from, with moto's STS as the one that is asked."""

from __future__ import annotations

import aiohttp
import pytest
from moto.server import ThreadedMotoServer

from sexton.control.rolebook import Rolebook
from sexton.control.rolekeys import NoRole, RoleKeys
from unit.control.own.rolekeys import ARN, statement, write_roles
from unit.control.world import NOW

FILE = f"""
[[role]]
arn = "{ARN}near"
source = "assume-role"
role-arn = "arn:aws:iam::111122223333:role/far"
duration = "20m"

[[role]]
arn = "{ARN}by-profile"
source = "assume-role"
profile = "ops"

[[role]]
arn = "{ARN}profile"
source = "profile"
profile = "dev"

[[role]]
arn = "{ARN}no-profile"
source = "profile"
profile = "none"

[[role]]
arn = "{ARN}static"
source = "static"
access-key-id = "AKIASTATIC"
secret-access-key = "static secret"
session-token = "token"
"""

PROFILES = """
[dev]
aws_access_key_id = AKIADEV
aws_secret_access_key = dev secret
[ops]
aws_access_key_id = AKIAOPS
aws_secret_access_key = ops secret
"""


@pytest.fixture(scope="module")
def sts():
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
async def keys(world, tmp_path, sts):
    (tmp_path / "credentials").write_text(PROFILES)
    path = tmp_path / "roles.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    book = Rolebook(path)
    book.load()
    environment = {
        "AWS_ENDPOINT_URL_STS": sts,
        "AWS_ACCESS_KEY_ID": "AKIAOWN",
        "AWS_SECRET_ACCESS_KEY": "own secret",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    async with aiohttp.ClientSession() as http:
        made = RoleKeys(world.records, book, http, environment)
        await made.open()
        yield made


async def test_sts_gives_keys_of_another_role_for_the_tasks_session(keys):
    issued = await keys.issue(ARN + "near", "0123")

    assert issued.credentials.access_key_id.startswith("ASIA")
    assert issued.credentials.session_token
    assert 1100 < issued.expires_at - issued.issued_at < 1300  # its clock is read later than ours
    assert await keys.caller(ARN + "near", issued) == "arn:aws:sts::111122223333:assumed-role/far/0123"


async def test_a_profile_may_ask_sts(keys):
    issued = await keys.issue(ARN + "by-profile", "0123")

    assert (
        await keys.caller(ARN + "by-profile", issued)
        == f"arn:aws:sts::{ARN.split(':')[4]}:assumed-role/by-profile/0123"
    )


async def test_a_profile_is_read_each_time(keys, tmp_path):
    first = await keys.issue(ARN + "profile", "x")
    (tmp_path / "credentials").write_text(PROFILES.replace("AKIADEV", "AKIANEW"))
    second = await keys.issue(ARN + "profile", "x")

    assert [one.credentials.access_key_id for one in (first, second)] == ["AKIADEV", "AKIANEW"]
    assert second.expires_at - second.issued_at == 3600.0


async def test_static_keys_are_handed_on(keys):
    found = (await keys.issue(ARN + "static", "x")).credentials

    assert (found.access_key_id, found.secret_access_key, found.session_token) == (
        "AKIASTATIC",
        "static secret",
        "token",
    )


async def test_what_cannot_be_had_is_said_with_role_file_and_line(keys):
    with pytest.raises(NoRole) as unknown:
        await keys.issue(ARN + "stranger", "x")
    assert str(unknown.value) == (
        f"There are no keys for the role {ARN}stranger: no role in {keys.book.path} fits it; add it there."
    )
    with pytest.raises(NoRole) as missing:
        await keys.issue(ARN + "no-profile", "x")
    assert "from profile on line 18" in str(missing.value)
    assert "has no profile [none]" in str(missing.value)


async def test_an_sts_that_is_not_there_is_passing_trouble(keys):
    keys._environment["AWS_ENDPOINT_URL_STS"] = "http://127.0.0.1:9"

    with pytest.raises(NoRole) as refused:
        await keys.issue(ARN + "near", "x")

    assert refused.value.passing
    assert "cannot reach http://127.0.0.1:9 for AssumeRole" in str(refused.value)


async def test_without_a_file_the_next_step_is_named(world, tmp_path):
    async with aiohttp.ClientSession() as http:
        keys = RoleKeys(world.records, Rolebook(tmp_path / "roles.toml"), http, {})
        with pytest.raises(NoRole, match=r"there is no roles file .*roles.toml; make one with it"):
            await keys.issue(ARN + "app", "x")


async def test_local_keys_last_as_long_as_the_file_says_and_differ_each_time(world, tmp_path):
    path = write_roles(tmp_path / "roles.toml", app=[statement()])
    book = Rolebook(path)
    book.load()
    async with aiohttp.ClientSession() as http:
        keys = RoleKeys(world.records, book, http, {}, clock=lambda: NOW)
        await keys.open()
        first, second = await keys.issue(ARN + "app", "t"), await keys.issue(ARN + "app", "t")
        again = RoleKeys(world.records, book, http, {})

        assert first.credentials != second.credentials
        assert first.expires_at == NOW + 3600
        assert first.expiration == "2027-01-15T09:00:00Z"
        assert again.session(first.credentials.session_token).session.role_arn == ARN + "app"
        assert again.credentials_id("task", "TaskApplication") == keys.credentials_id("task", "TaskApplication")
