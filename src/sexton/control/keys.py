"""The keys file: this host's way in, a copy of the control plane's own key with mode 0600.

All keys are in the store, where every control plane over it finds them (``keystore``). The file is for people and
tools on this host: whoever can read it is the administrator. A file that others could read is refused rather than
used, since then it may already have been read. The secret never appears in a log or a repr.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import msgspec

from sexton.kit.atomicfile import write_atomic
from sexton.wire.errors import UNREADABLE

# Shaped as AWS's own, so that every client accepts them; the prefix says that they open nothing else.
_PREFIX = "AKSX"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


class KeysError(Exception):
    """The keys file cannot be used; the message says why and what to do."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One access key."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"Key({self.access_key_id})"


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content."""

    keys: tuple[Key, ...]


def new_key() -> Key:
    return Key(
        access_key_id=_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(16)),
        secret_access_key=secrets.token_urlsafe(30),
    )


def read_keys(path: Path) -> Keys | None:
    """What the file holds; None when there is none."""
    try:
        # Not blocking, so that a pipe in the file's place is found out instead of waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; it must be a plain file of this user") from None
    try:
        _check(path, os.fstat(handle))
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read()
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; remove it, it is made again") from None
    finally:
        os.close(handle)
    try:
        keys = msgspec.json.decode(data, type=Keys)
    except UNREADABLE as error:
        raise KeysError(f"cannot read {path}: {error}; remove it, it is made again") from None
    if not keys.keys or not all(key.access_key_id and key.secret_access_key for key in keys.keys):
        raise KeysError(f"cannot use {path}: it lacks a key or a secret; remove it, it is made again")
    return keys


def write_keys(path: Path, keys: Keys) -> None:
    """Put these keys into the file, readable by its owner alone from the first byte."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, msgspec.json.format(msgspec.json.encode(keys)), mode=0o600)
    except OSError as error:
        raise KeysError(f"cannot write {path}: {error.strerror}; choose another --data-dir") from None


def _check(path: Path, status: os.stat_result) -> None:
    """Only a file that nobody else can have read or written is believed."""
    if not stat.S_ISREG(status.st_mode):
        raise KeysError(f"cannot read {path}: it is not a plain file; move it away, it is made again")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise KeysError(
            f"cannot trust {path}: others may read it (mode {mode:04o}); chmod 600 it, and when this control plane "
            "runs, replace the key with 'sexton keys rotate'"
        )
