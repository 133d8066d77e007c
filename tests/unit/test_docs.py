"""The manual: made parts are up to date, pages find each other, and what it tells people to type is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import generate_docs
import pytest

from sexton import commandline
from sexton.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "contributing").glob("*.md"), *ROOT.glob("*.md")])
MANUAL = [page for page in PAGES if page.parent != ROOT / "contributing"]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", sorted({page for page, _ in generate_docs.PARTS}))
def test_parts_that_are_made_from_code_are_up_to_date(page):
    assert generate_docs.render(page) == (ROOT / "docs" / page).read_text(), "run python scripts/generate_docs.py"


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}

    assert {page for page in pages if f" {page}\n" not in navigation} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_that_are_named_are_there(page):
    text = page.read_text()
    for path in re.findall(r"`((?:src/sexton|tests|scripts|docs|contributing|bench)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    if page.name.startswith("flow-of-"):
        for path in re.findall(r"\b((?:agent|control|core|care|cli|host|runtime)/[\w/]+\.py)", text):
            assert (ROOT / "src/sexton" / path).exists(), path


def test_pages_that_the_program_names_are_there():
    """In help texts, messages and comments."""
    for source in (ROOT / "src").rglob("*.py"):
        for path in re.findall(r"\b(?:docs|contributing)/[\w/-]+\.md", source.read_text()):
            assert (ROOT / path).exists(), f"{source}: {path}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_that_are_named_are_there(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    # In code spans and blocks only: elsewhere "make" is a word.
    for said in re.findall(r"(?:`|^(?:# |\$ )?)make((?: [a-z]+)+)", page.read_text(), re.MULTILINE):
        assert set(said.split()) <= targets, said


@pytest.mark.parametrize("page", MANUAL, ids=name)
def test_commands_of_sexton_that_are_named_are_there(page):
    known = {*commandline.ROLES, *(one.name for one in [*app.registered_commands, *app.registered_groups])}
    for word in re.findall(r"(?:`|^|^[$#] )(?:\.venv/bin/)?sexton ([a-z]+)", page.read_text(), re.MULTILINE):
        assert word in known


@pytest.mark.timeout(60)
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?(https?://[^\" >]+)", page.read_text())
        assert loaded == [], page


def test_the_changelog_can_be_built():
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0.0.0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for fragment in (ROOT / "changelog.d").glob("*.md"):
        assert re.fullmatch(r"\d+\.(added|changed|fixed|removed)(\.\d+)?\.md", fragment.name)
        assert len(fragment.read_text().strip().splitlines()) == 1
