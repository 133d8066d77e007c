"""A task does what its role may: boto3 in a container, told of nothing but where AWS is."""

from __future__ import annotations

import json

import pytest

from node import until
from rolelab import ACCOUNT, ROLE, RoleLab, statement, write_roles

pytestmark = pytest.mark.timeout(120)

CLUSTERS = f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/"
ROLES = {
    "app": [
        statement(["ecs:ListClusters", "ecs:DescribeClusters"]),
        statement("ecs:CreateCluster", CLUSTERS + "app-*"),
        statement("ecs:*", CLUSTERS + "app-locked", "Deny", Sid="Locked"),
        statement(["ecs:RunTask"]),
        statement(["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]),
    ],
    "other": [statement("ecs:ListTaskDefinitions")],
    "maker": [statement("sts:*")],
}

TELL = """
import boto3, botocore.exceptions, json
ecs, sts = boto3.client("ecs"), boto3.client("sts")
def tell(call, **fields):
    try:
        answer = call(**fields)
        answer.pop("ResponseMetadata")
        return ["yes", answer]
    except botocore.exceptions.ClientError as error:
        return [error.response["Error"]["Code"], error.response["Error"]["Message"]]
"""


@pytest.fixture(scope="module")
def lab(engine_session, tmp_path_factory):
    with RoleLab(tmp_path_factory.mktemp("roles"), engine_session, ROLES) as made:
        made.define("app", taskRoleArn=ROLE + "app", executionRoleArn="maker")
        made.define("other", taskRoleArn="other")
        made.define("plain")
        yield made


@pytest.fixture(scope="module")
def task(lab):
    return lab.run("app")


def said(lab, task, *calls):
    """What boto3 in the task hears to each of these calls."""
    program = TELL + "print(json.dumps([" + ",".join(f"tell({one})" for one in calls) + "], default=str))"
    return json.loads(lab.python(task, program))


def test_a_task_is_its_role_with_no_configuration_and_may_what_the_role_may(lab, task):
    who, yes, made, foreign, locked, rest = said(
        lab,
        task,
        "sts.get_caller_identity",
        "ecs.list_clusters",
        'ecs.create_cluster, clusterName="app-one"',
        'ecs.create_cluster, clusterName="web"',
        'ecs.create_cluster, clusterName="app-locked"',
        "ecs.list_task_definitions",
    )

    me = f"arn:aws:sts::{ACCOUNT}:assumed-role/app/{task.rsplit('/', 1)[1]}"
    assert who == ["yes", {"Arn": me, "Account": ACCOUNT, "UserId": who[1]["UserId"]}]
    assert yes[0] == "yes" and made[1]["cluster"]["clusterName"] == "app-one"
    assert foreign == [
        "AccessDeniedException",
        f"User: {me} is not authorized to perform: ecs:CreateCluster on resource: {CLUSTERS}web because no "
        "identity-based policy allows the ecs:CreateCluster action",
    ]
    assert locked == [
        "AccessDeniedException",
        f"User: {me} is not authorized to perform: ecs:CreateCluster on resource: {CLUSTERS}app-locked with an "
        "explicit deny in an identity-based policy: statement 3 (Locked)",
    ]
    assert rest[0] == "AccessDeniedException"
    environment = lab.environment(task)
    assert environment["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"].startswith("/v2/credentials/")
    assert not any("SECRET" in name or "TOKEN" in name for name in environment)


def test_another_role_may_other_things_and_no_role_nothing(lab):
    other, plain = lab.run("other"), lab.run("plain")

    assert [one[0] for one in said(lab, other, "ecs.list_clusters", "ecs.list_task_definitions")] == [
        "AccessDeniedException",
        "yes",
    ]
    with pytest.raises(Exception, match="NoCredentialsError"):
        said(lab, plain, "ecs.list_clusters")
    lab.ecs.stop_task(task=other)
    lab.ecs.stop_task(task=plain)


def test_a_task_can_pass_on_no_role_that_it_may_not_pass(lab, task):
    (own,) = said(lab, task, 'ecs.run_task, taskDefinition="app"')
    (over,) = said(lab, task, f'ecs.run_task, taskDefinition="plain", overrides={{"taskRoleArn": "{ROLE}other"}}')

    assert own[0] == over[0] == "AccessDeniedException"
    assert "iam:PassRole" in own[1] and "iam:PassRole" in over[1]


def test_a_policy_that_changes_counts_with_the_next_call(lab, task):
    more = ROLES["app"] + [statement("ecs:ListTaskDefinitions")]
    write_roles(lab.roles_file, ROLES | {"app": more})
    try:
        until(lambda: said(lab, task, "ecs.list_task_definitions")[0][0] == "yes", "the policy is taken up")
    finally:
        write_roles(lab.roles_file, ROLES)


def test_a_role_that_is_unknown_is_an_error_of_run_task(lab):
    with pytest.raises(lab.ecs.exceptions.ClientException, match=r"unable to assume the role '.*nobody'.*add it there"):
        lab.ecs.run_task(taskDefinition="plain", overrides={"taskRoleArn": "nobody"})


def test_keys_outlive_the_agent_and_the_control_plane(lab, task):
    """After a restart the same place gives keys again as soon as they were delivered, and never another's."""
    before = json.loads(lab.fetch(task, lab.environment(task)["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"])[4:])
    for role in (lab.node.agent, lab.node.control):
        role.kill()
        lab.node.start()
        place = lab.environment(task)["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]
        seen = []
        until(lambda place=place, seen=seen: seen.append(lab.fetch(task, place)) or seen[-1][:3] == "200", "keys come")
        assert {one[:3] for one in seen} <= {"200", "503", "fai"}
        after = json.loads(seen[-1][4:])
        assert after["RoleArn"] == before["RoleArn"] == ROLE + "app"
        assert said(lab, task, "ecs.list_clusters")[0][0] == "yes"


def test_protection_is_asked_for_by_the_task_itself(lab):
    """A service's task protects itself by its agent, with the rights of its role."""
    lab.ecs.create_service(serviceName="kept", taskDefinition="app", desiredCount=1)
    arn = until(lambda: lab.ecs.list_tasks(serviceName="kept")["taskArns"], "the service has a task")[0]
    lab.until(arn, "RUNNING")
    program = """
import http.client, json, os
from urllib.parse import urlsplit
place = urlsplit(os.environ["ECS_AGENT_URI"])
def ask(method, body=None):
    line = http.client.HTTPConnection(place.netloc)
    line.request(method, place.path + "/task-protection/v1/state", body)
    answer = line.getresponse()
    return [answer.status, json.loads(answer.read())]
print(json.dumps([ask("GET"), ask("PUT", '{"ProtectionEnabled":true,"ExpiresInMinutes":60}'), ask("GET")]))
"""
    first, put, then = json.loads(lab.python(arn, program))
    assert first == [200, {"protection": {"ProtectionEnabled": False, "TaskArn": arn}}]
    assert put[0] == 200 and put[1]["protection"]["ProtectionEnabled"] is True
    assert then == put
    (known,) = lab.ecs.get_task_protection(cluster="default", tasks=[arn])["protectedTasks"]
    assert known["protectionEnabled"]
    lab.ecs.delete_service(service="kept", force=True)
