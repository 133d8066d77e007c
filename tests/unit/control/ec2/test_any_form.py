"""Whatever form a client sends, it gets an answer or EC2's own error: never our fault, never a traceback."""

from __future__ import annotations

import asyncio
import os
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import get_args, get_type_hints
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.cloud.sigv4_verify import Verified
from sexton.control.ec2.service import EC2, OPERATIONS
from sexton.control.query.door import QueryDoor
from unit.control.ec2.forms import ec2, pool
from unit.control.world import open_world

SOAK = os.environ.get("SEXTON_SOAK") == "1"
DAYS = 150 if SOAK else 8

# ``$x`` stands for something that is there; the rest is what nobody means.
TEXTS = st.sampled_from(
    [
        *("$vpc", "$subnet", "$group", "$rule", "$interface", "$assoc", "default", "web", "vpc-1", "sg-1", "x", ""),
        *(
            "10.0.0.0/16",
            "10.0.9.0/24",
            "10.0.1.9",
            "fd00::/64",
            "::/0",
            "0.0.0.0/0",
            "0/0",
            "1.2.3.4/33",
            "\x00",
            "\ud7ff",
        ),
        *("tcp", "-1", "icmpv6", "300", "enableDnsSupport", "description", "security-group", "subnet", "tag:a", "*a*?"),
    ]
)
NUMBERS = st.sampled_from(["-1", "0", "1", "80", "65536", "99999999999999999999", "1e3", "x", ""])


def fields_of(kind: type, prefix: str = "", depth: int = 0) -> list[tuple[str, st.SearchStrategy[str]]]:
    """Every name that a request's form may have, with what may stand there."""
    found = []
    for field in msgspec.structs.fields(kind):
        found += _paths(get_type_hints(kind)[field.name], f"{prefix}{field.encode_name}", depth)
    return found


def _paths(hint: object, path: str, depth: int) -> list[tuple[str, st.SearchStrategy[str]]]:
    parts = [one for one in get_args(hint) if one not in (type(None), ...)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return fields_of(hint, f"{path}.", depth + 1) if depth < 4 else []
    if parts:
        listed = hint.__class__.__name__ == "GenericAlias"
        return _paths(parts[0], f"{path}.1" if listed else path, depth)
    if hint is bool:
        return [(path, st.sampled_from(["true", "false", "maybe"]))]
    return [(path, NUMBERS if hint is int else TEXTS)]


def forms(action: str) -> st.SearchStrategy[dict[str, str]]:
    known = dict(fields_of(OPERATIONS[action].request))
    known.pop("DryRun", None)
    needed = {one.encode_name for one in msgspec.structs.fields(OPERATIONS[action].request) if one.required}
    some = st.lists(st.sampled_from(sorted(known)), max_size=6, unique=True)
    many = st.tuples(some, st.sampled_from([set(), needed, needed]))
    return many.flatmap(
        lambda names: st.fixed_dictionaries(
            {name: known[name] for name in known if name in names[0] or name.partition(".")[0] in names[1]}
        )
    )


days = st.permutations(sorted(OPERATIONS)).flatmap(
    lambda names: st.tuples(*(st.tuples(st.just(name), forms(name)) for name in names))
)


class Trusting:
    def verify(self, *_):
        return Verified("AKSXEXAMPLE", "us-east-1", "ec2")


async def live(sequence, outcomes):
    with tempfile.TemporaryDirectory() as directory:
        async with open_world(Path(directory)) as world:
            vpc, subnet = await pool(world, ipv6=True)
            group = (await ec2(world, "CreateSecurityGroup", GroupName="web", GroupDescription="d", VpcId=vpc))[
                "groupId"
            ]
            here = {"$vpc": vpc, "$subnet": subnet, "$group": group}
            here["$rule"] = world.records.groups.get("us-east-1", group).value.egress[0].id
            one = await ec2(world, "CreateNetworkInterface", SubnetId=subnet)
            here["$interface"] = one["networkInterface"]["networkInterfaceId"]
            here["$assoc"] = world.records.subnets.get("us-east-1", subnet).value.cidr6.id
            door = QueryDoor(world.context, Trusting())
            claim = (
                "AWS4-HMAC-SHA256 Credential=a/b/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=" + "0" * 64
            )
            for action, form in sequence:
                body = urlencode({"Action": action} | {name: here.get(text, text) for name, text in form.items()})
                reply = await door.serve("/", [("Authorization", claim)], body.encode())
                root = ET.fromstring(reply.body)
                assert reply.status < 500, (body, reply.body)
                assert reply.status == 200 or root.tag == "Response", reply.body
                outcomes[action, reply.status] += 1
            before = {key: entry.value for key, entry in world.records.interfaces.items()}
        async with open_world(Path(directory), cluster=False) as world:
            assert {key: entry.value for key, entry in world.records.interfaces.items()} == before


@pytest.mark.slow
@pytest.mark.timeout(600 if SOAK else 90)
def test_no_form_is_our_fault(caplog):
    outcomes = Counter()

    @settings(max_examples=DAYS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(days)
    def check(sequence):
        asyncio.run(live(sequence, outcomes))
        assert "Traceback" not in caplog.text

    check()
    assert {action for action, _ in outcomes} == set(EC2.operations)
    # The forms are worth something: some of them were carried out.
    assert len({action for action, status in outcomes if status == 200}) > len(OPERATIONS) // 4
