"""TLS end to end: an agent and clients that trust an authority of their own, and a certificate renewed under them."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import SSLError

from certificates import issue
from node import QUIET, Role, free_port, until

pytestmark = pytest.mark.timeout(180)


def name_shown(port: int, ca: Path) -> str:
    context = ssl.create_default_context(cafile=str(ca))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        subject = wrapped.getpeercert()["subject"]
        return str(dict(part for row in subject for part in row)["commonName"])


class Host:
    """A control plane and an agent that has only its CA bundle to trust it by."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pki = root / "pki"
        certificate, key = issue(self.pki, "first")
        self.ca = self.pki / "ca.pem"
        self.certificate, self.key = root / "cert.pem", root / "key.pem"
        self.put(certificate, key)
        self.port = free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(root), "AWS_EC2_METADATA_DISABLED": "true"}
        for passed_on in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            if passed_on in os.environ:
                self.environment[passed_on] = os.environ[passed_on]
        tls = ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))
        listen = ("--listen", f"127.0.0.1:{self.port}")
        self.control = Role(
            "control", root / "control.log", ["--data-dir", str(root / "control"), *listen, *tls], self.environment
        )

    def put(self, certificate: Path, key: Path) -> None:
        for source, target in ((certificate, self.certificate), (key, self.key)):
            target.with_suffix(".new").write_bytes(source.read_bytes())
            target.with_suffix(".new").replace(target)

    def credentials(self) -> dict[str, str]:
        key = json.loads((self.root / "control/keys.json").read_text())["keys"][0]
        return {
            "AWS_ACCESS_KEY_ID": key["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def ecs(self, verify: str | None) -> object:
        key = self.credentials()
        return boto3.client(
            "ecs",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
            verify=verify,
            config=Config(retries={"total_max_attempts": 1}),
        )


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory):
    made = Host(tmp_path_factory.mktemp("tls"))
    made.control.start()
    try:
        until(lambda: listens(made.port), f"the control plane listens: {made.control.log}")
        yield made
    finally:
        made.control.kill()


def test_an_agent_a_client_and_the_command_line_trust_the_bundle_they_are_given(host: Host, tmp_path: Path) -> None:
    with pytest.raises(SSLError):
        host.ecs(None).list_clusters()
    client = host.ecs(str(host.ca))
    arguments = ["--data-dir", str(tmp_path / "agent"), "--backend", host.endpoint, "--docker-host", "fake://"]
    trusting = host.environment | host.credentials() | QUIET
    agent = Role("agent", tmp_path / "agent.log", arguments, trusting | {"AWS_CA_BUNDLE": str(host.ca)})
    agent.start()
    try:

        def connected() -> bool:
            arns = client.list_container_instances()["containerInstanceArns"]
            found = client.describe_container_instances(containerInstances=arns)["containerInstances"] if arns else []
            return any(one["agentConnected"] for one in found)

        until(connected, f"the agent connects: {agent.log[-2000:]}")
        assert "cannot report" not in agent.log
    finally:
        agent.kill()
    done = subprocess.run(
        [sys.executable, "-m", "sexton", "ps"],
        env=trusting | {"AWS_ENDPOINT_URL": host.endpoint, "AWS_CA_BUNDLE": str(host.ca)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "no tasks in cluster default; --all shows stopped ones\n"), done.stderr
    doubting = Role("agent", tmp_path / "doubting.log", arguments, trusting)
    doubting.start()
    try:
        until(lambda: "its certificate is not trusted" in doubting.log, "the agent doubts the certificate")
    finally:
        doubting.kill()


def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on(host: Host) -> None:
    context = ssl.create_default_context(cafile=str(host.ca))
    with (
        socket.create_connection(("127.0.0.1", host.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as old,
    ):
        before = name_shown(host.port, host.ca)
        renewed = "second" if before == "first" else "first"
        host.put(*issue(host.pki, renewed))
        os.kill(host.control.pid, signal.SIGHUP)
        until(lambda: name_shown(host.port, host.ca) == renewed, "the new certificate to be shown")

        # One that does not belong to its key is named, and the good one stays.
        stranger, _ = issue(host.pki, "stranger")
        host.certificate.write_bytes(stranger.read_bytes())
        os.kill(host.control.pid, signal.SIGHUP)
        until(lambda: "certificate not renewed" in host.control.log, "the bad pair to be named")
        assert name_shown(host.port, host.ca) == renewed

        old.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert old.recv(100).startswith(b"HTTP/1.1 200")
    assert host.control.running


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot use the certificate"), ("no PEM", "cannot use the certificate")]
)
def test_files_that_are_no_certificate_end_the_start_with_their_name(
    tmp_path: Path, content: str | None, said: str
) -> None:
    certificate = tmp_path / "cert.pem"
    if content is not None:
        certificate.write_text(content)
    arguments = ["--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}"]
    role = Role(
        "control",
        tmp_path / "log",
        [*arguments, "--tls-cert", str(certificate), "--tls-key", str(certificate)],
        {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )
    role.start()
    try:
        assert role.wait(30) == 1
    finally:
        role.kill()
    assert said in role.log
    assert str(certificate) in role.log
    assert "Traceback" not in role.log
