"""The command line as it is listed, completed and explained: sentences that are not cut, values that have names."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from sexton import commandline

PLAIN = {"PATH": os.environ["PATH"], "COLUMNS": "80", "TERM": "dumb"}


def sexton(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sexton", *arguments], capture_output=True, text=True, env=PLAIN | environment
    )
    assert done.stderr == ""
    return done.stdout


def test_no_command_is_summed_up_by_half_a_sentence() -> None:
    listed = sexton("--help").partition("Commands:\n")[2].splitlines()

    assert len(listed) > 15
    cut = [line for line in listed if not line.endswith(".") or line.endswith("...")]
    assert cut == [], "give it a summary in cli/app.py"


@pytest.mark.parametrize("command", ["logs", "doctor", "top", "zombies", "keys create", "audit"])
def test_values_of_options_have_names(command: str) -> None:
    told = sexton(*command.split(), "--help").partition("Options:")[2]

    assert re.findall(r"^ +-.*<\w.*>", told, re.MULTILINE) == []


@pytest.mark.parametrize("role", commandline.ROLES)
def test_options_of_a_role_are_completed(role: str) -> None:
    words = {"_SEXTON_COMPLETE": "complete_bash", "COMP_WORDS": f"sexton {role} --", "COMP_CWORD": "2"}
    offered = sexton(**words).split()

    assert set(offered) == set(commandline.options(role))
    assert {"--data-dir", "--log-level"} <= set(offered)


def test_commands_and_their_own_options_are_completed() -> None:
    complete = {"_SEXTON_COMPLETE": "complete_bash"}

    assert sexton(**complete, COMP_WORDS="sexton to", COMP_CWORD="1").split() == ["top"]
    assert sexton(**complete, COMP_WORDS="sexton top --on", COMP_CWORD="2").split() == ["--once"]
    assert sexton(**complete, COMP_WORDS="sexton top --sort c", COMP_CWORD="3").split() == ["cpu"]
