"""Credentials from the environment and from files, and the reason when there are none."""

from __future__ import annotations

import json
import os

import pytest

from sexton.cloud.credential_files import Environment, KeysFile, RotatingFile, SharedFile, Static, profiles
from sexton.cloud.credentials import Credentials, Unavailable

INI = """\
# written by a tool
[default]
aws_access_key_id = AKIDDEFAULT
aws_secret_access_key = ab#c;d%e=f/

[ other ]
AWS_ACCESS_KEY_ID=AKIDOTHER
aws_secret_access_key=secret2
aws_session_token = token2==
; the end
[half]
aws_access_key_id = AKIDHALF
"""
DEFAULT = Credentials("AKIDDEFAULT", "ab#c;d%e=f/")
OTHER = Credentials("AKIDOTHER", "secret2", "token2==")


async def reason(provider):
    with pytest.raises(Unavailable) as caught:
        await provider.fetch()
    return caught.value.reason


@pytest.fixture
def ini(tmp_path):
    path = tmp_path / "credentials"
    path.write_text(INI)
    return path


async def test_given_ones_are_given_back():
    assert (await Static(DEFAULT).fetch()).credentials is DEFAULT


async def test_environment():
    environ = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "s"}

    assert (await Environment(environ).fetch()).credentials == Credentials("AKID", "s")
    assert (await Environment(environ | {"AWS_SESSION_TOKEN": "t"}).fetch()).credentials.session_token == "t"
    assert await reason(Environment({})) == "AWS_ACCESS_KEY_ID is not set"
    assert "AWS_SECRET_ACCESS_KEY is not" in await reason(Environment({"AWS_ACCESS_KEY_ID": "AKID"}))


async def test_keys_file_of_our_own(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"access_key_id": "AKID", "secret_access_key": "s"}))
    path.chmod(0o600)

    assert (await KeysFile(path).fetch()).credentials == Credentials("AKID", "s")


async def test_keys_file_that_others_may_read_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text("{}")
    path.chmod(0o640)

    assert await reason(KeysFile(path)) == f"{path} has mode 0640, others may read it; run: chmod 600 {path}"


@pytest.mark.parametrize("text", ["", "[]", "null", '{"access_key_id": 1}', '{"access_key_id": "", "x": 1}', "\xff"])
async def test_keys_file_that_is_none_says_so_without_quoting_it(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)

    told = await reason(KeysFile(path))
    assert str(path) in told
    assert "JSON" in told or "lacks access_key_id" in told


async def test_shared_file_and_its_profiles(ini):
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(ini)}

    assert (await SharedFile.from_environment(environ).fetch()).credentials == DEFAULT
    assert (await SharedFile.from_environment(environ | {"AWS_PROFILE": "other"}).fetch()).credentials == OTHER
    absent = await reason(SharedFile.from_environment(environ | {"AWS_PROFILE": "none"}))
    assert absent == f"{ini} has no profile [none]"
    assert "lacks" in await reason(SharedFile.from_environment(environ | {"AWS_PROFILE": "half"}))


async def test_shared_file_lies_in_the_home_directory(ini):
    home = ini.parent / "home"
    (home / ".aws").mkdir(parents=True)
    ini.rename(home / ".aws" / "credentials")

    assert (await SharedFile.from_environment({"HOME": str(home)}).fetch()).credentials == DEFAULT


async def test_rotating_file_is_due_again_after_a_minute(ini):
    provider = RotatingFile.from_environment({"ECS_ALTERNATE_CREDENTIAL_PROFILE": "other"}, ini)

    assert await provider.fetch() == (OTHER, 60.0)
    ini.write_text(INI.replace("AKIDOTHER", "AKIDNEW"))
    assert (await provider.fetch()).credentials.access_key_id == "AKIDNEW"


async def test_what_is_no_readable_file_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(b"x" * (1 << 20) + b"y")

    assert "does not exist" in await reason(RotatingFile(tmp_path / "absent"))
    assert "not a regular file" in await reason(RotatingFile(tmp_path / "pipe"))
    assert "not a regular file" in await reason(RotatingFile(tmp_path))
    assert "too large" in await reason(RotatingFile(tmp_path / "huge"))


def test_lines_of_no_known_kind_are_skipped():
    assert profiles("stray = 1\n[a\n[b] tail\nword\nk = v\n[b]\nl=w") == {"b": {"k": "v", "l": "w"}}
