"""Plain calls are read without the standard library's parser, and mean what they mean to it."""

from __future__ import annotations

import pytest

from sexton import commandline

CALLS = [
    ("up", []),
    ("up", ["--listen", "127.0.0.1:1", "--cluster=blue", "--leave-nothing"]),
    ("control", ["--store=etcd://a:2379?x=y", "--insecure-plaintext", "--tls-cert", "a", "--tls-key", "b"]),
    ("agent", ["--backend", "http://here", "--check", "--healthcheck", "--log-format", "json"]),
    ("care", ["--policy", "p", "--metrics", "m", "--root", "/", "--check", "--check"]),
    ("agent", ["--cluster", "one", "--cluster", "two"]),
]


@pytest.mark.parametrize(("role", "words"), CALLS)
def test_a_plain_call_means_what_it_means_to_the_standard_parser(role: str, words: list[str]) -> None:
    standard = {key: value for key, value in vars(commandline._parser(role).parse_args(words)).items() if value}

    assert commandline._plain(role, words) == standard


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--clus", "blue"],
        ["--cluster"],
        ["--cluster", ""],
        ["--cluster", "--check"],
        ["--cluster=", "--check"],
        ["--check=yes"],
        ["--log-level", "loud"],
        ["--listen", "127.0.0.1:1"],
        ["stray"],
        ["--", "--check"],
    ],
)
def test_what_is_not_plain_is_left_to_the_standard_parser(words: list[str]) -> None:
    assert commandline._plain("agent", words) is None


def test_abbreviations_and_empty_values_are_taken_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    command = commandline.read_command("agent", ["--clus", "blue", "--region", "", "--chec"])

    assert (command.settings.cluster, command.errand) == ("blue", "check")


@pytest.mark.parametrize("role", commandline.ROLES)
def test_options_are_all_that_help_names(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        commandline.read_command(role, ["--help"])

    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in commandline.options(role))
