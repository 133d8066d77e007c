"""What a task tries to learn of another task and of its host, try by try. None may succeed.

The attacker is a task in bridge mode, or one in host mode, on the same host as its victim, and knows all that can be
known from outside: ARNs, ids, addresses, ports. Tries that begin with ``leaked`` have the victim's secret name as well,
as if a log had shown it. Many are made with more rights than a container has, from a process of root in its network.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from endpoint_host import INTROSPECTION, PORT, Asker, EndpointHost, endpoint_host
from engine import EngineFailed
from inside import ENDPOINT, Inside, in_network
from node import until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(120)]


class Scene(NamedTuple):
    host: EndpointHost
    attacker: Asker
    victim: Asker
    hosted: Asker

    def told(self, body: bytes) -> bool:
        """Whether an answer says anything of the victim that the asker did not say itself."""
        words = (self.victim.id, self.victim.task, "DockerId", "TaskARN", "cpu_stats", "AccessKeyId")
        return any(word.encode() in body for word in words)

    def learns(self, path: str, place: Inside | None = None, **more: object) -> bool:
        answer = (place or self.attacker.inside).ask(path, **more)  # type: ignore[arg-type]
        return answer.status == 200 and self.told(answer.body)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    # Nobody is held up by the limit here; that is another test's.
    root = tmp_path_factory.mktemp("isolation")
    with endpoint_host(root, ECS_TASK_METADATA_RPS_LIMIT="100000,100000") as host:
        (attacker,), (victim,), (hosted,) = host.run("bridge"), host.run("bridge"), host.run("host")
        # Every try below fails; this shows that it is not for want of a way.
        assert attacker.inside.ask(f"/v4/{attacker.name}").json["DockerId"] == attacker.id
        assert victim.inside.ask(f"/v4/{victim.name}").json["DockerId"] == victim.id
        yield Scene(host, attacker, victim, hosted)


Try = Callable[[Scene], bool]
TRIES: dict[str, Try] = {}


def attempt(name: str) -> Callable[[Try], Try]:
    """Give a try its name; it returns whether it succeeded."""

    def add(one: Try) -> Try:
        assert name not in TRIES
        TRIES[name] = one
        return one

    return add


@attempt("guess names at random")
def guess(scene: Scene) -> bool:
    connection = scene.attacker.inside.connect()
    with contextlib.closing(connection):
        connection.settimeout(10)
        paths = [f"/v4/{uuid.uuid4()}/task" for _ in range(200)]
        request = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths[:-1])
        connection.sendall(
            request.encode() + f"GET {paths[-1]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    assert said.count(b"HTTP/1.1 404") == 200
    return scene.told(said)


@attempt("change the own name by little")
def neighbours(scene: Scene) -> bool:
    name = scene.attacker.name
    near = {name[:at] + other + name[at + 1 :] for at in (0, 9, 14, 35) for other in "0123456789abcdef"} - {name}
    return any(scene.learns(f"/v4/{one}/task") for one in near)


@attempt("use the name of the victim's metadata file, which its mounts show")
def file_name(scene: Scene) -> bool:
    name = scene.victim.variables["ECS_CONTAINER_METADATA_FILE"].split("/")[4]
    return any(scene.learns(f"/{version}/{name}{end}") for version in ("v3", "v4") for end in ("", "/task", "/stats"))


@attempt("use ids, ARNs and addresses in place of a name")
def identifiers(scene: Scene) -> bool:
    victim = scene.victim
    names = (victim.id, victim.id[:12], victim.task.rpartition("/")[2], victim.address, victim.task.replace("/", "%2F"))
    return any(
        scene.learns(f"/v{version}/{name}{end}") for version in (3, 4) for name in names for end in ("", "/task")
    )


@attempt("ask for all or for nobody")
def wildcards(scene: Scene) -> bool:
    names = ("", "*", "%2A", ".", "%00", "null", "undefined", "0", "%7Bname%7D", ".*", "' OR 1=1")
    return any(scene.learns(f"/v4/{name.replace(' ', '%20')}{end}") for name in names for end in ("", "/task", "s"))


@attempt("ask for tasks of the host, a path of Amazon's library")
def tasks(scene: Scene) -> bool:
    name = scene.attacker.name
    return any(
        scene.victim.id.encode() in scene.attacker.inside.ask(path).body
        for path in (f"/v4/{name}/tasks", f"/v4/{name}/tasks/stats", "/v1/tasks", f"/v4/{name}/task", "/metrics")
    )


@attempt("version 2 by the victim's container id")
def version_2(scene: Scene) -> bool:
    paths = (
        "/v2/metadata",
        "/v2/metadata/",
        f"/v2/metadata/{scene.victim.id}",
        f"/v2/stats/{scene.victim.id}",
        "/v2/stats",
    )
    return any(scene.learns(path) for path in paths)


@attempt("version 2 by the victim's container id from host mode")
def version_2_host(scene: Scene) -> bool:
    return any(
        scene.learns(path, scene.hosted.inside)
        for path in ("/v2/metadata", f"/v2/metadata/{scene.victim.id}", "/v2/stats")
    )


@attempt("guess from host mode")
def guess_host(scene: Scene) -> bool:
    return any(scene.learns(f"/v4/{uuid.uuid4()}/task", scene.hosted.inside) for _ in range(50))


@attempt("leaked name")
def leaked(scene: Scene) -> bool:
    name = scene.victim.name
    ends = ("", "/task", "/taskWithTags", "/stats", "/task/stats", "/associations/gpu")
    return any(scene.learns(f"/v{version}/{name}{end}") for version in (3, 4) for end in ends)


@attempt("leaked name behind tricks in the path")
def path_tricks(scene: Scene) -> bool:
    mine, name = scene.attacker.name, scene.victim.name
    paths = (
        f"//v4/{name}",
        f"/v4/./{name}/task",
        f"/v4/{mine}/../{name}/task",
        f"/v4/{mine}%2F..%2F{name}/task",
        f"/v4/{mine}/%2e%2e/{name}",
        f"/v4/{name}%2Ftask",
        f"/v4/{name.upper()}",
        f"/V4/{name}",
        f"/v4/{name}%20",
        f"/v4/{name};/task",
        f"/v4/{name}?v3EndpointIDMuxName={mine}",
        f"/v4/{mine}?v3EndpointIDMuxName={name}",
        f"/v4/{mine}/associations/..%2F..%2F{name}",
        f"/v4/{name}%00",
    )
    return any(scene.victim.id.encode() in scene.attacker.inside.ask(path).body for path in paths)


@attempt("leaked name by an address in a header")
def headers(scene: Scene) -> bool:
    address = scene.victim.address
    forged = {
        "X-Forwarded-For": address,
        "X-Real-IP": address,
        "Forwarded": f"for={address}",
        "Client-IP": address,
        "X-Client-IP": address,
        "Host": address,
        "Via": f"1.1 {address}",
    }
    return scene.learns(f"/v4/{scene.victim.name}/task", headers=forged)


@attempt("leaked name in a request line with a host")
def absolute(scene: Scene) -> bool:
    name = scene.victim.name
    lines = (f"http://169.254.170.2/v4/{name}", f"http://127.0.0.1:{PORT}/v4/{name}/task", f"http://{name}/v4/{name}")
    return any(scene.learns(line) for line in lines)


@attempt("leaked name hidden in another request")
def smuggled(scene: Scene) -> bool:
    hidden = f"GET /v4/{scene.victim.name}/task HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    first = f"POST /v4/{scene.attacker.name}/stats HTTP/1.1\r\nHost: x\r\n"
    forms = (
        f"{first}Content-Length: 0\r\n\r\n{hidden}",
        f"{first}Content-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        f"{first}Transfer-Encoding: chunked\r\n\r\n{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n{hidden}",
        f"{first}Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}",
    )
    return any(scene.victim.id.encode() in _raw(scene.attacker.inside, form) for form in forms)


def _raw(place: Inside, text: str) -> bytes:
    with contextlib.closing(place.connect()) as connection:
        connection.settimeout(6)
        connection.sendall(text.encode())
        with contextlib.suppress(OSError):
            return b"".join(iter(lambda: connection.recv(65536), b""))
    return b""


@attempt("leaked name by other addresses of the host")
def other_addresses(scene: Scene) -> bool:
    path, found = f"/v4/{scene.victim.name}/task", False
    for address in (scene.host.gateway, scene.host.network.host_address):
        with contextlib.suppress(OSError):
            found |= scene.learns(path, address=(address, PORT))
    return found


@attempt("leaked name with a source address that is not the attacker's")
def foreign_source(scene: Scene) -> bool:
    def connects() -> bool:
        with socket.socket() as made, contextlib.suppress(OSError):
            made.settimeout(1.0)
            made.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
            made.bind((scene.victim.address, 0))
            made.connect(ENDPOINT)
            return True
        return False  # the answer went to whom the address belongs

    return in_network(scene.attacker.inside.namespace, connects)


@attempt("open a connection with forged packets")
def forged_packets(scene: Scene) -> bool:
    """As a container may with NET_RAW, which engines give by default: the answer must not come here."""

    def knock() -> bool:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out,
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as back,
        ):
            back.settimeout(1.0)
            out.sendto(_syn(scene.victim.address, ENDPOINT[0], 40404, 80), ENDPOINT)
            with contextlib.suppress(TimeoutError):
                while True:
                    packet = back.recv(2048)
                    if struct.unpack("!HH", packet[20:24]) == (80, 40404):
                        return True
        return False

    return in_network(scene.attacker.inside.namespace, knock)


def _syn(source: str, target: str, from_port: int, to_port: int) -> bytes:
    ends = socket.inet_aton(source), socket.inet_aton(target)
    tcp = struct.pack("!HHIIBBHHH", from_port, to_port, 1, 0, 5 << 4, 2, 8192, 0, 0)
    pseudo = ends[0] + ends[1] + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp)) + tcp
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    total = (total >> 16) + (total & 0xFFFF)
    check = ~(total + (total >> 16)) & 0xFFFF
    tcp = tcp[:16] + struct.pack("!H", check) + tcp[18:]
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, socket.IPPROTO_TCP, 0, *ends) + tcp


@attempt("take the victim's address")
def take_address(scene: Scene) -> bool:
    with contextlib.suppress(EngineFailed):
        scene.host.execute(scene.attacker, "ip", "addr", "add", f"{scene.victim.address}/24", "dev", "eth0")
        return True
    return False


@attempt("services on the host's loopback, by every address of the host")
def loopback_services(scene: Scene) -> bool:
    ports = (INTROSPECTION, scene.host.node.port)
    addresses = ("127.0.0.1", scene.host.gateway, scene.host.network.host_address, "169.254.170.2")
    return any(scene.attacker.inside.reaches((address, port)) for address in addresses for port in ports)


@attempt("the host's loopback over the wire")
def loopback_by_wire(scene: Scene) -> bool:
    """With root's rights in its network: send packets for 127.0.0.1 to the host, which must not take them."""
    (own,) = scene.host.run("bridge")
    network = ["nsenter", f"--net={own.inside.namespace}"]
    for change in (
        "sysctl -qw net.ipv4.conf.eth0.route_localnet=1",
        "ip route del local 127.0.0.0/8 dev lo table local",
        "ip route del local 127.0.0.1 dev lo table local",
        f"ip route add 127.0.0.0/8 via {scene.host.gateway} src {own.address}",
    ):
        subprocess.run([*network, *change.split()], check=True, capture_output=True)
    ports = (INTROSPECTION, scene.host.node.port, PORT)
    return any(own.inside.reaches(("127.0.0.1", port), 1.0) for port in ports)


