"""Credentials that lie on this host: given in the program, in the environment, in a file.

Every provider reads afresh each time it is asked, so that a file put right or rotated takes effect without a
restart. Files are read off the event loop, and never more of them than credentials can fill.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sexton.cloud.credentials import Credentials, Found, Unavailable

# Where the SSM agent of an ECS Anywhere host puts the instance's credentials, as mounted for Amazon's agent.
ROTATING_FILE = Path("/rotatingcreds/credentials")
# The rotating file names no end of its credentials, so it is read again this often.
ROTATING_INTERVAL = 60.0
# A credentials file is a few hundred bytes; what is larger than this is something else.
_LARGEST_FILE = 1 << 20
_DEFAULT_PROFILE = "default"


class Static(NamedTuple):
    """Credentials the program was given."""

    credentials: Credentials
    name: str = "given credentials"

    async def fetch(self) -> Found:
        """See Provider."""
        return Found(self.credentials)


class Environment:
    """AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary ones, AWS_SESSION_TOKEN."""

    name = "environment"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def fetch(self) -> Found:
        """See Provider."""
        key_id = self._environ.get("AWS_ACCESS_KEY_ID", "").strip()
        secret = self._environ.get("AWS_SECRET_ACCESS_KEY", "").strip()
        if not key_id:
            raise Unavailable("AWS_ACCESS_KEY_ID is not set")
        if not secret:
            raise Unavailable("AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not")
        return Found(Credentials(key_id, secret, self._environ.get("AWS_SESSION_TOKEN", "").strip() or None))


class KeysFile:
    """The keys a control plane of ours made at its first start. Refused when others than the owner may read it."""

    name = "keys file"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def fetch(self) -> Found:
        """See Provider."""
        text, mode = await asyncio.to_thread(_read, self._path)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Unavailable(f"{self._path} has mode {mode:04o}, others may read it; run: chmod 600 {self._path}")
        try:
            keys = json.loads(text)
        except ValueError:
            raise Unavailable(f"{self._path} is not JSON") from None
        if isinstance(keys, dict) and isinstance(keys.get("keys"), list) and keys["keys"]:
            keys = keys["keys"][0]  # a control plane keeps several; the first is its administrator's
        key_id, secret = (
            (keys.get("access_key_id"), keys.get("secret_access_key")) if isinstance(keys, dict) else (None, None)
        )
        if not (isinstance(key_id, str) and key_id and isinstance(secret, str) and secret):
            raise Unavailable(f"{self._path} lacks access_key_id or secret_access_key")
        return Found(Credentials(key_id, secret))


class SharedFile:
    """A profile of the credentials file that the AWS tools share."""

    name = "shared file"

    def __init__(self, path: Path, profile: str) -> None:
        self._path = path
        self._profile = profile

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SharedFile:
        """Find file and profile the way the AWS tools do."""
        named = environ.get("AWS_SHARED_CREDENTIALS_FILE")
        home = environ.get("HOME") or "/root"
        path = Path(named) if named else Path(home, ".aws", "credentials")
        return cls(path, environ.get("AWS_PROFILE") or _DEFAULT_PROFILE)

    async def fetch(self) -> Found:
        """See Provider."""
        text, _ = await asyncio.to_thread(_read, self._path)
        return Found(_from_profile(self._path, text, self._profile))


class RotatingFile:
    """The file another program keeps fresh on a host outside AWS; read again every minute."""

    name = "rotating file"

    def __init__(self, path: Path = ROTATING_FILE, profile: str = _DEFAULT_PROFILE) -> None:
        self._path = path
        self._profile = profile

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], path: Path = ROTATING_FILE) -> RotatingFile:
        """Take the profile from ECS_ALTERNATE_CREDENTIAL_PROFILE."""
        return cls(path, environ.get("ECS_ALTERNATE_CREDENTIAL_PROFILE") or _DEFAULT_PROFILE)

    async def fetch(self) -> Found:
        """See Provider."""
        text, _ = await asyncio.to_thread(_read, self._path)
        return Found(_from_profile(self._path, text, self._profile), refresh_after=ROTATING_INTERVAL)


def profiles(text: str) -> dict[str, dict[str, str]]:
    """Read the INI dialect of the AWS tools: ``[profile]``, ``key = value``, whole-line comments, no escapes.

    A value is taken as it stands: secrets may hold ``#``, ``;``, ``%`` and ``=``. Any other line is skipped.
    """
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and "]" in line:
            section = found.setdefault(line[1 : line.index("]")].strip(), {})
            continue
        key, equals, value = line.partition("=")
        if equals:
            section[key.strip().lower()] = value.strip()
    return found


def _from_profile(path: Path, text: str, profile: str) -> Credentials:
    entries = profiles(text).get(profile)
    if entries is None:
        raise Unavailable(f"{path} has no profile [{profile}]")
    key_id, secret = entries.get("aws_access_key_id"), entries.get("aws_secret_access_key")
    if not key_id or not secret:
        raise Unavailable(f"profile [{profile}] of {path} lacks aws_access_key_id or aws_secret_access_key")
    return Credentials(key_id, secret, entries.get("aws_session_token") or None)


def _read(path: Path) -> tuple[str, int]:
    """Return the file's text and its permission bits, both of the same open file."""
    try:
        # Not blocking, or a pipe in the file's place would hold the thread for ever.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Unavailable(f"{path} does not exist") from None
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Unavailable(f"{path} is not a regular file")
        data = os.read(handle, _LARGEST_FILE + 1)
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(handle)
    if len(data) > _LARGEST_FILE:
        raise Unavailable(f"{path} is too large to be a credentials file")
    return data.decode("utf-8", "replace"), stat.S_IMODE(status.st_mode)
