"""What a URL says about a cluster, and that it keeps its secrets."""

from __future__ import annotations

import pytest

from sexton.store.contract import StoreError
from sexton.store.etcd.address import Address, Login, TlsFiles, parse


@pytest.mark.parametrize(
    ("location", "endpoints", "prefix"),
    [
        ("host", ("http://host:2379",), b"/sexton/"),
        ("host:1/", ("http://host:1",), b"/sexton/"),
        ("a:1,b:2,[::1]:3/one", ("http://a:1", "http://b:2", "http://[::1]:3"), b"/one/"),
        ("h/one/two/", ("http://h:2379",), b"/one/two/"),
        ("h/caf%C3%A9", ("http://h:2379",), "/café/".encode()),
    ],
)
def test_members_and_prefix(location: str, endpoints: tuple[str, ...], prefix: bytes) -> None:
    address = parse(location, tls=False)

    assert address == Address(endpoints, prefix)


def test_tls_files_login_and_path_together() -> None:
    address = parse("me:p%40ss%2F@a:1,b:2/x/y?ca=/etc/ca.pem&cert=/c.pem&key=/k.pem", tls=True)

    assert address.endpoints == ("https://a:1", "https://b:2")
    assert address.prefix == b"/x/y/"
    assert address.login == Login("me", "p@ss/")
    assert address.tls == TlsFiles("/etc/ca.pem", "/c.pem", "/k.pem")
    assert parse("a?ca=/etc/ca.pem", tls=True) == Address(
        ("https://a:2379",), b"/sexton/", None, TlsFiles("/etc/ca.pem")
    )


def test_tls_without_files_trusts_the_system() -> None:
    assert parse("a", tls=True).tls == TlsFiles()


def test_the_end_of_a_prefix_is_behind_every_key_of_it_and_before_its_neighbours() -> None:
    address = parse("a/one", tls=False)

    assert address.prefix + b"\xff" * 9 < address.end < b"/one1"
    assert address.prefix > b"/one-two/key"


def test_nothing_that_is_printed_holds_the_password() -> None:
    address = parse("me:hunter2@a", tls=False)

    assert "hunter2" not in repr(address) + str(address) + address.name


@pytest.mark.parametrize(
    ("location", "tls", "words"),
    [
        ("", False, "is no address of a member"),
        ("a,,b", False, "is no address of a member"),
        ("a:port", False, "is no address of a member"),
        ("a:99999", False, "is no address of a member"),
        ("a b", False, "is no address of a member"),
        ("a?ca=/x", False, "write etcds://"),
        ("a?key=/x", True, "add cert="),
        ("a?CA=/x", True, "option 'CA' of its URL is unknown; known are ca, cert and key"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(location: str, tls: bool, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        parse(location, tls=tls)
