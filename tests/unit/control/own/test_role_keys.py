"""Keys of a local role: let in as AWS lets temporary keys in, and allowed what the role's policies say, everywhere."""

from __future__ import annotations

import asyncio
import logging
import time
import xml.etree.ElementTree as ET
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest

from plane import ACCOUNT, REGION, open_plane
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.control import authority, permissions
from sexton.control.context import Call
from sexton.control.query.door import SERVICES
from sexton.core import sessionkey
from sexton.wire import ecs
from sexton.wire.errors import AccessDeniedException
from unit.control.own.conftest import Caller
from unit.control.own.rolekeys import ARN, keys_of, statement, write_roles

BLUE = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/blue"
NOTHING = statement(action="s3:*")


@pytest.fixture
async def plane(tmp_path):
    path = write_roles(
        tmp_path / "roles.toml",
        nothing=[NOTHING],
        all=[statement()],
        reader=[statement(action=["ecs:Describe*", "ecs:List*"])],
        blue=[statement(action="ecs:*", resource="*", Condition={"ArnEquals": {"ecs:cluster": BLUE}})],
        not_blue=[statement(), statement("Deny", "ecs:DeleteCluster", BLUE, Sid="KeepBlue")],
        tagger=[statement(action="ecs:CreateCluster", Condition={"StringEquals": {"aws:RequestTag/team": "web"}})],
        tagged=[statement(action="ecs:DeleteCluster", Condition={"StringEquals": {"aws:ResourceTag/team": "web"}})],
        definer=[statement(action="ecs:RegisterTaskDefinition")],
        passer=[
            statement(action="ecs:RegisterTaskDefinition"),
            statement(action="iam:PassRole", resource=ARN + "app-*"),
        ],
        away=[statement(), statement("Deny", Condition={"NotIpAddress": {"aws:SourceIp": "198.51.100.0/24"}})],
    )
    async with open_plane(tmp_path, roles=path) as made:
        yield made


async def role(admin, name, session="task-1"):
    return admin.as_(await keys_of(admin.plane.control, name, session))


def said(action, resource, name, session="task-1"):
    return (
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/{name}/{session} is not authorized to perform: {action} on "
        f"resource: {resource} because no identity-based policy allows the {action} action"
    )


async def test_a_role_without_a_policy_for_it_is_denied_every_operation(admin):
    nobody = await role(admin, "nothing")
    for operation in ecs.OPERATIONS:
        status, answer = await nobody.ecs(operation)

        assert (status, answer.get("__type")) == (400, "AccessDeniedException"), (operation, answer)
        assert f"is not authorized to perform: ecs:{operation} on resource: " in answer["message"]
        assert answer["message"].endswith(f"because no identity-based policy allows the ecs:{operation} action")


async def test_a_role_without_a_policy_for_it_is_denied_every_action_of_the_neighbours(admin):
    nobody = await role(admin, "nothing")
    asked = 0
    for service in SERVICES.values():
        for action in service.operations:
            if (service.name, action) == ("sts", "GetCallerIdentity"):
                continue  # who one is, everybody may ask: IAM says so as well
            status, root = await query(nobody, service.name, Action=action)
            asked += 1

            assert status == 403, (service.name, action, ET.tostring(root))
            assert f"{service.name}:{action}" in "".join(root.itertext())
    assert asked == sum(len(one.operations) for one in SERVICES.values()) - 1


async def query(caller: Caller, service, **fields):
    body = urlencode(fields).encode()
    headers = {"Host": caller.plane.host, "Content-Type": "application/x-www-form-urlencoded"}
    headers |= sign("POST", "/", "", headers, body, caller.key, region=REGION, service=service, now=time.time())
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://{caller.plane.host}/", data=body, headers=headers) as answer,
    ):
        return answer.status, ET.fromstring(await answer.read())


