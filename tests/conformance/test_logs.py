"""CloudWatch Logs as unmodified boto3 and the AWS CLI drive it: groups, streams, put, get, search, follow, errors.

The control plane runs in a thread of this process; no container engine is needed for any of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from node import until
from plane import ACCOUNT, REGION, Running

AWS = Path(sys.executable).with_name("aws")

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def logs(running: Running) -> Any:
    return running.client("logs")


@pytest.fixture
def group(logs: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"/test/{request.node.name.partition('[')[0]}"
    logs.create_log_group(logGroupName=name)
    yield name
    logs.delete_log_group(logGroupName=name)


def now() -> int:
    return int(time.time() * 1000)


def write(logs: Any, group: str, stream: str, *texts: str, start: int | None = None) -> dict[str, Any]:
    first = now() if start is None else start
    events = [{"timestamp": first + number, "message": text} for number, text in enumerate(texts)]
    return logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


def refused(code: str, work: Callable[..., Any], **fields: Any) -> str:
    with pytest.raises(ClientError) as caught:
        work(**fields)
    assert caught.value.response["Error"]["Code"] == code, caught.value.response
    return caught.value.response["Error"]["Message"]


def test_groups_have_arns_retention_and_tags_and_go(logs: Any) -> None:
    logs.create_log_group(logGroupName="/groups/a", tags={"team": "a"})
    arn = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/groups/a"
    found = logs.describe_log_groups(logGroupNamePrefix="/groups/")["logGroups"]

    assert [(one["logGroupName"], one["arn"], one["logGroupArn"]) for one in found] == [("/groups/a", f"{arn}:*", arn)]
    assert abs(found[0]["creationTime"] - now()) < 60_000 and "retentionInDays" not in found[0]

    logs.put_retention_policy(logGroupName="/groups/a", retentionInDays=7)
    assert logs.describe_log_groups(logGroupNamePattern="oups/a")["logGroups"][0]["retentionInDays"] == 7
    logs.delete_retention_policy(logGroupName="/groups/a")
    assert "retentionInDays" not in logs.describe_log_groups(logGroupNamePrefix="/groups/a")["logGroups"][0]
    refused("InvalidParameterException", logs.put_retention_policy, logGroupName="/groups/a", retentionInDays=2)

    logs.tag_resource(resourceArn=arn, tags={"stage": "x"})
    logs.tag_log_group(logGroupName="/groups/a", tags={"more": "y"})
    logs.untag_resource(resourceArn=arn, tagKeys=["team"])
    assert logs.list_tags_for_resource(resourceArn=arn)["tags"] == {"stage": "x", "more": "y"}
    assert logs.list_tags_log_group(logGroupName="/groups/a")["tags"] == {"stage": "x", "more": "y"}

    logs.put_log_group_deletion_protection(logGroupIdentifier=arn, deletionProtectionEnabled=True)
    refused("OperationAbortedException", logs.delete_log_group, logGroupName="/groups/a")
    logs.put_log_group_deletion_protection(logGroupIdentifier=arn, deletionProtectionEnabled=False)
    logs.delete_log_group(logGroupName="/groups/a")
    assert logs.describe_log_groups(logGroupNamePrefix="/groups/")["logGroups"] == []
    refused("ResourceNotFoundException", logs.delete_log_group, logGroupName="/groups/a")


def test_what_is_there_or_is_not_is_said_in_the_services_words(logs: Any, group: str) -> None:
    text = refused("ResourceAlreadyExistsException", logs.create_log_group, logGroupName=group)
    assert text == "The specified log group already exists"
    text = refused("ResourceNotFoundException", logs.create_log_stream, logGroupName="/none", logStreamName="s")
    assert text == "The specified log group does not exist."
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    refused("ResourceAlreadyExistsException", logs.create_log_stream, logGroupName=group, logStreamName="s")
    events = [{"timestamp": now(), "message": "m"}]
    text = refused(
        "ResourceNotFoundException", logs.put_log_events, logGroupName=group, logStreamName="none", logEvents=events
    )
    assert text == "The specified log stream does not exist."
    refused("InvalidParameterException", logs.create_log_group, logGroupName="with space")
    refused("InvalidParameterException", logs.create_log_group, logGroupName="aws/lambda")
    refused("InvalidParameterException", logs.create_log_stream, logGroupName=group, logStreamName="a:b")
    text = refused(
        "UnsupportedOperationException", logs.start_query, startTime=0, endTime=1, queryString="x", logGroupName=group
    )
    assert "FilterLogEvents" in text


def test_batches_are_bounded_and_ordered(logs: Any, group: str) -> None:
    logs.create_log_stream(logGroupName=group, logStreamName="s")

    def put(*events: tuple[int, str]) -> dict[str, Any]:
        rows = [{"timestamp": time, "message": text} for time, text in events]
        return logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=rows)

    at, day = now(), 24 * 3600 * 1000
    text = refused("InvalidParameterException", lambda: put((at, "a"), (at - 1, "b")))
    assert "chronological order" in text
    text = refused("InvalidParameterException", lambda: put((at - day - 1, "a"), (at, "b")))
    assert "24 hours" in text
    refused("InvalidParameterException", lambda: put((at, "a" * (1_048_576 - 25))))
    answer = put((at, "a" * (1_048_576 - 26)))
    assert "rejectedLogEventsInfo" not in answer

    assert put((at - 15 * day, "old"), (at - 15 * day + 1, "old"))["rejectedLogEventsInfo"] == {
        "tooOldLogEventEndIndex": 2
    }
    assert put((at, "now"), (at + 3 * 3600 * 1000, "later"))["rejectedLogEventsInfo"] == {"tooNewLogEventStartIndex": 1}
    logs.put_retention_policy(logGroupName=group, retentionInDays=1)
    expired = put((at - day - 5000, "gone"), (at - day + 60_000, "kept"))
    assert expired["rejectedLogEventsInfo"] == {"expiredLogEventEndIndex": 1}
    texts = [one["message"][:5] for one in logs.get_log_events(logGroupName=group, logStreamName="s")["events"]]
    assert texts == ["kept", "aaaaa", "now"] or texts == ["now"]  # a page holds a megabyte


def test_a_stream_is_read_from_either_end(logs: Any, group: str) -> None:
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    start = now() - 10_000
    write(logs, group, "s", *(f"line {number}" for number in range(100)), start=start)
    read = {"logGroupName": group, "logStreamName": "s", "limit": 30}

    newest = logs.get_log_events(**read)
    assert [one["message"] for one in newest["events"]] == [f"line {number}" for number in range(70, 100)]
    before = logs.get_log_events(**read, nextToken=newest["nextBackwardToken"])
    assert [one["message"] for one in before["events"]] == [f"line {number}" for number in range(40, 70)]
    after = logs.get_log_events(**read, nextToken=newest["nextForwardToken"])
    assert after["events"] == [] and after["nextForwardToken"] == newest["nextForwardToken"]

    seen: list[str] = []
    page = logs.get_log_events(**read, startFromHead=True)
    token = ""
    while token != page["nextForwardToken"]:
        seen += [one["message"] for one in page["events"]]
        token = page["nextForwardToken"]
        page = logs.get_log_events(**read, startFromHead=True, nextToken=token)
    assert seen == [f"line {number}" for number in range(100)]
    write(logs, group, "s", "one more")
    assert logs.get_log_events(**read, startFromHead=True, nextToken=token)["events"][0]["message"] == "one more"

    between = logs.get_log_events(**read, startTime=start + 5, endTime=start + 8, startFromHead=True)
    assert [one["message"] for one in between["events"]] == ["line 5", "line 6", "line 7"]
    refused("InvalidParameterException", logs.get_log_events, **read, nextToken="nonsense")


def test_a_group_is_searched_in_order_of_time_over_streams_and_pages(logs: Any, group: str) -> None:
    start = now() - 10_000
    for number in range(3):
        logs.create_log_stream(logGroupName=group, logStreamName=f"s/{number}")
        for part in range(4):
            texts = [f"{part * 50 + one} of {number}" for one in range(50)]
            write(logs, group, f"s/{number}", *texts, start=start + part * 50)
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group, PaginationConfig={"PageSize": 37})
    found = [one for page in pages for one in page["events"]]

    assert len(found) == 600 and len({one["eventId"] for one in found}) == 600
    assert [one["timestamp"] for one in found] == sorted(one["timestamp"] for one in found)
    assert {one["logStreamName"] for one in found} == {"s/0", "s/1", "s/2"}

    def texts(**fields: Any) -> list[str]:
        return [one["message"] for one in logs.filter_log_events(logGroupName=group, **fields)["events"]]

    assert texts(filterPattern='"17 of"') == [f"{n} of {s}" for n in (17, 117) for s in (0, 1, 2)]
    assert texts(filterPattern='"17 of"', logStreamNames=["s/1"]) == ["17 of 1", "117 of 1"]
    assert texts(filterPattern="[number > 198, ...]", logStreamNamePrefix="s/2") == ["199 of 2"]
    assert texts(startFromHead=False, limit=2) == ["199 of 2", "199 of 1"]
    assert len(texts(startTime=start + 10, endTime=start + 12)) == 6
    refused("InvalidParameterException", logs.filter_log_events, logGroupName=group, filterPattern="{ $.a = }")
    refused("ResourceNotFoundException", logs.filter_log_events, logGroupName=group, logStreamNames=["none"])


def test_streams_are_listed_by_name_and_by_time(logs: Any, group: str) -> None:
    names = [f"{letter}{number}" for letter in "ab" for number in range(60)]
    for number, name in enumerate(names):
        logs.create_log_stream(logGroupName=group, logStreamName=name)
        if number % 2:
            write(logs, group, name, "x", start=now() - number * 1000)

    def listed(**fields: Any) -> list[str]:
        pages = logs.get_paginator("describe_log_streams").paginate(logGroupName=group, **fields)
        return [one["logStreamName"] for page in pages for one in page["logStreams"]]

    assert listed() == sorted(names)
    assert listed(descending=True) == sorted(names, reverse=True)
    assert listed(logStreamNamePrefix="a1") == sorted(name for name in names if name.startswith("a1"))
    assert listed(orderBy="LastEventTime", descending=True)[:3] == ["a1", "a3", "a5"]
    one = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="a1", limit=1)["logStreams"][0]
    assert one["arn"] == f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}:log-stream:a1"
    assert one["firstEventTimestamp"] == one["lastEventTimestamp"] <= one["lastIngestionTime"]
    logs.delete_log_stream(logGroupName=group, logStreamName="a1")
    assert "a1" not in listed()
    assert logs.filter_log_events(logGroupName=group, startTime=one["lastEventTimestamp"])["events"] == []


def test_groups_are_paged(logs: Any) -> None:
    names = [f"/paged/{number:03}" for number in range(120)]
    for name in names:
        logs.create_log_group(logGroupName=name)
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix="/paged/")
    found = [[one["logGroupName"] for one in page["logGroups"]] for page in pages]

    assert [name for page in found for name in page] == names
    assert [len(page) for page in found] == [50, 50, 20]
    for name in names:
        logs.delete_log_group(logGroupName=name)


def test_regions_are_apart(running: Running, group: str) -> None:
    assert running.client("logs", "eu-west-1").describe_log_groups(logGroupNamePrefix=group)["logGroups"] == []


def test_a_group_is_followed_by_polling_within_two_seconds(logs: Any, group: str) -> None:
    """What ``aws logs tail --follow`` does: search from the newest time on, and leave out what was seen."""
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    seen: dict[str, str] = {}
    newest = now() - 1000

    def poll(wanted: str) -> bool:
        nonlocal newest
        for one in logs.filter_log_events(logGroupName=group, startTime=newest, interleaved=True)["events"]:
            seen.setdefault(one["eventId"], one["message"])
            newest = max(newest, one["timestamp"])
        return wanted in seen.values()

    for number in range(10):
        write(logs, group, "s", f"line {number}")
        begun = time.monotonic()
        until(lambda number=number: poll(f"line {number}"), "the line is seen", 10)
        assert time.monotonic() - begun < 2.0
    assert list(seen.values()) == [f"line {number}" for number in range(10)]


def tail(running: Running) -> Any:
    """A client that calls itself what version 2 of the command line does in ``aws logs tail``."""
    return running.client("logs", extra="md/command#logs.tail")


class Follow:
    """Makes the calls of ``aws logs tail --follow``, which sleeps for five seconds where this only counts."""

    def __init__(self, client: Any, **asked: Any) -> None:
        self._client = client
        self._asked = {"interleaved": True} | asked
        self.sleeps = 0
        self.seen: dict[str, str] = {}

    def ask(self) -> None:
        answer = self._client.filter_log_events(**self._asked)
        for one in answer["events"]:
            again = "nextToken" not in self._asked and one["timestamp"] == self._asked.get("startTime")
            assert one["eventId"] not in self.seen or again, "told twice"
            self.seen[one["eventId"]] = one["message"]
        if "nextToken" in answer:
            self._asked["nextToken"] = answer["nextToken"]
            return
        self._asked.pop("nextToken", None)
        if self.seen:
            self._asked["startTime"] = max(int(one[:20]) for one in self.seen)
        self.sleeps += 1


def test_the_command_line_that_follows_sees_a_line_within_two_seconds_although_it_sleeps_five(
    running: Running, logs: Any, group: str
) -> None:
    for stream in ("a", "b"):
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
    follow = Follow(tail(running), logGroupName=group, startTime=now() - 600_000, filterPattern="-silent")
    while follow.sleeps < 1:
        follow.ask()
    told = [f"line {number}" for number in range(8)]
    with ThreadPoolExecutor(1) as pool:
        for number, text in enumerate(told):
            asked = pool.submit(follow.ask)
            # Each second one is older than what was told last, as lines of another task may be.
            write(logs, group, "ab"[number % 2], "silent", text, start=now() - 3000 * (number % 2))
            begun = time.monotonic()
            asked.result()
            until(lambda text=text: text in follow.seen.values() or follow.ask(), "the line is seen", 10)
            assert time.monotonic() - begun < 2.0
    assert sorted(follow.seen.values()) == told
    assert follow.sleeps == 1, "once it is known to follow it never sleeps again"
    # A stream that is made while a request is held, and one that nobody writes to.
    held = Follow(tail(running), logGroupName=group, startTime=now(), logStreamNamePrefix="new")
    held.ask()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(held.ask)
        logs.create_log_stream(logGroupName=group, logStreamName="new")
        write(logs, group, "new", "first")
        asked.result()
    until(lambda: list(held.seen.values()) == ["first"] or held.ask(), "the line of the new stream", 10)
    assert held.sleeps == 1


def test_who_reads_to_the_end_comes_to_an_end(running: Running, logs: Any, group: str) -> None:
    """The same command without --follow: whatever it asks and however often, its pages end."""
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    start = now() - 1000
    for lines in ((), ("one", "two")):
        if lines:
            write(logs, group, "s", *lines, start=start)
        for _ in range(3):
            pages = tail(running).get_paginator("filter_log_events")
            asked = {"logGroupName": group, "startTime": start + max(len(lines) - 1, 0), "interleaved": True}
            found = [one["message"] for page in pages.paginate(**asked) for one in page["events"]]
            assert found == list(lines[-1:])
    boto = Follow(logs, logGroupName=group, startTime=start)
    for _ in range(4):
        boto.ask()
    assert boto.sleeps == 4, "only the command line is taken for a follower"


def test_the_command_line_pages_and_filters(running: Running, logs: Any, group: str, tmp_path: Path) -> None:
    def aws(*words: str) -> Any:
        done = subprocess.run(
            [AWS, "--endpoint-url", f"http://{running.plane.host}", "--output", "json", "logs", *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "AWS_ACCESS_KEY_ID": running.plane.key.access_key_id,
                "AWS_SECRET_ACCESS_KEY": running.plane.key.secret_access_key,
                "AWS_DEFAULT_REGION": REGION,
            },
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    aws("create-log-stream", "--log-group-name", group, "--log-stream-name", "cli")
    event = f"timestamp={now() - 5000},message='one ERROR'"
    aws("put-log-events", "--log-group-name", group, "--log-stream-name", "cli", "--log-events", event)
    write(logs, group, "cli", *(f"INFO {number}" for number in range(25)))
    found = aws("filter-log-events", "--log-group-name", group, "--filter-pattern", "ERROR")
    assert [one["message"] for one in found["events"]] == ["one ERROR"]
    found = aws("filter-log-events", "--log-group-name", group, "--page-size", "4", "--filter-pattern", "INFO")
    assert len(found["events"]) == 25
    found = aws("get-log-events", "--log-group-name", group, "--log-stream-name", "cli", "--limit", "3")
    assert [one["message"] for one in found["events"]] == ["INFO 22", "INFO 23", "INFO 24"]
    assert aws("describe-log-streams", "--log-group-name", group)["logStreams"][0]["logStreamName"] == "cli"


def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    with Running(tmp_path) as plane:
        logs = plane.client("logs")
        logs.create_log_group(logGroupName="/kept", tags={"a": "b"})
        logs.create_log_stream(logGroupName="/kept", logStreamName="s")
        write(logs, "/kept", "s", *(f"line {number}" for number in range(1000)), start=now() - 5000)
        told = logs.describe_log_streams(logGroupName="/kept")["logStreams"]
    with Running(tmp_path) as plane:
        logs = plane.client("logs")
        assert logs.describe_log_streams(logGroupName="/kept")["logStreams"] == told
        assert logs.list_tags_log_group(logGroupName="/kept")["tags"] == {"a": "b"}
        found = logs.get_log_events(logGroupName="/kept", logStreamName="s", startFromHead=True)["events"]
        assert [one["message"] for one in found] == [f"line {number}" for number in range(1000)]
        write(logs, "/kept", "s", "after")
        newest = logs.get_log_events(logGroupName="/kept", logStreamName="s", limit=1)["events"]
        assert newest[0]["message"] == "after"
