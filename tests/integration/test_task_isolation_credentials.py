"""What a task tries to get at another task's rights, try by try. None may succeed.

The attacker is a task in bridge mode with a small role, or one in host mode with the same, on the same host as its
victim, whose role may do everything. It knows all that can be known from outside: ARNs, ids, addresses, ports, and how
all this works. Tries that begin with ``leaked`` have the secret place of the victim's keys as well, as if a log had
shown it. Many are made with more rights than a container has, from a process of root in its network.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from endpoint_host import INTROSPECTION, PORT, Asker, EndpointHost, endpoint_host
from engine import EngineFailed
from inside import Inside, in_network
from node import REGION, until
from rolelab import ROLE, statement, write_roles
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

pytestmark = [pytest.mark.timeout(120)]

PLACE = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
SMALL = [
    statement(["ecs:List*", "ecs:Describe*", "ecs:RunTask", "ecs:RegisterTaskDefinition", "ecs:*Service"]),
    statement("iam:PassRole", ROLE + "small"),
]
ROLES = {"small": SMALL, "big": [statement("*")], "exec": [statement("*")]}


class Scene(NamedTuple):
    host: EndpointHost
    attacker: Asker
    victim: Asker
    hosted: Asker
    root: Path

    @property
    def secret(self) -> str:
        """The id of the victim's keys."""
        return self.victim.variables[PLACE].rpartition("/")[2]

    @property
    def own(self) -> str:
        return self.attacker.variables[PLACE].rpartition("/")[2]

    def gets(self, path: str, place: Inside | None = None, **more: Any) -> bool:
        """Whether an answer holds keys, or the place of the victim's, that the asker did not say itself."""
        answer = (place or self.attacker.inside).ask(path, **more)
        return self.holds(answer.body) or (self.secret.encode() in answer.body and self.secret not in path)

    def holds(self, body: bytes) -> bool:
        return b"SecretAccessKey" in body and b"role/small" not in body

    def raw(self, text: str) -> bytes:
        with contextlib.closing(self.attacker.inside.connect()) as connection:
            connection.settimeout(6)
            connection.sendall(text.encode())
            with contextlib.suppress(OSError):
                return b"".join(iter(lambda: connection.recv(65536), b""))
        return b""

    def keys(self) -> dict[str, str]:
        """The attacker's own, as its endpoint gives them."""
        found: dict[str, str] = self.hosted.inside.ask(self.hosted.variables[PLACE]).json
        return found

    def client(self, name: str, keys: dict[str, str] | None = None, **changes: str) -> Any:
        """A stock client with the attacker's keys, or with what it makes of them, in the host's own network."""
        keys = (keys or self.keys()) | changes
        return boto3.client(
            name,
            endpoint_url=self.host.node.endpoint,
            region_name=REGION,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys["Token"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def does(self, call: Callable[..., Any], **fields: Any) -> bool:
        """Whether a call is let through."""
        try:
            call(**fields)
        except ClientError as error:
            assert error.response["Error"]["Code"] in (
                "AccessDeniedException",
                "UnrecognizedClientException",
                "InvalidSignatureException",
                "ExpiredTokenException",
                "AccessDenied",
                "InvalidClientTokenId",
                "SignatureDoesNotMatch",
            ), error
            return False
        return True

    def own_path(self, method: str, path: str, keys: dict[str, str] | None = None) -> int:
        """The status of a call of the control plane's own paths, signed with the attacker's keys."""
        headers = {"Host": f"127.0.0.1:{self.host.node.port}"}
        if keys is not None:
            signer = Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"])
            bare, _, query = path.partition("?")
            headers |= sign(method, bare, query, headers, b"", signer, region=REGION, service="ecs", now=time.time())
        address = ("127.0.0.1", self.host.node.port)
        headers.pop("Host")
        return self.hosted.inside.ask(path, method, address=address, headers=headers).status


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("isolation")
    roles = write_roles(root / "roles.toml", ROLES)
    # Nobody is held up by the limit here; that is another test's.
    with endpoint_host(root, SEXTON_ROLES=str(roles), ECS_TASK_METADATA_RPS_LIMIT="100000,100000") as host:
        attacker, victim = run(host, "bridge", "small"), run(host, "bridge", "big")
        hosted = run(host, "host", "small")
        # Every try below fails; this shows that it is not for want of a way.
        for one, role in ((attacker, "small"), (victim, "big"), (hosted, "small")):
            assert one.inside.ask(one.variables[PLACE]).json["RoleArn"] == ROLE + role
        yield Scene(host, attacker, victim, hosted, root)


def run(host: EndpointHost, mode: str, role: str) -> Asker:
    ecs = host.node.ecs()
    definition = ecs.register_task_definition(
        family=f"{mode}-{role}",
        networkMode=mode,
        taskRoleArn=role,
        executionRoleArn="exec",
        containerDefinitions=[
            {"name": "app", "image": host.image, "memory": 16, "command": ["sleep", "1000"], "stopTimeout": 2}
        ],
    )["taskDefinition"]["taskDefinitionArn"]
    (task,) = ecs.run_task(taskDefinition=definition)["tasks"]

    def running() -> dict[str, Any] | None:
        (found,) = ecs.describe_tasks(tasks=[task["taskArn"]])["tasks"]
        return found if found["lastStatus"] == "RUNNING" else None

    found = until(running, f"{definition} runs")
    return host.asker(found["containers"][0]["runtimeId"], task["taskArn"])


Try = Callable[[Scene], bool]
TRIES: dict[str, Try] = {}


def attempt(name: str) -> Callable[[Try], Try]:
    """Give a try its name; it returns whether it succeeded."""

    def add(one: Try) -> Try:
        assert name not in TRIES
        TRIES[name] = one
        return one

    return add


@attempt("guess ids at random")
def guess(scene: Scene) -> bool:
    paths = [f"/v2/credentials/{uuid.uuid4()}" for _ in range(300)]
    said = scene.raw(
        "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths[:-1])
        + f"GET {paths[-1]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert said.count(b"InvalidIdInRequest") == 300
    return scene.holds(said)


@attempt("guess ids from host mode")
def guess_host(scene: Scene) -> bool:
    return any(scene.gets(f"/v2/credentials/{uuid.uuid4()}", scene.hosted.inside) for _ in range(50))


@attempt("change the own id by little")
def neighbours(scene: Scene) -> bool:
    own = scene.own
    near = {own[:at] + digit + own[at + 1 :] for at in (0, 7, 9, 20, 35) for digit in "0123456789abcdef"} - {own}
    return any(scene.gets(f"/v2/credentials/{one}") for one in near)


@attempt("ids, ARNs and addresses in the place of an id")
def identifiers(scene: Scene) -> bool:
    victim = scene.victim
    task_id = victim.task.rpartition("/")[2]
    names = (victim.id, task_id, str(uuid.UUID(task_id)), victim.task.replace("/", "%2F"), victim.address, victim.name)
    return any(scene.gets(f"/v2/credentials/{one}") or scene.gets(f"/v1/credentials?id={one}") for one in names)


@attempt("an id computed as ids are, with every secret that could be known")
def computed(scene: Scene) -> bool:
    import hmac

    arn, found = scene.victim.task, []
    for seal in (
        b"",
        b"\0" * 32,
        scene.victim.id.encode(),
        scene.own.encode(),
        bytes.fromhex(scene.own.replace("-", "")),
    ):
        for kind in ("TaskApplication", "TaskExecution"):
            mark = hmac.digest(seal, f"credentials-id\0{kind} {arn}".encode(), hashlib.sha256).hex()
            found.append("-".join((mark[:8], mark[8:12], mark[12:16], mark[16:20], mark[20:32])))
    return any(scene.gets(f"/v2/credentials/{one}") for one in found)


@attempt("nothing, wildcards and patterns in the place of an id")
def wildcards(scene: Scene) -> bool:
    names = ("", "*", "%2A", ".", "..", "%00", "null", "0", "%7Bid%7D", ".*", "%25", "'%20OR%201=1", "%FF", "[]")
    paths = [f"{base}{one}" for one in names for base in ("/v2/credentials/", "/v1/credentials?id=")]
    return any(scene.gets(path) for path in paths)


@attempt("two ids at once, and ids where none belong")
def twice(scene: Scene) -> bool:
    own, form = scene.own, b"id=" + scene.secret.encode()
    return (
        any(
            scene.gets(path)
            for path in (
                f"/v1/credentials?id={uuid.uuid4()}&id={own}x",
                f"/v1/credentials?id[]={own}",
                "/v1/credentials?ID=x&Id=y",
                "/v2/credentials/?id=x",
                f"/v2/credentials/{own}/../",
                f"/v2/credentials/x%3Fid={own}",
            )
        )
        or scene.holds(scene.attacker.inside.ask("/v1/credentials", "POST", body=form).body)
        or scene.holds(scene.attacker.inside.ask("/v2/credentials/", "POST", body=form).body)
    )


@attempt("paths of Amazon's library that hand out more")
def library(scene: Scene) -> bool:
    own = scene.own
    return any(
        scene.gets(f"{path}{end}")
        for path in ("/v2/splunk-token/", "/v2/container-env/", "/v3/credentials/", "/v2/credentials", "/credentials")
        for end in ("", own, scene.victim.id, scene.secret)
    )


@attempt("the own keys of the execution role, whose id no container is told")
def own_execution(scene: Scene) -> bool:
    told = json.dumps(scene.attacker.variables) + scene.host.engine.cli("exec", scene.attacker.id, "env")
    assert "TaskExecution" not in told and told.count("/v2/credentials/") == 2
    answer = scene.attacker.inside.ask(scene.attacker.variables["ECS_CONTAINER_METADATA_URI_V4"][20:] + "/task")
    return scene.own in answer.body.decode() or b"credentials" in answer.body


@attempt("leaked id")
def leaked(scene: Scene) -> bool:
    secret = scene.secret
    return any(scene.gets(path) for path in (f"/v2/credentials/{secret}", f"/v1/credentials?id={secret}"))


@attempt("leaked id behind tricks in the path")
def path_tricks(scene: Scene) -> bool:
    secret, own = scene.secret, scene.own
    paths = (
        f"//v2//credentials//{secret}",
        f"/v2/./credentials/{secret}",
        f"/v2/credentials/{own}/../{secret}",
        f"/v2/credentials/{own}%2F..%2F{secret}",
        f"/v2/credentials/{secret}/",
        f"/v2/credentials/{secret.upper()}",
        f"/V2/Credentials/{secret}",
        f"/v2%2Fcredentials%2F{secret}",
        f"/v2/credentials/{secret}?id={own}",
        f"/v1/credentials?id={own}&id={secret}",
        f"/v1/credentials?id={secret}&id={own}",
        f"/v2/credentials/{secret}%00",
        f"/v2/credentials/{secret}#{own}",
        f"/v4/{scene.attacker.name}/../../v2/credentials/{secret}",
        f"/api/{scene.attacker.name}/%2e%2e/%2e%2e/v2/credentials/{secret}",
    )
    return any(scene.holds(scene.attacker.inside.ask(path).body) for path in paths)


@attempt("leaked id with an address in a header")
def headers(scene: Scene) -> bool:
    names = ("X-Forwarded-For", "X-Real-IP", "Forwarded", "Client-IP", "X-Client-IP", "Host", "Via", "True-Client-IP")
    return any(
        scene.holds(scene.attacker.inside.ask(f"/v2/credentials/{scene.secret}", headers={name: value}).body)
        for name in names
        for value in (scene.victim.address, "127.0.0.1", f"for={scene.victim.address}")
    )


@attempt("leaked id in a request line with a host, and with every verb")
def absolute(scene: Scene) -> bool:
    path = f"/v2/credentials/{scene.secret}"
    lines = (f"http://169.254.170.2{path}", f"http://127.0.0.1:{PORT}{path}", f"http://{scene.victim.address}{path}")
    verbs = ("POST", "PUT", "HEAD", "OPTIONS", "TRACE", "DELETE", "PROPFIND")
    return any(scene.gets(line) for line in lines) or any(
        scene.holds(scene.attacker.inside.ask(path, verb).body) for verb in verbs
    )


@attempt("leaked id hidden in another request")
def smuggled(scene: Scene) -> bool:
    hidden = f"GET /v2/credentials/{scene.secret} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    first = f"POST /v2/credentials/{scene.own} HTTP/1.1\r\nHost: x\r\n"
    forms = (
        f"{first}Content-Length: 0\r\n\r\n{hidden}",
        f"{first}Content-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        f"{first}Transfer-Encoding: chunked\r\n\r\n{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n{hidden}",
        f"{first}Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n{hidden}",
    )
    return any(b"role/big" in scene.raw(form) for form in forms)


@attempt("leaked id from the victim's address, taken by root in the attacker's network")
def forged(scene: Scene) -> bool:
    """Its answers go to whom the address belongs."""
    address = scene.victim.address
    namespace = f"/proc/{scene.attacker.pid}/ns/net"

    def ask() -> bytes:
        with socket.socket() as line:
            line.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
            line.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
            line.settimeout(1.0)
            line.bind((address, 0))
            line.connect(("169.254.170.2", 80))
            line.sendall(f"GET /v2/credentials/{scene.secret} HTTP/1.0\r\n\r\n".encode())
            return line.recv(65536)

    with contextlib.suppress(OSError):
        return scene.holds(in_network(namespace, ask))
    return False


@attempt("leaked id at the agent's own port, by every address of the host")
def behind(scene: Scene) -> bool:
    path = f"/v2/credentials/{scene.secret}"
    found = []
    for place in (scene.attacker.inside, Inside(scene.host.network.path(scene.host.network.neighbour))):
        for host in (scene.host.gateway, scene.host.network.host_address, "169.254.170.2", "127.0.0.1"):
            for port in (80, PORT, PORT + 1):
                if place.reaches((host, port), 0.3):
                    found.append(place.ask(path, address=(host, port)).body)
    return any(scene.holds(body) for body in found)


@attempt("leaked id of a task that has stopped")
def late(scene: Scene) -> bool:
    """From host mode, from where the endpoint cannot tell who asks."""
    other = run(scene.host, "bridge", "big")
    path = other.variables[PLACE]
    assert scene.hosted.inside.ask(path).status == 200
    ecs = scene.host.node.ecs()
    ecs.stop_task(task=other.task)
    until(lambda: ecs.describe_tasks(tasks=[other.task])["tasks"][0]["lastStatus"] == "STOPPED", "it stops")
    return scene.hosted.inside.ask(path).status == 200


@attempt("leaked name of the victim's container: protect it, or disturb its network")
def agent_api(scene: Scene) -> bool:
    base = f"/api/{scene.victim.name}"
    answers = [
        scene.attacker.inside.ask(f"{base}/task-protection/v1/state"),
        scene.attacker.inside.ask(f"{base}/task-protection/v1/state", "PUT", body=b'{"ProtectionEnabled":true}'),
        scene.attacker.inside.ask(
            f"{base}/fault/v1/network-blackhole-port/start",
            "POST",
            body=b'{"Port":80,"Protocol":"tcp","TrafficType":"egress"}',
        ),
    ]
    return any(one.status != 404 for one in answers)


@attempt("disturb the own network without leave, or the host's from behind the bridge")
def fault(scene: Scene) -> bool:
    body = b'{"Port":7,"Protocol":"tcp","TrafficType":"egress"}'
    answers = [
        one.inside.ask(f"/api/{one.name}/fault/v1/network-blackhole-port/start", "POST", body=body)
        for one in (scene.attacker, scene.hosted)
    ]
    return any(one.status != 400 for one in answers)


@attempt("the agent's and the control plane's files and sockets")
def files(scene: Scene) -> bool:
    data = scene.root / "node/control"
    assert (data / "keys.json").exists() and (data / "agent.sock").exists()
    names = " ".join(str(data / one) for one in ("keys.json", "agent.db", "control.db", "agent.sock", "audit.log"))
    listing = f"cat {names} {scene.root}/roles.toml /var/run/docker.sock /run/docker.sock 2>/dev/null | wc -c"
    return any(scene.host.execute(one, "sh", "-c", listing).strip() != "0" for one in (scene.attacker, scene.hosted))


@attempt("the agent's socket and the engine's, as abstract ones and over TCP")
def sockets(scene: Scene) -> bool:
    names = [
        str(scene.root / "node/control/agent.sock"),
        str(scene.root / "engine/docker.sock"),
        "agent.sock",
        "sexton",
    ]

    def abstract(name: str) -> bool:
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex("\0" + name) == 0

    namespace = f"/proc/{scene.hosted.pid}/ns/net"
    ports = [(scene.host.gateway, port) for port in (2375, 2376, INTROSPECTION)]
    return any(in_network(namespace, lambda name=name: abstract(name)) for name in names) or any(
        scene.attacker.inside.reaches(one) for one in ports
    )


@attempt("the control plane from behind the bridge")
def control_plane(scene: Scene) -> bool:
    port = scene.host.node.port
    places = (scene.host.gateway, "169.254.170.2", "127.0.0.1", scene.host.network.host_address)
    return any(scene.attacker.inside.reaches((host, port)) for host in places)


@attempt("the control plane without a signature, or with one of nobody")
def unsigned(scene: Scene) -> bool:
    paths = ("/sexton/keys", "/sexton/export", "/sexton/events", "/acs/ws", "/tcs/ws")
    nobody = {"AccessKeyId": "AKIANOBODY", "SecretAccessKey": "x", "Token": ""}
    return any(
        scene.own_path("GET", path, keys) < 400 or scene.own_path("POST", path, keys) < 400
        for path in paths
        for keys in (None, nobody)
    )


@attempt("the control plane's own paths with the own keys")
def own_paths(scene: Scene) -> bool:
    keys = scene.keys()
    key = scene.host.node.credentials()["AWS_ACCESS_KEY_ID"]
    paths = [("GET", "/sexton/keys"), ("POST", "/sexton/keys"), ("GET", "/sexton/export"), ("GET", "/sexton/events")]
    paths += [("POST", f"/sexton/keys/{key}/rotate"), ("DELETE", f"/sexton/keys/{key}")]
    return any(scene.own_path(method, path, keys) < 400 for method, path in paths)


@attempt("pose as the agent of this host, to be sent everybody's keys")
def pose(scene: Scene) -> bool:
    (instance,) = scene.client("ecs").list_container_instances()["containerInstanceArns"]
    query = f"clusterArn=default&containerInstanceArn={instance.replace(':', '%3A').replace('/', '%2F')}"
    tried = scene.own_path("GET", f"/acs/ws?{query}&protocolVersion=2&sendCredentials=true&seqNum=1", scene.keys())
    assert tried == 403
    return scene.does(scene.client("ecs").discover_poll_endpoint, containerInstance=instance)


@attempt("register as a host, and report for the victim")
def report(scene: Scene) -> bool:
    ecs = scene.client("ecs")
    return any(
        [
            scene.does(ecs.register_container_instance, cluster="default"),
            scene.does(ecs.submit_task_state_change, task=scene.victim.task, status="STOPPED"),
            scene.does(ecs.stop_task, task=scene.victim.task),
            scene.does(
                ecs.update_task_protection, cluster="default", tasks=[scene.victim.task], protectionEnabled=True
            ),
        ]
    )


@attempt("run a task in the victim's role")
def pass_role(scene: Scene) -> bool:
    ecs = scene.client("ecs")
    return any(
        [
            scene.does(ecs.run_task, taskDefinition="bridge-big"),
            scene.does(ecs.run_task, taskDefinition="bridge-small", overrides={"taskRoleArn": "big"}),
            scene.does(ecs.run_task, taskDefinition="bridge-small", overrides={"executionRoleArn": ROLE + "big"}),
            scene.does(ecs.run_task, taskDefinition="bridge-small"),  # its execution role may do more than it
        ]
    )


@attempt("define a task or a service in the victim's role")
def define(scene: Scene) -> bool:
    ecs = scene.client("ecs")
    container = {"name": "app", "image": scene.host.image, "memory": 16}
    return any(
        [
            scene.does(
                ecs.register_task_definition, family="evil", taskRoleArn="big", containerDefinitions=[container]
            ),
            scene.does(
                ecs.register_task_definition, family="evil", executionRoleArn="big", containerDefinitions=[container]
            ),
            scene.does(ecs.create_service, serviceName="evil", taskDefinition="bridge-big", desiredCount=1),
        ]
    )


@attempt("write another role, a longer life or another number into the own token")
def token(scene: Scene) -> bool:
    keys = scene.keys()
    layout, body, mark = keys["Token"].split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    tries = [
        [said[0].replace("small", "big"), *said[1:]],
        [*said[:3], said[3] + 86400, *said[4:]],
        [*said[:4], "other"],
    ]
    for one in tries:
        forged = base64.urlsafe_b64encode(json.dumps(one, separators=(",", ":")).encode()).decode().rstrip("=")
        for made in (f"{layout}.{forged}.{mark}", f"{layout}.{forged}.", f"{layout}.{forged}", forged):
            if scene.does(scene.client("sts", keys, Token=made).get_caller_identity):
                return True
    return False


@attempt("keys with another's id, or an administrator's id with the own secret")
def mixed(scene: Scene) -> bool:
    keys = scene.keys()
    admin = scene.host.node.credentials()["AWS_ACCESS_KEY_ID"]
    return any(
        [
            scene.does(scene.client("sts", keys, AccessKeyId=admin).get_caller_identity),
            scene.does(scene.client("sts", keys, AccessKeyId=admin, Token="").get_caller_identity),
            scene.does(scene.client("sts", keys, AccessKeyId="ASIA" + "A" * 16).get_caller_identity),
            scene.does(scene.client("sts", keys, Token="").get_caller_identity),
        ]
    )


@attempt("what the API, introspection and metadata say of the victim")
def shown(scene: Scene) -> bool:
    ecs = scene.client("ecs")
    found = json.dumps(
        [
            ecs.describe_tasks(tasks=[scene.victim.task], include=["TAGS"]),
            ecs.describe_task_definition(taskDefinition="bridge-big"),
            ecs.describe_container_instances(
                containerInstances=ecs.list_container_instances()["containerInstanceArns"]
            ),
        ],
        default=str,
    )
    for path in ("/v1/tasks", "/v1/metadata", "/metrics"):
        found += scene.hosted.inside.ask(path, address=("127.0.0.1", INTROSPECTION)).body.decode()
    found += scene.victim.inside.ask(f"/v4/{scene.victim.name}/task").body.decode()
    return scene.secret in found or "SecretAccessKey" in found


@attempt("what logs, records and the engine's labels say of the victim")
def written(scene: Scene) -> bool:
    keys = scene.victim.inside.ask(scene.victim.variables[PLACE]).json
    data = scene.root / "node"
    secrets = [keys["SecretAccessKey"].encode(), keys["Token"].encode()]
    files = [path for path in data.rglob("*") if path.is_file()]
    text = b"".join(path.read_bytes() for path in files)
    logs = b"".join(path.read_bytes() for path in files if ".log" in path.name)
    shown = json.loads(scene.host.engine.call("GET", f"/containers/{scene.victim.id}/json"))
    labels = json.dumps(shown["Config"]["Labels"]).encode()
    assert b"GetCredentials 2 default" in logs  # the audit log is among them
    return any(one in text for one in secrets) or scene.secret.encode() in logs + labels


@pytest.mark.parametrize("name", TRIES)
def test_no_try_succeeds(scene: Scene, name: str) -> None:
    assert not TRIES[name](scene)


def test_there_are_as_many_tries_as_promised_and_the_victim_never_noticed(scene: Scene) -> None:
    assert len(TRIES) >= 20
    assert scene.victim.inside.ask(scene.victim.variables[PLACE]).json["RoleArn"] == ROLE + "big"
    with pytest.raises(EngineFailed):
        scene.host.execute(scene.attacker, "ls", str(scene.root))