async def test_a_role_without_a_policy_for_it_is_denied_our_own_paths_and_the_agents_websockets(admin):
    nobody = await role(admin, "nothing")
    paths = [
        ("GET", "/sexton/keys", "sexton:ListKeys"),
        ("POST", "/sexton/keys", "sexton:CreateKey"),
        ("POST", "/sexton/keys/AKSX/rotate", "sexton:RotateKey"),
        ("POST", "/sexton/keys/AKSX/disable", "sexton:DisableKey"),
        ("POST", "/sexton/keys/AKSX/enable", "sexton:EnableKey"),
        ("DELETE", "/sexton/keys/AKSX", "sexton:DeleteKey"),
        ("GET", "/sexton/events", "sexton:ReadEvents"),
        ("GET", "/sexton/export", "sexton:Export"),
    ]
    for method, path, action in paths:
        status, answer = await nobody.own(method, path)

        assert (status, answer["__type"]) == (400, "AccessDeniedException"), (path, answer)
        assert answer["message"] == said(action, "*", "nothing")
    _, made = await admin.ecs("RegisterContainerInstance", cluster="default")
    instance = made["containerInstance"]["containerInstanceArn"]
    for path, fields, action in (
        ("/acs/ws", ("clusterArn", "containerInstanceArn"), "ecs:Poll"),
        ("/tcs/ws", ("cluster", "containerInstance"), "ecs:StartTelemetrySession"),
    ):
        asked = urlencode(dict(zip(fields, ("default", instance), strict=True)))
        async with nobody.open("GET", f"{path}?{asked}") as answer:
            assert answer.status == 403
            assert (await answer.json())["message"]["message"] == said(action, instance, "nothing")


async def test_every_path_of_our_own_is_in_that_walk(admin):
    """One that is added must be added there; a word that is none is told apart from one that is closed."""
    nobody = await role(admin, "nothing")
    words = {"keys", "events", "export"}
    handlers = admin.plane.control.own_words

    assert (await nobody.own("GET", "/sexton/none"))[0] == 404
    assert words <= set(handlers)
    for word in handlers:
        for method in ("GET", "POST", "PUT", "DELETE"):
            _, answer = await nobody.own(method, f"/sexton/{word}")
            assert answer["__type"] in ("AccessDeniedException", "UnknownOperationException"), (method, word, answer)


async def test_a_role_may_what_its_policy_allows_and_is_told_of_the_rest(admin):
    reader = await role(admin, "reader", "0123")

    assert (await reader.ecs("ListClusters"))[0] == 200
    status, answer = await reader.ecs("CreateCluster", clusterName="blue")

    assert status == 400
    assert answer["message"] == said("ecs:CreateCluster", BLUE, "reader", "0123")


async def test_an_explicit_deny_is_told_from_silence(admin):
    await admin.ecs("CreateCluster", clusterName="blue")
    one = await role(admin, "not-blue")

    status, answer = await one.ecs("DeleteCluster", cluster="blue")

    assert status == 400
    assert answer["message"] == (
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/not-blue/task-1 is not authorized to perform: ecs:DeleteCluster "
        f"on resource: {BLUE} with an explicit deny in an identity-based policy: statement 2 (KeepBlue)"
    )
    assert (await one.ecs("DeleteCluster", cluster="default"))[0] == 200


async def test_conditions_are_asked_of_the_request_and_of_the_thing(admin):
    """ecs:cluster, aws:RequestTag, aws:ResourceTag, aws:SourceIp."""
    blue, tagger, tagged = [await role(admin, name) for name in ("blue", "tagger", "tagged")]

    assert (await blue.ecs("ListTasks", cluster="default"))[1]["__type"] == "AccessDeniedException"
    assert (await blue.ecs("ListTasks", cluster="blue"))[1]["__type"] == "ClusterNotFoundException"
    wrong = await tagger.ecs("CreateCluster", clusterName="c", tags=[{"key": "team", "value": "db"}])
    right = await tagger.ecs("CreateCluster", clusterName="c", tags=[{"key": "team", "value": "web"}])
    assert (wrong[1]["__type"], right[0]) == ("AccessDeniedException", 200)
    await admin.ecs("CreateCluster", clusterName="plain")
    assert (await tagged.ecs("DeleteCluster", cluster="plain"))[1]["__type"] == "AccessDeniedException"
    assert (await tagged.ecs("DeleteCluster", cluster="c"))[0] == 200
    away = (await (await role(admin, "away")).ecs("ListClusters"))[1]
    assert away["message"].endswith("with an explicit deny in an identity-based policy: statement 2")


