"""Names: what is made can be read again, and what cannot be a name is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import names
from sexton.core.names import Member, Place, Revision

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", fullmatch=True)
ID = st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True)
PLACES = st.builds(
    Place,
    region=st.sampled_from(["eu-west-1", "cn-north-1", "us-gov-west-1"]),
    account=st.from_regex(r"[0-9]{12}", fullmatch=True),
)


@given(PLACES, WORD, ID, st.integers(1, 10**9))
def test_an_arn_that_was_made_is_read_again(place, cluster, last, revision):
    assert names.parse_cluster(names.cluster_arn(place, cluster)) == cluster
    assert names.parse_task(names.task_arn(place, cluster, last)) == Member(cluster, last)
    assert names.parse_instance(names.instance_arn(place, cluster, last)) == Member(cluster, last)
    assert names.parse_definition(names.definition_arn(place, cluster, revision)) == Revision(cluster, revision)
    assert names.last_part(names.task_arn(place, cluster, last)) == last


@given(WORD, ID)
def test_short_names_are_taken(cluster, last):
    assert names.parse_cluster(cluster) == cluster
    assert names.parse_task(last) == Member("", last)
    assert names.parse_definition(cluster) == Revision(cluster, 0)
    assert names.parse_definition(f"{cluster}:3") == Revision(cluster, 3)


def test_partitions():
    assert names.cluster_arn(Place("cn-north-1", "1" * 12), "c").startswith("arn:aws-cn:ecs:cn-north-1:")
    assert names.cluster_arn(Place("us-gov-west-1", "1" * 12), "c").startswith("arn:aws-us-gov:")
    assert names.container_arn(Place("eu-west-1", "1" * 12), "c", "t", "x") == (
        "arn:aws:ecs:eu-west-1:111111111111:container/c/t/x"
    )


def test_nothing_said_is_the_default_cluster():
    assert names.parse_cluster(None) == names.parse_cluster("") == "default"


def test_the_old_arn_of_a_task_names_no_cluster():
    assert names.parse_task("arn:aws:ecs:eu-west-1:1:task/abc") == Member("", "abc")


@pytest.mark.parametrize(
    "text",
    [
        "-c",
        "a b",
        "a/b",
        "a\n",
        "c" * 256,
        "arn:aws:ecs:r:1:task/c/t",
        "arn:aws:ec2:r:1:cluster/c",
        "arn:aws:ecs:r:1",
        "arn:",
        "../../etc",
        "ключ",
        "a\x00",
    ],
)
def test_what_cannot_be_a_cluster(text):
    assert names.parse_cluster(text) is None


@pytest.mark.parametrize("text", ["", "/", "a/", "a b", "a\n", "../x", "-/a", "arn:aws:ecs:r:1:cluster/c", "a" * 256])
def test_what_cannot_be_a_task(text):
    assert names.parse_task(text) is None
    assert names.parse_instance(text) is None


@pytest.mark.parametrize("text", ["", ":1", "f:", "f:0", "f:-1", "f:x", "f:1:2", "f:" + "9" * 11, "a b", "f:1\n"])
def test_what_cannot_be_a_definition(text):
    assert names.parse_definition(text) is None


@given(st.text(max_size=60))
def test_no_text_is_an_exception(text):
    for parse in (names.parse_cluster, names.parse_task, names.parse_instance, names.parse_definition):
        parse(text)
        parse("arn:aws:ecs:eu-west-1:1:" + text)
