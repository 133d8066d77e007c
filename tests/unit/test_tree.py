"""The tree itself: sizes, stories, what may be named, and what a wheel carries."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import sexton

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sexton"
GENERATED = {"wire/ecs.py", "wire/constraints_table.py"}
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 600


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_module_outgrows_its_idea():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}

    assert {name: length for name, length in lengths.items() if length > MOST_LINES and name not in GENERATED} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_opens_with_its_story(path):
    story = ast.get_docstring(ast.parse(path.read_text()))

    assert story, "say what it is for"
    assert story[0].isupper() or story[0] in "`'\""
    assert len(story.split()) >= 5


def test_no_module_is_empty_or_a_drawer():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

    assert [path for path in MODULES if path.stem in drawers] == []
    assert [path for path in MODULES if len(ast.parse(path.read_text()).body) < 1] == []


# Written in parts, so that this file does not name what it looks for.
_INDEXES = ["pypi" + ".org", "pythonhosted" + ".org", "artifact" + "ory", "dev" + "pi"]
_WORKPLACE = ["/wo" + "rk/", "sha" + "red/reference", "sha" + "red/DESIGN", "sha" + "red/captures"]


def test_no_file_names_a_package_index_or_a_workplace():
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {word}" for word in _INDEXES + _WORKPLACE if word in text]

    assert found == []


def test_the_version_is_said_once_in_two_places():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == sexton.__version__


def test_every_decision_has_its_parts():
    parts = ["## Context", "## Decision", "## Consequences", "## When to revisit"]
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))

    assert [int(path.name[:4]) for path in decisions] == list(range(len(decisions)))
    for path in decisions:
        text = path.read_text()
        assert re.match(rf"# {int(path.name[:4])}\. ", text), path.name
        assert [line for line in text.splitlines() if line.startswith("## ")] == parts, path.name


def test_hooks_run_what_is_here_and_need_no_network():
    text = (ROOT / ".pre-commit-config.yaml").read_text()

    assert set(re.findall(r"- repo: (\S+)", text)) == {"local"}
    assert set(re.findall(r"language: (\S+)", text)) == {"system"}
    for tool in re.findall(r"entry: (\S+)", text):
        assert (ROOT / tool).exists(), tool


@pytest.mark.timeout(60)
def test_a_wheel_carries_the_types_the_licence_and_the_command(tmp_path):
    """Built with the build tool of the environment, so no index is asked."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        names = set(made.namelist())
        metadata = f"sexton-{sexton.__version__}.dist-info"
        entry = made.read(f"{metadata}/entry_points.txt").decode()

    assert "sexton/py.typed" in names
    assert f"{metadata}/licenses/LICENSE" in names
    assert "sexton = sexton.__main__:main" in entry
    assert {f"sexton/{path.relative_to(PACKAGE)}" for path in MODULES} <= names
    assert not any(name.startswith(("tests", "docs", "scripts")) for name in names)
