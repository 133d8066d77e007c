"""Keys of roles as tasks get them: bodies, codes, words, the audit log, and when they come and go."""

from __future__ import annotations

import msgspec
import pytest

from sexton.agent.metadata.audit import Audit, path_of
from sexton.agent.metadata.credentials import CredentialsPaths, shown
from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.variables import of_container
from sexton.agent.rolekeys import RoleKeys, Sent
from sexton.agent.steps.context import Identity
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring, NoCredentials
from sexton.core.auditline import Asked, What, line
from sexton.core.taskroles import EXECUTION, TASK
from sexton.kit.allowance import Allowances
from sexton.settings import Settings
from sexton.wire import acs_task
from unit.agent.rig import CLUSTER, INSTANCE, Host, arn, container, task
from unit.agent.taskport import serving

NOW = 1_800_000_000.0
OWN = acs_task.IAMRoleCredentials(
    credentials_id="own-id",
    role_arn="arn:aws:iam::123456789012:role/app",
    access_key_id="ASIAOWN",
    secret_access_key="own/secret+",
    session_token="own token",
    expiration="as it came",
)
READY = acs_task.IAMRoleCredentials(
    credentials_id="ready-id",
    role_arn="arn:aws:iam::123456789012:role/exec",
    access_key_id="ASIAREADY",
    secret_access_key="ready secret",
    session_token="ready token",
    expiration="2033-01-01T00:00:00Z",
)
BODY = (
    '{"RoleArn":"arn:aws:iam::123456789012:role/app","AccessKeyId":"ASIAOWN","SecretAccessKey":"own/secret+",'
    '"Token":"own token","Expiration":"as it came"}'
)


class World:
    """Keys of one task, and the log of who asked for them."""

    def __init__(self, directory, **settings):
        self.keys = RoleKeys(Keyring([Static(Credentials("AKID", "secret"))]))
        self.keys.take(Sent(arn(), TASK, OWN))
        self.keys.take(Sent(arn(), EXECUTION, READY))
        self.settings = Settings(data_dir=str(directory), **settings)
        self.audit = Audit(self.settings, Identity(CLUSTER, INSTANCE), clock=lambda: NOW)
        self.paths = CredentialsPaths(self.keys, self.audit, self.is_of)

    async def is_of(self, caller, task):
        return caller.task in ("", task)

    def limit(self, server):
        server.on_limited = self.paths.limited

    @property
    def lines(self):
        self.audit.close()
        return path_of(self.settings).read_text().splitlines()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.audit.close()


async def test_keys_are_given_in_both_versions_with_every_verb(world):
    async with serving(world.paths) as port:
        for path in ("/v2/credentials/own-id", "/v1/credentials?id=own-id", "/v2/credentials/own-id?x=1"):
            said = await port.ask(path)
            assert (said.status, said.text) == (200, BODY)
            assert said.headers["Content-Type"] == "application/json"
        assert (await port.ask("/v2/credentials/own-id", "POST", b"x")).text == BODY
        assert (await port.ask("/v2/credentials/own-id", "HEAD")).status == 200
        assert (await port.ask("/v2/credentials/ready-id")).json["AccessKeyId"] == "ASIAREADY"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v2/credentials/",
            '{"code":"NoIdInRequest","message":"CredentialsV2Request: No Credential ID in the request",'
            '"HTTPErrorCode":400}',
        ),
        (
            "/v1/credentials",
            '{"code":"NoIdInRequest","message":"CredentialsV1Request: No Credential ID in the request",'
            '"HTTPErrorCode":400}',
        ),
        (
            "/v2/credentials/other",
            '{"code":"InvalidIdInRequest","message":"CredentialsV2Request: Credentials not found","HTTPErrorCode":400}',
        ),
        (
            "/v1/credentials?id=other",
            '{"code":"InvalidIdInRequest","message":"CredentialsV1Request: Credentials not found","HTTPErrorCode":400}',
        ),
    ],
)
async def test_what_is_not_there_is_said_as_amazons_agent_says_it(world, path, body):
    async with serving(world.paths) as port:
        said = await port.ask(path)
        assert (said.status, said.text) == (400, body)
        assert said.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "path",
    [
        "/v2/credentials",
        "/v1/credentials/own-id",
        "/V2/credentials/own-id",
        "/v2/Credentials/own-id",
        "/v3/credentials/own-id",
        "/credentials/own-id",
    ],
)
async def test_other_paths_are_not_there(world, path):
    async with serving(world.paths) as port:
        assert (await port.ask(path)).status == 404


