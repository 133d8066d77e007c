"""Tags: unique keys, a reserved prefix, at most fifty; setting and removing them again changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import tagging
from sexton.wire.ecs import Tag

keys = st.sampled_from(["a", "b", "c", "d", "A", "aws:ecs:clusterName"])
tags = st.lists(st.builds(Tag, key=keys, value=st.sampled_from(["", "x", "y", None])), unique_by=lambda one: one.key)


@given(tags, tags)
def test_what_was_set_is_there_and_the_rest_is_as_it_was(present, given_tags):
    after = {one.key: one.value for one in tagging.added(present, given_tags)}
    before = {one.key: one.value for one in present}
    set_now = {one.key: one.value or "" for one in given_tags}

    assert after == before | set_now
    again = tagging.added(tagging.added(present, given_tags), given_tags)
    assert again == tagging.added(present, given_tags)


@given(tags, st.lists(keys))
def test_what_was_removed_is_gone_except_the_services_own(present, removed):
    after = tagging.removed(present, removed)

    assert after == tuple(one for one in present if one.key not in removed or one.key == "aws:ecs:clusterName")


@pytest.mark.parametrize(
    "given_tags, said",
    [
        ([], ""),
        ([Tag(key="a"), Tag(key="A", value="x:aws:")], ""),
        ([Tag(value="x")], "null or empty"),
        ([Tag(key="a"), Tag(key="a", value="x")], "unique"),
        ([Tag(key="aws:a")], "aws:"),
        ([Tag(key="AwS:a")], "aws:"),
        ([Tag(key="a", value="AWS:x")], "aws:"),
    ],
)
def test_what_a_client_may_not_set_is_told_why(given_tags, said):
    text = tagging.problem(given_tags)

    assert said in text
    assert bool(text) is bool(said)


def test_the_services_own_do_not_count():
    fifty = [Tag(key=f"k{number}", value="") for number in range(50)]

    assert not tagging.too_many([*fifty, Tag(key=tagging.CLUSTER_TAG, value="c")])
    assert tagging.too_many([*fifty, Tag(key="one more", value="")])


def test_a_tasks_own_tags_win_over_inherited_ones_and_managed_ones_come_on_top():
    inherited = (Tag(key="team", value="a"), Tag(key="cost", value="1"))
    own = (Tag(key="cost", value="2"),)

    assert tagging.of_task(own, inherited, managed=False, cluster="c") == (inherited[0], own[0])
    assert tagging.of_task(None, (), managed=True, cluster="c", service="web") == (
        Tag(key="aws:ecs:clusterName", value="c"),
        Tag(key="aws:ecs:serviceName", value="web"),
    )
    assert tagging.of_task(None, (), managed=True, cluster="c") == (Tag(key="aws:ecs:clusterName", value="c"),)
