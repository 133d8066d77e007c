"""Instance metadata: what is asked, what an absent fact is, and that no other host is ever made to wait."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials
from sexton.cloud.exchange import Unreachable
from sexton.cloud.instance import Identity, InstanceService, SpotNotice, is_instance, tags_of
from sexton.wire.errors import EcsError

DOCUMENT = json.dumps({"instanceId": "i-1", "region": "eu-west-1", "accountId": "1"})
KEYS = Static(Credentials("AKID", "secret"))


class Keyring:
    async def current(self):
        return KEYS.credentials

    def forget(self, refused):
        pass


class Metadata:
    """A metadata service of the second version with these facts."""

    def __init__(self, **facts):
        self.facts = facts
        self.sessions = 0
        self.refuse_once = False

    async def answer(self, request):
        if request.method == "PUT":
            self.sessions += 1
            return web.Response(text=f"session-{self.sessions}\n")
        if self.refuse_once or request.headers.get("X-aws-ec2-metadata-token") != f"session-{self.sessions}":
            self.refuse_once = False
            return web.Response(status=401)
        fact = self.facts.get(request.path.removeprefix("/latest/").replace("/", "_").replace("-", "_"))
        if isinstance(fact, int):
            return web.Response(status=fact)
        return web.Response(text=fact) if fact is not None else web.Response(status=404)


async def service(serve, session, metadata):
    return InstanceService({"AWS_EC2_METADATA_SERVICE_ENDPOINT": await serve(metadata.answer)}, session)


async def test_identity_with_its_signature_as_they_are(serve, session):
    metadata = Metadata(dynamic_instance_identity_document=DOCUMENT, dynamic_instance_identity_signature="two\nlines")
    found = await (await service(serve, session, metadata)).identity()

    assert found == Identity(DOCUMENT, "two\nlines", "i-1", "eu-west-1")
    assert metadata.sessions == 1  # one session for both


async def test_a_session_that_has_ended_is_begun_anew(serve, session):
    metadata = Metadata(user_data="x")
    asked = await service(serve, session, metadata)
    assert await asked.user_data() == "x"
    metadata.refuse_once = True
    assert await asked.user_data() == "x"
    assert metadata.sessions == 2


async def test_what_is_not_there_is_nothing_and_no_failure(serve, session):
    asked = await service(serve, session, Metadata())

    assert await asked.identity() == Identity()
    assert (await asked.user_data(), await asked.spot_notice(), await asked.lifecycle_state()) == ("", None, None)


async def test_notices(serve, session):
    notice = '{"action": "terminate", "time": "2026-11-19T03:00:00Z"}'
    facts = {"meta_data_spot_instance_action": notice, "meta_data_autoscaling_target_lifecycle_state": "InService\n"}
    asked = await service(serve, session, Metadata(**facts))

    assert await asked.spot_notice() == SpotNotice("terminate", "2026-11-19T03:00:00Z")
    assert await asked.lifecycle_state() == "InService"


@pytest.mark.parametrize("fact", ["{}", "[]", "no json", '{"action": '])
async def test_a_notice_that_is_none_is_not_guessed_at(serve, session, fact):
    asked = await service(serve, session, Metadata(meta_data_spot_instance_action=fact))

    with pytest.raises(Unreachable, match="cannot read the spot notice"):
        await asked.spot_notice()


async def test_trouble_is_told_from_absence(serve, session):
    asked = await service(serve, session, Metadata(user_data=503))
    with pytest.raises(Unreachable, match="the answer was HTTP 503"):
        await asked.user_data()
    nobody = InstanceService({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}, session)
    with pytest.raises(Unreachable, match=r"cannot reach http://127\.0\.0\.1:9"):
        await nobody.user_data()


@pytest.mark.parametrize(
    "files, environ, answer",
    [
        ({}, {}, False),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, {}, True),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, {}, False),
        ({"sys/hypervisor/uuid": "ec2e1916\n"}, {}, True),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, {"AWS_EC2_METADATA_DISABLED": "true"}, False),
        ({}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://x"}, True),
    ],
)
def test_an_instance_is_known_by_its_firmware(tmp_path, files, environ, answer):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert is_instance(environ, tmp_path) is answer


async def test_a_refusal_of_ec2_has_its_code_and_words(serve, session):
    async def refuse(request):
        body = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>not you</Message></Error></Errors>"
        return web.Response(status=403, text=body)

    with pytest.raises(EcsError) as caught:
        await tags_of(session, {"AWS_ENDPOINT_URL_EC2": await serve(refuse)}, "i-1", "eu-west-1", Keyring())
    assert (caught.value.code, caught.value.message) == ("UnauthorizedOperation", "not you")