async def test_a_role_is_handed_on_only_by_who_may_pass_it(admin):
    wish = {"family": "web", "containerDefinitions": [{"name": "m", "image": "i", "memory": 6}]}
    definer, passer = await role(admin, "definer"), await role(admin, "passer")

    plain = await definer.ecs("RegisterTaskDefinition", **wish)
    refused = await definer.ecs("RegisterTaskDefinition", **wish, taskRoleArn="app-web")
    passed = await passer.ecs("RegisterTaskDefinition", **wish, taskRoleArn=ARN + "app-web")
    other = await passer.ecs("RegisterTaskDefinition", **wish, executionRoleArn=ARN + "boss")

    assert (plain[0], passed[0]) == (200, 200)
    assert refused[1]["message"] == said("iam:PassRole", ARN + "app-web", "definer")
    assert other[1]["message"] == said("iam:PassRole", ARN + "boss", "passer")
    assert passed[1]["taskDefinition"]["registeredBy"].endswith(":assumed-role/passer/task-1")


async def test_who_runs_a_task_passes_the_roles_of_its_definition(admin):
    wish = {"family": "web", "containerDefinitions": [{"name": "m", "image": "i", "memory": 6}]}
    await admin.ecs("RegisterTaskDefinition", **wish, taskRoleArn=ARN + "boss")
    context = admin.plane.control.role_keys
    assert context is not None
    write_roles(context.book.path, runner=[statement(action="ecs:*")])
    context.book.look()
    runner = await role(admin, "runner")

    for operation, fields in (
        ("RunTask", {"taskDefinition": "web"}),
        ("StartTask", {"taskDefinition": "web", "containerInstances": ["i"]}),
        ("CreateService", {"taskDefinition": "web:1", "serviceName": "s", "desiredCount": 1}),
    ):
        assert (await runner.ecs(operation, **fields))[1]["message"] == said("iam:PassRole", ARN + "boss", "runner")
    over = {"overrides": {"taskRoleArn": ARN + "king"}}
    assert ARN + "king" in (await runner.ecs("RunTask", taskDefinition="web", **over))[1]["message"]