@pytest.mark.parametrize(
    "given",
    ["own-i", "own-id/", "OWN-ID", "own-id%00", "own-id%20", "*", "own-*", "%2e%2e", "own-id,ready-id", "'", "%F0%9F"],
)
async def test_only_the_very_id_will_do(world, given):
    async with serving(world.paths) as port:
        said = await port.ask(f"/v2/credentials/{given}")
        assert said.status in (301, 400, 404)
        assert "secret" not in said.text


async def test_a_call_from_another_tasks_own_network_finds_nobody(world):
    async with serving(world.paths, task=arn(2)) as port:
        assert (await port.ask("/v2/credentials/own-id")).json["code"] == "InvalidIdInRequest"
    async with serving(world.paths, task=arn(1)) as port:
        assert (await port.ask("/v2/credentials/own-id")).status == 200


async def test_an_id_that_is_known_and_whose_keys_are_on_their_way_is_told_apart(world):
    world.keys.expect(arn(2), TASK, "later-id")
    async with serving(world.paths) as port:
        said = await port.ask("/v2/credentials/later-id")
        assert (said.status, said.text) == (
            503,
            '{"code":"CredentialsUninitialized","message":"CredentialsV2Request: Credentials uninitialized for ID",'
            '"HTTPErrorCode":503}',
        )
        world.keys.take(Sent(arn(2), TASK, msgspec.structs.replace(OWN, credentials_id="later-id")))
        assert (await port.ask("/v2/credentials/later-id")).status == 200


async def test_every_request_leaves_its_line_and_no_line_holds_an_id_or_a_key(world):
    async with serving(world.paths, set_up=world.limit, allowances=Allowances(0.0001, 2.0)) as port:
        for path in ("/v2/credentials/own-id", "/v2/credentials/ready-id", "/v1/credentials?id=own-id"):
            await port.ask(path, **{"User-Agent": "aws-sdk/1"})
        await port.ask("/v2/credentials/wrong", **{"User-Agent": 'x" 200 "\\ forged'})
        for _ in range(2):
            await port.ask("/v2/credentials/own-id", **{"User-Agent": "greedy"})
    shape = [one.split(" ", 3) for one in world.lines]
    assert all(one[0] == "2027-01-15T08:00:00Z" and one[2].startswith("127.0.0.1:") for one in shape)
    owner = f"2 {CLUSTER} {INSTANCE}"
    assert [(one[1], one[3]) for one in shape] == [
        ("200", f'"/v2/credentials" "aws-sdk/1" {arn()} GetCredentials {owner}'),
        ("200", f'"/v2/credentials" "aws-sdk/1" {arn()} GetCredentialsExecutionRole {owner}'),
        ("200", f'"/v1/credentials" "aws-sdk/1" {arn()} GetCredentials {owner}'),
        ("400", '"/v2/credentials" "x\\" 200 \\"\\\\ forged" - GetCredentialsInvalidRoleType'),
        ("200", f'"/v2/credentials" "greedy" {arn()} GetCredentials {owner}'),
        ("429", '"/v2/credentials" "greedy" -'),
    ]
    text = "\n".join(world.lines)
    assert not any(word in text for word in ("own-id", "ready-id", "ASIA", "secret", "token"))


async def test_whoever_asks_far_too_much_cannot_push_out_the_lines_of_others(world):
    async with serving(world.paths, set_up=world.limit, allowances=Allowances(0.0001, 1.0)) as port:
        for _ in range(150):
            await port.ask("/v2/credentials/own-id")
    assert len([one for one in world.lines if " 429 " in one]) < 70


async def test_a_log_that_cannot_be_written_is_said_once_and_keys_are_given_all_the_same(tmp_path, caplog, monkeypatch):
    world = World(tmp_path, audit_file=str(tmp_path / "none" / "deeper" / "audit.log"))
    async with serving(world.paths) as port:
        for _ in range(3):
            assert (await port.ask("/v2/credentials/own-id")).status == 200
        assert caplog.text.count("audit log cannot be written") == 1
        monkeypatch.setattr("sexton.agent.metadata.audit.TRY_SECONDS", 0.0)
        (tmp_path / "none").mkdir()
        assert (await port.ask("/v2/credentials/own-id")).status == 200
    (again,) = [one for one in caplog.records if one.message == "audit log is written again"]
    assert again.lost == 3
    assert len(world.lines) == 1


async def test_the_log_can_be_off_and_lies_beside_the_agents_own(tmp_path):
    world = World(tmp_path, audit_disabled=True)
    async with serving(world.paths) as port:
        assert (await port.ask("/v2/credentials/own-id")).status == 200
    assert not list(tmp_path.iterdir())
    assert str(path_of(Settings(log_file="/var/log/ecs/ecs-agent.log"))) == "/var/log/ecs/audit.log"
    assert str(path_of(Settings(audit_file="/a/b"))) == "/a/b"