@attempt("other ports of the endpoint's address")
def other_ports(scene: Scene) -> bool:
    return any(
        scene.attacker.inside.reaches(("169.254.170.2", port), 0.3) for port in (22, 443, 8080, PORT, INTROSPECTION)
    )


@attempt("the agent's socket and its files from the container")
def agent_files(scene: Scene) -> bool:
    found = scene.host.execute(
        scene.attacker, "sh", "-c", "find / -xdev -name '*.sock' -o -name '*.db' -o -name '*.key'"
    )
    return bool(found.strip())


@attempt("files of other containers through the mount of the own one")
def other_files(scene: Scene) -> bool:
    script = "ls -a /opt/ecs/metadata /opt/ecs/metadata/*/.. ; cat /opt/ecs/metadata/*/../../*/*/*.json"
    said = scene.host.execute(scene.attacker, "sh", "-c", f"{script} 2>/dev/null; true")
    return scene.victim.id in said or scene.victim.task in said


@attempt("write to the own metadata file")
def write_file(scene: Scene) -> bool:
    script = "echo x > $ECS_CONTAINER_METADATA_FILE || ln -s /etc/shadow $(dirname $ECS_CONTAINER_METADATA_FILE)/x"
    with contextlib.suppress(EngineFailed):
        scene.host.execute(scene.attacker, "sh", "-c", script)
        return True
    return False


