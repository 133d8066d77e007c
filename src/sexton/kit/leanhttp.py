"""The HTTP library, loaded so that a process that stays pays for what it uses.

Two things cost megabytes at its import and are not needed by then. It makes two contexts for TLS and reads all of the
host's certificate authorities into each, whether or not anything is ever called by TLS. And a list of its that can be
frozen comes as an extension that brings the whole C++ library with it. ``load`` puts off the first until somebody is
called by TLS, and takes the list that is written in Python.

Nothing is trusted that was not trusted before: the contexts are those that Python makes for the library, and the same
authorities are read before the first handshake.
"""

from __future__ import annotations

import importlib
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CONNECTOR = "aiohttp.connector"
_LIST = "frozenlist"
_NO_EXTENSION = "FROZENLIST_NO_EXTENSIONS"
# Authorities looked for below something that is no directory are none.
_NOWHERE = os.devnull


class TrustingLater(ssl.SSLContext):
    """A client's context that reads the authorities it trusts when it is first used."""

    bundle = ""
    _trusts = False

    def trust(self) -> None:
        """Read them now: the host's, and those of the bundle. Blocks; OSError (SSLError is one) when the bundle cannot
        be used."""
        if not self._trusts:
            self.load_default_certs(ssl.Purpose.SERVER_AUTH)
            if self.bundle:
                self.load_verify_locations(cafile=self.bundle)
            self._trusts = True

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        self.trust()
        return super().wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        self.trust()
        return super().wrap_socket(*arguments, **named)


def trusting_later(bundle: str = "") -> TrustingLater:
    """Python's own context for a client, complete but for the authorities. ``bundle`` is a PEM file of more of them."""
    context = ssl.create_default_context(capath=_NOWHERE)
    context.__class__ = TrustingLater
    assert isinstance(context, TrustingLater)
    context.bundle = bundle
    return context


def load() -> None:
    """Before anything else loads the library; afterwards it does nothing."""
    if _LIST not in sys.modules:
        with _said_to_libraries(_NO_EXTENSION, "1"):
            importlib.import_module(_LIST)
    if _CONNECTOR not in sys.modules:
        with _contexts_without_authorities():
            importlib.import_module(_CONNECTOR)


@contextmanager
def _said_to_libraries(name: str, value: str) -> Iterator[None]:
    """In the environment while it is needed, so that no child ever gets it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextmanager
def _contexts_without_authorities() -> Iterator[None]:
    """The library makes one context that verifies, with Python's own function, and one that does not and needs none."""
    genuine = ssl.create_default_context

    def verifying(*arguments: Any, **named: Any) -> ssl.SSLContext:
        return genuine(*arguments, **named) if arguments or named else trusting_later()

    def nothing(context: ssl.SSLContext) -> None:
        """Whoever asks nobody for a certificate needs no authority."""

    ssl.create_default_context = verifying
    ssl.SSLContext.set_default_verify_paths = nothing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ssl.create_default_context = genuine
        del ssl.SSLContext.set_default_verify_paths