def test_a_line_is_one_line_whatever_a_stranger_sends():
    asked = Asked(NOW, 200, "1.2.3.4:5", "/v1/credentials", 'a\n2026 "b"\x00é\u202e' + "x" * 9999, What.UNKNOWN)
    made = line(asked, "c", "i")
    assert "\n" not in made and len(made) < 700
    assert r'"a\x0a2026 \"b\"\x00é\x202exxx' in made
    assert line(asked._replace(user_agent=""), "c", "i").endswith(
        '"/v1/credentials" "-" - GetCredentialsInvalidRoleType'
    )


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v2/credentials/id", "/v2/credentials"),
        ("/v1/credentials", "/v1/credentials"),
        ("/v4/1234/task/stats", "/v4/-/task/stats"),
        ("/api/1234/fault/v1/network-latency/start", "/api/-/fault/v1/network-latency/start"),
        ("/", "/"),
    ],
)
def test_paths_are_shown_without_what_only_a_task_may_know(path, told):
    assert shown(path) == told


def test_a_container_is_told_where_its_keys_are():
    names = Names(b"k" * 32)
    with_role = task(1, container(), role_credentials=acs_task.IAMRoleCredentials(credentials_id="own-id"))
    told = of_container(names, with_role, "app")
    assert told["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] == "/v2/credentials/own-id"
    assert "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" not in of_container(names, task(), "app")


async def test_an_id_belongs_to_the_task_that_had_it_first(world):
    assert not world.keys.take(Sent(arn(2), TASK, msgspec.structs.replace(OWN, access_key_id="ASIAX")))

    assert world.keys.under("own-id").keys.access_key_id == "ASIAOWN"
    assert world.keys.find(arn(2), TASK) is None


async def test_renewed_keys_are_given_at_once_under_the_same_id_and_ended_ones_sign_nothing_here():
    clock = [NOW]
    keys = RoleKeys(Keyring([Static(Credentials("AKID", "secret"))]), clock=lambda: clock[0])
    ends = msgspec.structs.replace(READY, expiration="2027-01-15T09:00:00Z")  # an hour from now
    keys.take(Sent(arn(), EXECUTION, ends))
    source = keys.source(arn(), EXECUTION)
    assert (await source.current()).access_key_id == "ASIAREADY"

    clock[0] = NOW + 3601
    with pytest.raises(NoCredentials):
        await source.current()
    assert keys.under("ready-id").keys == ends  # whoever asks for them reads when they ended

    renewed = msgspec.structs.replace(ends, access_key_id="ASIANEW", expiration="2027-01-15T10:00:00Z")
    keys.take(Sent(arn(), EXECUTION, renewed))
    assert keys.under("ready-id").keys == renewed
    assert (await source.current()).access_key_id == "ASIANEW"


@pytest.mark.looptime
async def test_a_tasks_own_keys_end_with_it_and_those_it_was_made_ready_with_when_it_is_cleaned_up():
    async with Host(cleanup_wait=60.0) as host:
        keys = host.context.supplies.roles
        named = {
            "role_credentials": acs_task.IAMRoleCredentials(credentials_id="own-id"),
            "execution_role_credentials": acs_task.IAMRoleCredentials(credentials_id="ready-id"),
        }
        keys.take(Sent(arn(), TASK, OWN))
        keys.take(Sent(arn(), EXECUTION, READY))
        await host.engine.take([task(**named)], 1)
        await host.until_running()
        assert keys.under("own-id").keys == OWN

        host.engine.stop([arn()], "enough")
        await host.until_stopped()
        assert keys.under("own-id") is None
        assert keys.under("ready-id").keys == READY

        await host.until_gone()
        assert keys.under("ready-id") is None
        assert keys.find(arn(), EXECUTION) is None


@pytest.mark.looptime
async def test_after_a_restart_ids_are_known_and_keys_are_awaited():
    async with Host(cleanup_wait=600.0) as host:
        named = {"role_credentials": acs_task.IAMRoleCredentials(credentials_id="own-id")}
        host.context.supplies.roles.take(Sent(arn(), TASK, OWN))
        await host.engine.take([task(**named)], 1)
        await host.until_running()

        await host.restart()
        assert host.context.supplies.roles.under("own-id") == (arn(), TASK, None)

        host.engine.stop([arn()], "enough")
        await host.until_stopped()
        assert host.context.supplies.roles.under("own-id") is None
        await host.restart()
        assert host.context.supplies.roles.under("own-id") is None