@attempt("the agent's files from host mode")
def host_mode_files(scene: Scene) -> bool:
    found = scene.host.execute(scene.hosted, "sh", "-c", "find / -xdev -name 'agent.sock' -o -name 'endpoint.key'")
    return bool(found.strip())


@attempt("a secret name in what introspection says, from host mode")
def introspection(scene: Scene) -> bool:
    said = b"".join(
        scene.hosted.inside.ask(path, address=("127.0.0.1", INTROSPECTION)).body
        for path in ("/v1/metadata", "/v1/tasks", f"/v1/tasks?dockerid={scene.victim.id}", "/metrics", "/")
    )
    assert scene.victim.id.encode() in said  # it does speak of containers
    return scene.victim.name.encode() in said


@attempt("a secret name in what a task is told of its siblings")
def siblings(scene: Scene) -> bool:
    base = f"/v4/{scene.victim.name}"
    said = b"".join(scene.victim.inside.ask(base + end).body for end in ("", "/task", "/task/stats", "/taskWithTags"))
    return scene.victim.name.encode() in said


@attempt("keep all connections to itself")
def hold_connections(scene: Scene) -> bool:
    held = [scene.attacker.inside.connect() for _ in range(300)]
    try:
        return scene.victim.inside.ask(f"/v4/{scene.victim.name}").status != 200
    finally:
        for one in held:
            one.close()


