"""What comes from elsewhere ends up in the right place, with the right one winning, and nothing is said of it."""

from __future__ import annotations

import pytest

from sexton.core import envfile
from sexton.core.enginebody import Sourced, create_body
from sexton.core.injection import (
    BadReference,
    SecretRef,
    Values,
    bucket_and_key,
    environment,
    parameter_names,
    pick,
    read_reference,
)
from sexton.wire import acs_task

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"A=1\nB=2\n", {"A": "1", "B": "2"}),
        (b"# A=1\n#B=2\nnothing\n\n=x\n", {}),
        (b'A = x \nB="q"\nC=a=b\nD=\n', {"A ": " x ", "B": '"q"', "C": "a=b", "D": ""}),
        (b"A=1\r\nA=2", {"A": "2"}),
        (b"A=\xff", {"A": "\N{REPLACEMENT CHARACTER}"}),
        (b" # A=1", {" # A": "1"}),
    ],
)
def test_a_file_is_read_without_cleverness(content, found):
    assert envfile.parse(content) == found


def test_an_earlier_file_wins():
    assert envfile.merge([{"A": "1"}, {"A": "2", "B": "2"}]) == {"A": "1", "B": "2"}


def test_environment_wins_over_files_and_secrets_over_both():
    values = Values({"A": "file", "B": "file", "C": "file"}, {"C": "secret"})

    assert environment({"B": "own", "C": "own"}, values) == {"A": "file", "B": "own", "C": "secret"}


@pytest.mark.parametrize(
    ("own", "files", "image", "added"),
    [
        ({}, {}, (), True),
        ({"AWS_REGION": "x"}, {}, (), False),
        ({}, {"AWS_DEFAULT_REGION": "x"}, (), False),
        ({}, {}, ("AWS_REGION",), False),
    ],
)
def test_the_region_is_added_where_nobody_says_it(own, files, image, added):
    whole = environment(own, Values(files), region="eu-west-1", image_variables=image)

    assert (whole.get("AWS_REGION") == whole.get("AWS_DEFAULT_REGION") == "eu-west-1") is added
    assert environment({}, Values()) == {}


def test_a_reference_may_name_key_stage_and_version():
    assert read_reference(ARN, "r") == SecretRef("r", ARN)
    assert read_reference(f"{ARN}:user:AWSPREVIOUS:v1", "r") == SecretRef("r", ARN, "user", "AWSPREVIOUS", "v1")
    assert read_reference(f"{ARN}:user::", "r") == SecretRef("r", ARN, "user")
    assert read_reference(f"{ARN}::AWSPREVIOUS:", "r") == SecretRef("r", ARN, "", "AWSPREVIOUS")
    with pytest.raises(BadReference):
        read_reference("arn:aws:secretsmanager:x", "r")
    with pytest.raises(BadReference):
        read_reference(f"{ARN}:a:b:c:d", "r")


@pytest.mark.parametrize(("held", "value"), [('{"k":"v"}', "v"), ('{"k":7}', "7"), ('{"k":{"a":[1]}}', '{"a":[1]}')])
def test_a_key_is_picked_from_the_json_that_a_secret_holds(held, value):
    assert pick(held, SecretRef("r", ARN, "k")) == value


@pytest.mark.parametrize("held", ["hunter2", '["hunter2"]', '{"other":"hunter2"}', '{"k": hunter2'])
def test_a_key_that_is_not_there_is_an_error_without_the_secret(held):
    with pytest.raises(BadReference) as caught:
        pick(held, SecretRef("r", ARN, "k"))

    assert "hunter2" not in str(caught.value)


def test_a_parameter_is_recognised_under_its_names():
    assert parameter_names("/a/b") == ("/a/b",)
    arn = "arn:aws:ssm:eu-west-1:1:parameter/plain"
    assert set(parameter_names(arn)) == {arn, "/plain", "plain"}


def test_an_object_is_named_by_its_arn():
    assert bucket_and_key("arn:aws:s3:::bucket/dir/a:b.env") == ("bucket", "dir/a:b.env")
    for wrong in ("", "s3://bucket/key", "arn:aws:s3:::bucket", "arn:aws:s3:::/key", "arn:aws:ecs:::bucket/key"):
        with pytest.raises(BadReference):
            bucket_and_key(wrong)


def test_log_secrets_become_options_of_the_driver_and_nothing_else():
    host = '{"LogConfig":{"Type":"splunk","Config":{"splunk-url":"u"}}}'
    one = acs_task.Container(name="a", image="i", docker_config=acs_task.DockerConfig(host_config=host))
    sourced = Sourced(Values({}, {"S": "1"}, {"splunk-token": "t"}))
    body = create_body(
        acs_task.Task(arn="x", containers=(one,)), one, labels={}, bindings=(), cgroup_parent="", sourced=sourced
    )

    assert body["HostConfig"]["LogConfig"]["Config"] == {"splunk-url": "u", "splunk-token": "t"}
    assert body["Env"] == ["S=1"]


def test_values_do_not_show_themselves():
    shown = repr(Values({"F": "hunter2"}, {"S": "hunter2"}, {"L": "hunter2"}))

    assert "hunter2" not in shown and "'S'" in shown
