"""The register of births: found again after a restart, whole after a sudden death, never larger than its bound."""

from __future__ import annotations

from pathlib import Path

from sexton.care.births import Births, ContainerBirth, GroupBirth

IDENT = "0123456789abcdef" * 4


def container(number: int, **other: str) -> ContainerBirth:
    return ContainerBirth(id=f"{number:064x}"[::-1], at=number, name=f"web-{number}", image="shop/web", **other)


def test_what_was_written_is_found_by_another_process(tmp_path: Path) -> None:
    Births(tmp_path).write([GroupBirth(7, 100, "/docker/x", "runc"), container(1), container(2)])

    register = Births(tmp_path)
    assert list(register.containers()) == [container(1), container(2)]
    assert register.groups([7, 8]) == {7: GroupBirth(7, 100, "/docker/x", "runc")}


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    register = Births(tmp_path)
    register.write([container(1)])
    with (tmp_path / "births.jsonl").open("ab") as file:
        file.write(b'["c","' + container(2).id.encode()[:30])
    register.write([container(3)])

    assert list(register.containers()) == [container(1), container(3)]


def test_it_never_outgrows_its_bound_and_forgets_the_oldest(tmp_path: Path) -> None:
    register = Births(tmp_path, largest=10_000)
    for number in range(2_000):
        register.write([container(number)])

    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 20_200
    kept = [birth.at for birth in register.containers()]
    assert kept == list(range(kept[0], 2_000))
    assert kept[0] > 0


def test_a_place_that_cannot_be_written_is_said_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    register = Births(tmp_path / "file")

    register.write([container(1)])

    assert "cannot keep births" in register.trouble
    assert list(register.containers()) == []
