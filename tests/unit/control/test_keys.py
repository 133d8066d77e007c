"""The keys file: made once, private, and refused rather than guessed at."""

from __future__ import annotations

import os
import stat

import msgspec
import pytest

from sexton.control.keys import KeysError, load_or_create


def test_the_first_start_makes_one_key_that_only_its_owner_can_read(tmp_path):
    path = tmp_path / "new" / "keys.json"

    made = load_or_create(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_or_create(path) == made
    key = made.keys[0]
    assert made.secret_of(key.access_key_id) == key.secret_access_key
    assert made.secret_of("AKSXOTHER") is None
    assert key.secret_access_key not in repr(made)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_file_that_others_may_read_or_write_is_not_trusted(tmp_path, mode):
    path = tmp_path / "keys.json"
    load_or_create(path)
    path.chmod(mode)

    with pytest.raises(KeysError, match=f"cannot trust .*mode {mode:04o}"):
        load_or_create(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [{"access_key_id": "A"}]}',
        b'{"keys": [{"access_key_id": "A", "secret_access_key": ""}]}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_named_and_kept(tmp_path, content):
    path = tmp_path / "keys.json"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(KeysError, match=r"cannot (read|use) .*keys\.json"):
        load_or_create(path)
    assert path.read_bytes() == content


def test_only_a_plain_file_will_do(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_bytes(b"")
    for name in ("pipe", "folder", "link", "file/keys.json"):
        with pytest.raises(KeysError, match=r"^cannot "):
            load_or_create(tmp_path / name)


def test_more_keys_can_be_put_into_the_file(tmp_path):
    path = tmp_path / "keys.json"
    first = load_or_create(path).keys[0]
    other = {"access_key_id": "AKSXOTHER", "secret_access_key": "s"}
    path.write_bytes(msgspec.json.encode({"keys": [first, other]}))

    assert load_or_create(path).secret_of("AKSXOTHER") == "s"