async def test_a_name_with_another_cluster_is_asked_about_in_both(world):
    """So that no spelling gets at a thing that its ARN does not name."""
    call = Call(REGION, "ASIAX", 0.0)
    request = ecs.DescribeTasksRequest(cluster="secret", tasks=(f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/open/0123",))

    (need,) = permissions.needs(world.context, call, "DescribeTasks", request)

    assert need.resources == (
        (f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/open/0123",),
        (f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/secret/0123",),
    )


def test_every_field_that_names_something_is_one_of_its_request():
    for operation, row in permissions._ROWS.items():
        fields = {one.name for one in msgspec.structs.fields(ecs.OPERATIONS[operation].request)}
        assert row.field.partition(".")[0] in fields, operation


async def test_who_one_is_everybody_may_ask(admin):
    one = await role(admin, "nothing", "0123")

    status, root = await query(one, "sts", Action="GetCallerIdentity")
    told = {element.tag.rpartition("}")[2]: element.text for element in root.iter()}

    assert status == 200
    assert told["Arn"] == f"arn:aws:sts::{ACCOUNT}:assumed-role/nothing/0123"
    assert told["Account"] == ACCOUNT
    assert told["UserId"].startswith("AROA")
    assert told["UserId"].endswith(":0123")


def ended(plane, name, seconds):
    """Keys that came to their end so long ago."""
    now = int(time.time())
    seal = plane.control.role_keys._seal
    made = sessionkey.make(seal, sessionkey.Session(ARN + name, "old", now - 7200, now - seconds))
    return Credentials(made.access_key_id, made.secret_access_key, made.token)


async def test_keys_that_ended_are_told_so_by_every_door(admin):
    late = admin.as_(ended(admin.plane, "all", 1))

    for status, answer in (await late.ecs("ListClusters"), await late.own("GET", "/sexton/keys")):
        assert status in (400, 403)
        assert answer["__type"] == "ExpiredTokenException"
        assert "expired" in answer["message"]
    status, root = await query(late, "sts", Action="GetCallerIdentity")
    assert status == 403
    assert "ExpiredToken" in [one.text for one in root.iter()]


@pytest.mark.parametrize("what", ["no token", "another token", "another secret", "another id", "changed token"])
async def test_keys_that_do_not_belong_together_open_nothing(admin, what):
    mine, other = await keys_of(admin.plane.control, "all"), await keys_of(admin.plane.control, "nothing")
    key, secret, token = mine.access_key_id, mine.secret_access_key, mine.session_token
    tried = {
        "no token": Credentials(key, secret),
        "another token": Credentials(key, secret, other.session_token),
        "another secret": Credentials(key, other.secret_access_key, token),
        "another id": Credentials(other.access_key_id, secret, token),
        "changed token": Credentials(key, secret, token[:-2] + "AA"),
    }[what]

    status, answer = await admin.as_(tried).ecs("ListClusters")

    assert status == 400
    wanted = "InvalidSignatureException" if what == "another secret" else "UnrecognizedClientException"
    assert answer["__type"] == wanted


async def test_an_access_key_takes_no_token(admin):
    mine = await keys_of(admin.plane.control, "all")
    mixed = Credentials(admin.key.access_key_id, admin.key.secret_access_key, mine.session_token)

    assert (await admin.as_(mixed).ecs("ListClusters"))[1]["__type"] == "UnrecognizedClientException"


async def test_a_call_that_lost_its_session_may_do_nothing(world):
    lost = Call(REGION, "ASIAEXAMPLE", 0.0)
    for check in (
        lambda: authority.check(world.context, lost, "ListClusters", ecs.ListClustersRequest()),
        lambda: authority.require(world.context, lost, "sexton:ListKeys"),
        lambda: authority.authorize(world.context, lost, "ec2:DescribeVpcs"),
        lambda: authority.check_instance(world.context, lost, "ecs:Poll", "i"),
        lambda: authority.role_of(world.context, lost),
    ):
        with pytest.raises(AccessDeniedException):
            check()


async def test_a_changed_policy_counts_at_once_and_a_role_that_is_gone_may_nothing(admin):
    one = await role(admin, "all")
    book = admin.plane.control.role_keys.book
    assert (await one.ecs("ListClusters"))[0] == 200

    write_roles(book.path, all=[NOTHING])
    book.reload()
    await until_denied(one)
    write_roles(book.path, other=[statement()])
    book.reload()
    await until_denied(one)


async def until_denied(one):
    async with asyncio.timeout(10):
        while (await one.ecs("ListClusters"))[0] == 200:
            await asyncio.sleep(0.05)


async def test_a_changed_file_is_taken_up_without_being_asked(admin):
    one = await role(admin, "all")

    write_roles(admin.plane.control.role_keys.book.path, all=[NOTHING])

    await until_denied(one)


async def test_keys_are_good_after_a_restart_and_nothing_of_them_is_logged_or_kept(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    path = write_roles(tmp_path / "roles.toml", all=[statement()])
    async with open_plane(tmp_path, roles=path) as plane:
        keys = await keys_of(plane.control, "all")
    async with open_plane(tmp_path, roles=path) as plane, aiohttp.ClientSession() as http:
        status, answer = await Caller(plane, http, keys).ecs("ListClusters")

    assert status == 200, answer
    assert keys.secret_access_key not in caplog.text
    assert keys.session_token not in caplog.text
    stored = (tmp_path / "control.db").read_bytes()
    assert keys.secret_access_key.encode() not in stored
