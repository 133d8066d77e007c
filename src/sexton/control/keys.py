"""The access keys that this control plane accepts, made at its first start.

One JSON file, mode 0600, holds them; whoever can read it is the administrator. A file that others could read is
refused rather than used, since then it may already have been read. The secret never appears in a log or a repr.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import msgspec

from sexton.kit.atomicfile import write_atomic

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

    def secret_of(self, access_key_id: str) -> str | None:
        for key in self.keys:
            if key.access_key_id == access_key_id:
                return key.secret_access_key
        return None


def new_key() -> Key:
    return Key(
        access_key_id=_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(16)),
        secret_access_key=secrets.token_urlsafe(30),
    )


def load_or_create(path: Path) -> Keys:
    """Read the keys, or make the first one."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        keys = Keys(keys=(new_key(),))
        try:
            write_atomic(path, msgspec.json.format(msgspec.json.encode(keys)), mode=0o600)
        except OSError as error:
            raise KeysError(f"cannot write {path}: {error.strerror}; choose another --data-dir") from None
        return keys
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; run as its owner") from None
    with os.fdopen(handle, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise KeysError(
                f"cannot trust {path}: others may read it (mode {mode:04o}); remove it to get new keys, or chmod 600"
            )
        data = file.read()
    try:
        keys = msgspec.json.decode(data, type=Keys)
    except msgspec.MsgspecError as error:
        raise KeysError(f"cannot read {path}: {error}; restore it, or remove it to get new keys") from None
    if not keys.keys:
        raise KeysError(f"cannot use {path}: it holds no key; remove it to get a new one")
    return keys
