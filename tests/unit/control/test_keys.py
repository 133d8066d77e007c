"""The keys file: private, and refused rather than guessed at."""

from __future__ import annotations

import os
import stat

import pytest

from sexton.control.keys import Keys, KeysError, new_key, read_keys, write_keys


def test_what_is_written_only_its_owner_can_read(tmp_path):
    path = tmp_path / "new" / "keys.json"

    assert read_keys(path) is None
    made = Keys(keys=(new_key(),))
    write_keys(path, made)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_keys(path) == made
    assert made.keys[0].secret_access_key not in repr(made)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_file_that_others_may_read_or_write_is_not_trusted(tmp_path, mode):
    path = tmp_path / "keys.json"
    write_keys(path, Keys(keys=(new_key(),)))
    path.chmod(mode)

    with pytest.raises(KeysError, match=f"cannot trust .*mode {mode:04o}"):
        read_keys(path)


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
        read_keys(path)
    assert path.read_bytes() == content


def test_only_a_plain_file_will_do(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_bytes(b"")
    for name in ("pipe", "folder", "link", "file/keys.json"):
        with pytest.raises(KeysError, match=r"^cannot "):
            read_keys(tmp_path / name)
