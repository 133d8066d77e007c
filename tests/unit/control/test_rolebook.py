"""The roles file in force: taken up when it changes, kept when what stands there cannot be used."""

from __future__ import annotations

import os

import pytest

from sexton.control.rolebook import Rolebook
from sexton.core.iam import Request, decide
from sexton.core.rolesfile import BadRoles
from unit.control.own.rolekeys import ARN, document, statement, write_roles


@pytest.fixture
def path(tmp_path):
    return write_roles(tmp_path / "roles.toml", app=[statement()])


def loaded(path):
    book = Rolebook(path)
    book.load()
    return book


def test_no_file_means_no_roles(tmp_path):
    book = loaded(tmp_path / "none.toml")

    assert not book.present
    assert book.find(ARN + "app") is None


def test_an_empty_file_means_no_roles_either(tmp_path):
    (tmp_path / "roles.toml").write_text("")

    assert loaded(tmp_path / "roles.toml").present


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("[[role]]\n", 0o600, "line 1: arn is missing"),
        ("", 0o666, "others may write it (mode 0666), and with it any policy; chmod 600 it"),
        (
            '[[role]]\narn = "a"\nsource = "static"\naccess-key-id = "A"\nsecret-access-key = "s"\n',
            0o644,
            "it holds keys and others may read it (mode 0644); chmod 600 it, and replace the keys",
        ),
        ('[[role]]\narn = "a"\nsource = "local"\npolicy-file = "b.json"\n', 0o600, "there is no policy file"),
        ("#" * (2 << 20), 0o600, "is larger than 1 MiB"),
    ],
)
def test_a_start_is_refused_with_the_place(tmp_path, text, mode, said):
    path = tmp_path / "roles.toml"
    path.write_text(text)
    path.chmod(mode)

    with pytest.raises(BadRoles) as refused:
        loaded(path)

    assert str(refused.value).startswith(f"cannot use the roles file {path}: ")
    assert said in str(refused.value)


def test_what_is_no_plain_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "roles.toml")

    with pytest.raises(BadRoles, match="no plain file"):
        loaded(tmp_path / "roles.toml")


def test_a_bad_edit_leaves_what_was_there_and_says_so(path, caplog):
    book = loaded(path)

    path.write_text("[[role]]\n")
    book.look()
    assert book.policies(ARN + "app") is not None
    assert (
        book.trouble == "line 1: arn is missing; name the role by its ARN, such as arn:aws:iam::123456789012:role/app"
    )
    assert "roles file not taken up" in caplog.text

    write_roles(path, other=[statement()])
    book.look()
    assert book.policies(ARN + "app") is None
    assert book.policies(ARN + "other") is not None
    assert book.trouble == ""


def test_a_file_that_is_gone_takes_nothing_away_by_accident(path):
    book = loaded(path)

    path.unlink()
    book.look()

    assert book.find(ARN + "app") is not None
    assert "it is gone" in book.trouble


def test_a_file_that_comes_is_taken_up(tmp_path):
    book = loaded(tmp_path / "roles.toml")

    write_roles(tmp_path / "roles.toml", app=[statement()])
    book.look()

    assert book.present
    assert book.find(ARN + "app") is not None


def test_a_policy_file_beside_it_is_followed_too(tmp_path):
    (tmp_path / "roles.toml").write_text('[[role]]\narn = "app"\nsource = "local"\npolicy-file = "app.json"\n')
    (tmp_path / "app.json").write_text(document(statement(action="ecs:*")))
    book = loaded(tmp_path / "roles.toml")
    before = book._stamp(book._file)

    (tmp_path / "app.json").write_text(document(statement(action="logs:*")))
    assert book._stamp(book._file) != before
    book.look()

    policies = book.policies(ARN + "app")
    assert policies is not None
    assert not decide(policies, Request("ecs:RunTask")).allowed
    assert decide(policies, Request("logs:PutLogEvents")).allowed
