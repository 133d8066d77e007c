"""Keys of a role come from the seal and the token alone, and a token that was touched opens nothing."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sexton.core import sessionkey
from sexton.core.sessionkey import Session

SEAL = b"s" * 32
ROLE = "arn:aws:iam::123456789012:role/team/app"
SESSION = Session(ROLE, "0123abc", 1000, 4600, "n")

sessions = st.builds(
    Session,
    st.sampled_from([ROLE, "arn:aws-cn:iam::000000000001:role/x"]),
    st.text(max_size=64),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.text(max_size=12),
)


@given(st.binary(min_size=32, max_size=32), sessions)
def test_a_token_gives_the_same_keys_again(seal, session):
    made = sessionkey.make(seal, session)

    assert sessionkey.read(seal, made.token) == made
    assert re.fullmatch(r"ASIA[A-Z2-7]{16}", made.access_key_id)
    assert len(made.secret_access_key) == 40


@given(sessions)
def test_another_seal_knows_nothing_of_it(session):
    assert sessionkey.read(b"t" * 32, sessionkey.make(SEAL, session).token) is None


@given(st.data())
def test_a_changed_token_is_none(data):
    token = sessionkey.make(SEAL, SESSION).token
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda one: one != token[place]))
    changed = token[:place] + other + token[place + 1 :]

    found = sessionkey.read(SEAL, changed)

    assert found is None


@given(st.text(max_size=200))
def test_no_text_of_a_strangers_is_a_token(text):
    assert sessionkey.read(SEAL, text) is None
    assert sessionkey.read(SEAL, f"SX1.{text}.{text}") is None


def test_neither_token_nor_name_shows_the_secret():
    made = sessionkey.make(SEAL, SESSION)

    assert made.secret_access_key not in made.token
    assert made.secret_access_key not in repr(made)
    assert made.token not in repr(made)


def test_a_session_is_named_as_aws_names_it():
    assert SESSION.arn == "arn:aws:sts::123456789012:assumed-role/app/0123abc"
    assert re.fullmatch(r"AROA[A-Z2-7]{17}:0123abc", SESSION.user_id)
    assert SESSION.account == "123456789012"


def test_an_id_is_of_one_task_and_role_and_cannot_be_guessed_without_the_seal():
    ids = {
        sessionkey.credentials_id(seal, task, kind)
        for seal in (SEAL, b"t" * 32)
        for task in ("a", "b")
        for kind in ("TaskApplication", "TaskExecution")
    }

    assert len(ids) == 8
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one) for one in ids)
    assert sessionkey.credentials_id(SEAL, "a", "b") == sessionkey.credentials_id(SEAL, "a", "b")
