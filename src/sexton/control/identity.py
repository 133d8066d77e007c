"""EC2's identity documents, when they are to be verified: which host registers, by EC2's own signature.

Without certificates, documents are taken as they are, as most hosts here have none. With them every registration needs
a document of the call's region with a signature by one of the certificates: plain RSA, which is what agents send, or
PKCS7, for which the ``openssl`` program is asked, since taking those apart is not for us.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sexton.core.identity import NotRsa, PublicKey, public_key_of, signed_by
from sexton.wire.errors import UNREADABLE, ClientException

log = logging.getLogger(__name__)

OPENSSL_SECONDS = 10.0
LARGEST_FILE = 1 << 20
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class IdentityError(Exception):
    """The certificates cannot be used; the message says why."""


class _Document(msgspec.Struct, frozen=True):
    region: str = ""
    instance_id: str = msgspec.field(name="instanceId", default="")


class IdentityCheck:
    """Verifies documents against the certificates of one PEM file."""

    def __init__(self, path: Path, keys: Sequence[PublicKey]) -> None:
        self._path = path
        self._keys = keys

    @classmethod
    def load(cls, path: Path) -> IdentityCheck:
        try:
            text = path.read_text(errors="replace")[:LARGEST_FILE]
        except OSError as error:
            raise IdentityError(f"cannot read the certificates in {path}: {error.strerror}") from None
        parts = [f"{_BEGIN}{part.partition(_END)[0]}{_END}\n" for part in text.split(_BEGIN)[1:]]
        if not parts:
            raise IdentityError(f"cannot use {path}: it holds no certificate; put EC2's for your regions there, as PEM")
        keys = []
        for number, part in enumerate(parts, start=1):
            try:
                keys.append(public_key_of(ssl.PEM_cert_to_DER_cert(part)))
            except NotRsa as error:
                # EC2 publishes one with another algorithm beside it; PKCS7 signatures may still be of that.
                log.warning("certificate without an RSA key", extra={"file": str(path), "certificate": number})
                if len(parts) == 1:
                    raise IdentityError(f"cannot use the certificate in {path}: {error}") from None
            except ValueError:
                raise IdentityError(f"cannot use {path}: certificate {number} in it is damaged") from None
        return cls(path, keys)

    async def check(self, document: str | None, signature: str | None, region: str) -> None:
        """Raise the API's error unless EC2 says that this is one of the region's instances."""
        if not document or not signature:
            raise _refused("there is none; this control plane takes hosts with a signed one only")
        try:
            said = msgspec.json.decode(document, type=_Document)
        except UNREADABLE:
            raise _refused("it is not readable") from None
        if not said.instance_id or said.region != region:
            raise _refused(f"it is of region '{said.region}' and the request of {region}")
        try:
            raw = base64.b64decode("".join(_bare(signature).split()), validate=True)
        except (binascii.Error, ValueError):
            raise _refused("its signature is no base64") from None
        data = document.encode()
        if any(signed_by(key, data, raw) for key in self._keys):
            return
        if not (raw.startswith(b"\x30") and await self._signed_in_pkcs7(data, raw)):
            raise _refused("its signature is by none of the certificates that are trusted")

    async def _signed_in_pkcs7(self, document: bytes, signature: bytes) -> bool:
        def prepare() -> tempfile.TemporaryDirectory[str]:
            folder = tempfile.TemporaryDirectory(prefix="sexton-identity-")
            (Path(folder.name) / "document").write_bytes(document)
            (Path(folder.name) / "signature").write_bytes(signature)
            return folder

        folder = await asyncio.to_thread(prepare)
        try:
            # The signer must be one of ours: certificates inside the signature are not looked at. Nor is who signed
            # ours, since they are EC2's own.
            process = await asyncio.create_subprocess_exec(
                *("openssl", "cms", "-verify", "-binary", "-inform", "DER", "-in", f"{folder.name}/signature"),
                *("-content", f"{folder.name}/document", "-certfile", str(self._path), "-nointern", "-noverify"),
                *("-out", "/dev/null"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", "")},
            )
            try:
                async with asyncio.timeout(OPENSSL_SECONDS):
                    return await process.wait() == 0
            except (TimeoutError, asyncio.CancelledError):
                process.kill()
                await process.wait()
                raise
        except (OSError, TimeoutError) as error:
            log.error("identity not verified", extra={"reason": f"openssl does not run: {error}"})
            return False
        finally:
            await asyncio.to_thread(folder.cleanup)


def _bare(signature: str) -> str:
    """Without the lines that frame a PKCS7 signature in PEM."""
    return "".join(line for line in signature.splitlines() if not line.startswith("-----"))


def _refused(why: str) -> ClientException:
    return ClientException(f"The instance identity document could not be verified: {why}.")
