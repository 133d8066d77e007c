"""Where an etcd cluster is and who asks: ``etcd://[user:password@]host:port[,host:port...][/prefix][?ca=&cert=&key=]``.

Every key goes under the prefix, so that several Sextons, and others, share one cluster. The password stays in a
value of its own and out of every name that is printed.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from sexton.store.contract import StoreError

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "/sexton/"
TLS_FILES = ("ca", "cert", "key")


class Login(NamedTuple):
    """A user of etcd; the representation keeps the password to itself."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class TlsFiles(NamedTuple):
    """PEM files: who may sign for the cluster (empty: the system's authorities), and our own proof, if any."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class Address(NamedTuple):
    """A cluster, and our place in it."""

    endpoints: tuple[str, ...]
    """Base URLs, in the order given; the first that answers is used."""

    prefix: bytes
    login: Login | None = None
    tls: TlsFiles | None = None

    @property
    def name(self) -> str:
        """For messages and logs: the members, nothing secret."""
        return "etcd at " + ", ".join(endpoint.partition("://")[2] for endpoint in self.endpoints)

    @property
    def end(self) -> bytes:
        """The first key behind all of ours; the prefix ends with a slash, so its last byte can grow."""
        return self.prefix[:-1] + bytes([self.prefix[-1] + 1])


def parse(location: str, *, tls: bool) -> Address:
    """The address behind the scheme of a store's URL."""
    place, _, query = location.partition("?")
    members, _, path = place.partition("/")
    who, at, hosts = members.rpartition("@")
    scheme = "https" if tls else "http"
    endpoints = tuple(_endpoint(scheme, host) for host in hosts.split(","))
    files = _tls_files(query)
    if files and not tls:
        raise StoreError("cannot open etcd: TLS files are named but the URL begins with etcd://; write etcds://")
    prefix = "/" + unquote(path).strip("/") + "/" if path.strip("/") else DEFAULT_PREFIX
    return Address(endpoints, prefix.encode(), _login(who) if at else None, (files or TlsFiles()) if tls else None)


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Reads files: not for the event loop's thread."""
    try:
        context = ssl.create_default_context(cafile=files.ca or None)
        if files.cert:
            context.load_cert_chain(files.cert, files.key or None)
    except (OSError, ssl.SSLError) as error:
        raise StoreError(
            f"cannot use the TLS files of the etcd URL: {error}; name readable PEM files with ?ca=, cert= and key="
        ) from error
    return context


def _login(who: str) -> Login:
    user, _, password = who.partition(":")
    return Login(unquote(user), unquote(password))


def _endpoint(scheme: str, host: str) -> str:
    try:
        parts = urlsplit(f"{scheme}://{host}")
        name, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        name, port = None, 0
    if not name or any(letter in host for letter in "#\\ "):
        raise StoreError(
            f"cannot open etcd: {host!r} is no address of a member; write etcd://host:port[,host:port...][/prefix]"
        )
    bracketed = f"[{name}]" if ":" in name else name
    return f"{scheme}://{bracketed}:{port}"


def _tls_files(query: str) -> TlsFiles | None:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for option in given:
        if option not in TLS_FILES:
            raise StoreError(f"cannot open etcd: option {option!r} of its URL is unknown; known are ca, cert and key")
    if given.get("key") and not given.get("cert"):
        raise StoreError("cannot open etcd: its URL names a key without a certificate; add cert=")
    return TlsFiles(**given) if given else None