@attempt("keep the endpoint busy with requests that never end")
def slow_requests(scene: Scene) -> bool:
    held = [scene.attacker.inside.connect() for _ in range(100)]
    try:
        for one in held:
            with contextlib.suppress(OSError):
                one.sendall(b"GET /v4/x HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert scene.victim.inside.ask(f"/v4/{scene.victim.name}").status == 200
        # And they are not waited for: each is ended after a few seconds.
        held[0].settimeout(15)
        with contextlib.suppress(OSError):
            while held[0].recv(65536):
                pass
        return False
    finally:
        for one in held:
            one.close()


def test_every_try_is_one_of_its_own() -> None:
    assert len(TRIES) >= 25


@pytest.mark.parametrize("name", TRIES)
def test_it_does_not_succeed(scene: Scene, name: str) -> None:
    assert TRIES[name](scene) is False
    # Nobody was harmed: the victim is served, and the agent has nothing to complain of.
    until(lambda: scene.victim.inside.reaches(ENDPOINT), "the victim reaches its endpoint")
    assert scene.victim.inside.ask(f"/v4/{scene.victim.name}").json["DockerId"] == scene.victim.id
    assert "Traceback" not in scene.host.node.agent.log


def test_a_log_of_the_agent_has_no_secret_name(scene: Scene) -> None:
    log = scene.host.node.agent.log
    assert scene.victim.name not in log and scene.attacker.name not in log
    assert json.dumps(scene.victim.variables)  # which the engine knows, and whoever may ask it
