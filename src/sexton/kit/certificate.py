"""A server's certificate and key from two PEM files, taken up again when they change.

One context serves for as long as the process lives: a new pair is loaded into it and counts for the connections that
come from then on, while those that are open go on undisturbed. A pair that cannot be used is named in the log, once,
and the one before stays in use; every new pair is tried on a context of its own first, since a failed load would leave
half of it behind.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from sexton.kit.leanhttp import trusting_later

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""How often the files are looked at: tools that renew certificates need not tell anybody."""


class CertificateError(Exception):
    """The pair cannot be used; the message says why."""


class Certificate:
    """The pair in force. CertificateError when the first one cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._asked = asyncio.Event()
        self._seen = self._stamp()
        self.context = self._load(_fresh())

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        """What tells one state of the files from another."""
        found = []
        for path in (self._certificate, self._key):
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            # Without a password to ask for: nobody sits at a daemon's terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or getattr(error, "reason", "") or str(error)
            raise CertificateError(
                f"cannot use the certificate {self._certificate} with the key {self._key}: {reason}; "
                "both must be readable PEM files that belong together, the key without a password"
            ) from None
        return context

    def reload(self) -> None:
        """Look at the files now, whether they seem changed or not."""
        self._asked.set()

    async def watch(self) -> None:
        """Take up new pairs until cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                if self._stamp() == self._seen:
                    continue
            self._asked.clear()
            self._seen = self._stamp()
            try:
                await asyncio.to_thread(self._load, _fresh())
                self._load(self.context)
            except CertificateError as error:
                log.error("certificate not renewed", extra={"reason": str(error)})
            else:
                log.info("certificate renewed", extra={"certificate": str(self._certificate)})


def _fresh() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def trusting(bundle: str) -> ssl.SSLContext:
    """A client's context that trusts the system's authorities and those in a PEM file as well."""
    if bundle:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=bundle)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or getattr(error, "reason", "") or str(error)
            raise CertificateError(f"cannot use the certificates in {bundle}: {reason}; name a PEM file") from None
    return trusting_later(bundle)
