"""Log-ins are found by the host of an image, in either shape that operators write them."""

from __future__ import annotations

import base64
import json

import pytest

from sexton.core.registryauth import HUB_ADDRESS, BadAuthData, host_of, plain, read


@pytest.mark.parametrize(
    ("ref", "host"),
    [
        ("busybox", "docker.io"),
        ("team/app:1", "docker.io"),
        ("registry.example/app", "registry.example"),
        ("localhost/app", "localhost"),
        ("host:5000/a/b@sha256:1", "host:5000"),
    ],
)
def test_the_host_of_a_reference(ref, host):
    assert host_of(ref) == host


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("docker", {"https://registry.example/v1/": {"username": "u", "password": "p", "email": "e"}}),
        ("dockercfg", {"registry.example": {"auth": base64.b64encode(b"u:p").decode()}}),
        ("dockercfg", {"auths": {"Registry.example": {"auth": base64.b64encode(b"u:p").decode()}}}),
    ],
)
def test_a_table_in_either_shape(kind, data):
    found = read(kind, json.dumps(data))["registry.example"]

    assert (found["username"], found["password"]) == ("u", "p")
    assert "p" not in repr(found).replace("Hidden", "").replace("example", "").replace("https", "")


def test_the_public_registry_has_one_name():
    found = read("docker", json.dumps({"https://index.docker.io/v1/": {"username": "u", "password": "p"}}))

    assert found["docker.io"]["serveraddress"] == HUB_ADDRESS
    assert plain("registry-1.docker.io") == "docker.io"


def test_without_a_table_there_is_none():
    assert read("", "{}") == read("docker", "") == {}


@pytest.mark.parametrize("data", ["hunter2", '["hunter2"]', '{"h":{"password":"hunter2"}}', '{"h":"hunter2"}'])
def test_a_bad_table_is_named_without_being_quoted(data):
    with pytest.raises(BadAuthData) as caught:
        read("docker", data)

    assert "hunter2" not in str(caught.value)
