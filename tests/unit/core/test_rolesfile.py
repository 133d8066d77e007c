"""The roles file is taken as it is meant, or refused with the line and the key."""

from __future__ import annotations

import json

import pytest

from sexton.core.iam import Request, decide
from sexton.core.rolesfile import BadRoles, Source, parse, whole_arn

ROLE = "arn:aws:iam::123456789012:role/app"
ALLOW = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ecs:*", "Resource": "*"}}

FILE = """
# comment
[[role]]
arn = "arn:aws:iam::123456789012:role/app-*"
source = "local"
duration = "30m"
policy-file = "app.json"

[[role]]
arn = "arn:aws:iam::123456789012:role/exec"
source = "assume-role"
role-arn = "arn:aws:iam::999999999999:role/real"
profile = "prod"
external-id = "x"

[[role]]
arn = "batch"
source = "local"
policy = '''{"Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}}'''

[[role]]
arn = "arn:aws:iam::*:role/team/*"
source = "profile"
profile = "dev"

[[role]]
arn = "static"
source = "static"
access-key-id = "AKIAEXAMPLE"
secret-access-key = "very secret"

[[role]]
arn = "inline"
source = "local"
[role.policy]
Version = "2012-10-17"
[[role.policy.Statement]]
Effect = "Allow"
Action = "ecs:RunTask"
Resource = "*"
"""


def read(name):
    if name != "app.json":
        raise BadRoles(f"there is no policy file {name}")
    return json.dumps(ALLOW)


def test_each_role_is_found_where_it_stands():
    file = parse(FILE, read)

    assert [one.source for one in file.entries] == ["local", "assume-role", "local", "profile", "static", "local"]
    assert [one.line for one in file.entries] == [3, 9, 16, 21, 26, 32]
    found = file.find(f"{ROLE}-web")
    assert found is not None
    assert (found.duration, found.source) == (1800.0, Source.LOCAL)
    assert decide(found.policies, Request("ecs:RunTask")).allowed
    assert file.find(ROLE) is None
    assert file.find("arn:aws:iam::123456789012:role/batch") == file.entries[2]
    assert file.find("arn:aws:iam::5:role/team/one") == file.entries[3]
    assert decide(file.entries[5].policies, Request("ecs:RunTask")).allowed


def test_the_first_that_fits_is_meant():
    narrow = f'[[role]]\narn = "{ROLE}"\nsource = "profile"\nprofile = "a"\n'
    wide = '[[role]]\narn = "*"\nsource = "profile"\nprofile = "b"\n'

    assert parse(narrow + wide, read).find(ROLE).profile == "a"
    assert parse(wide + narrow, read).find(ROLE).profile == "b"


def test_no_secret_is_shown():
    assert "very secret" not in repr(parse(FILE, read))


def entry(**keys):
    lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in keys.items()]
    return "# first line\n[[role]]\n" + "\n".join(lines)


LOCAL = {"arn": ROLE, "source": "local", "policy_file": "app.json"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[role]\n", "it is not TOML"),
        ("[roles]\n", "'roles' is unknown; write each role as [[role]]"),
        ("[role]\narn = 1\n", "with double brackets"),
        (entry(source="local"), "line 2: arn is missing"),
        (entry(arn="arn:aws:s3:::x", source="local"), "line 2: arn 'arn:aws:s3:::x' is no role"),
        (entry(arn="a b", source="local"), "line 2: arn 'a b' is no role"),
        (entry(arn=3), "line 2: arn is 3; write a text in quotes"),
        (
            entry(arn=ROLE),
            f"line 2: role '{ROLE}': source is missing; write one of assume-role, profile, static, local",
        ),
        (entry(arn=ROLE, source="sts"), "source is 'sts'; write one of"),
        (
            entry(**LOCAL, ruling="x"),
            "'ruling' is unknown for source = \"local\"; there are policy, policy-file, duration",
        ),
        (entry(**LOCAL, profile="x"), "'profile' is unknown for source = \"local\"; it is for assume-role"),
        (entry(arn=ROLE, source="local"), "either policy or policy-file"),
        (entry(**LOCAL, policy="{}"), "either policy or policy-file"),
        (entry(arn=ROLE, source="local", policy="{}"), "policy: Statement is missing"),
        (entry(arn=ROLE, source="local", policy="{"), "policy: line 1, column 2: it is not JSON"),
        (entry(arn=ROLE, source="local", policy_file="none.json"), "there is no policy file none.json"),
        (entry(**LOCAL, duration="1s"), "duration is '1s'; write a span from 15m to 12h"),
        (entry(**LOCAL, duration=[1]), "duration is [1]"),
        (entry(**LOCAL, duration="1 day"), "duration is '1 day'"),
        (entry(arn=ROLE, source="profile"), "profile is missing"),
        (entry(arn=ROLE, source="static", access_key_id="A"), "secret-access-key is missing"),
        (entry(arn=ROLE, source="assume-role", role_arn="real"), "role-arn 'real' is no ARN of one role"),
        (entry(**LOCAL) + "\n" + entry(**LOCAL), f"line 7: '{ROLE}' stands on line 2 already"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(text, said):
    with pytest.raises(BadRoles) as refused:
        parse(text, read)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "arn"),
    [
        ("app", ROLE),
        (ROLE, ROLE),
        ("arn:aws:iam::123456789012:role/team/app", "arn:aws:iam::123456789012:role/team/app"),
        ("arn:aws:iam::123456789012:user/app", None),
        ("arn:aws:iam::123456789012:role/*", None),
        ("no role", None),
    ],
)
def test_a_short_name_is_a_role_of_the_account(given, arn):
    assert whole_arn(given, "aws", "123456789012") == arn
