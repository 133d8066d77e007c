"""Rules and shapes from TOML: those that ship, and a user's own.

A shape is a shipped one's name or a file. A file may bring rules and facilities along; further files of rules may be
named. A user's rule stands before the shipped ones, so it can also overrule one.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from sexton.core.audit import Facility, Rule, Shape

T = TypeVar("T")

# In the order in which they are offered.
SHIPPED = ("ecs", "kubernetes", "ray", "plain")


class BadRules(Exception):  # noqa: N818 - the message is for a person
    """A file of rules or a shape that cannot be used."""


class RuleFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    facility: tuple[Facility, ...] = ()
    rule: tuple[Rule, ...] = ()


class Rulebook(msgspec.Struct, frozen=True, kw_only=True):
    """One shape, and all rules in the order in which they are tried."""

    shape: Shape
    rules: tuple[Rule, ...]
    facilities: dict[str, str]


def open_rulebook(shape: str, rule_files: tuple[Path, ...] = ()) -> Rulebook:
    """For this shape. BadRules with the file, the place in it and what is allowed."""
    chosen = _shape(shape)
    shipped = _convert(_data("rules.toml"), "the shipped rules", RuleFile)
    own = [_convert(_read(path), str(path), RuleFile) for path in rule_files]
    facilities = (*shipped.facility, *(facility for file in own for facility in file.facility), *chosen.facility)
    rules = (*(rule for file in own for rule in file.rule), *chosen.rule, *shipped.rule)
    known = {facility.name: facility.what for facility in facilities}
    for rule in rules:
        if not rule.units and not rule.runs:
            raise BadRules(f"cannot use the rule '{rule.name}': it names neither units nor runs")
        if unknown := [need for need in rule.needs if need not in known]:
            raise BadRules(
                f"cannot use the rule '{rule.name}': it needs '{unknown[0]}', which no [[facility]] describes"
            )
    if unknown_offers := [offer for offer in chosen.offers if offer not in known]:
        raise BadRules(
            f"cannot use the shape '{chosen.name}': it offers '{unknown_offers[0]}', which no [[facility]] describes"
        )
    return Rulebook(shape=chosen, rules=rules, facilities=known)


def _shape(shape: str) -> Shape:
    if shape in SHIPPED:
        return _convert(_data(f"shapes/{shape}.toml"), f"the shape {shape}", Shape)
    path = Path(shape)
    if not path.is_file():
        raise BadRules(f"cannot use the shape '{shape}': say {', '.join(SHIPPED)} or the path of a shape file")
    return _convert(_read(path), shape, Shape)


def _data(name: str) -> str:
    return (resources.files("sexton.care.audit") / "data" / name).read_text("utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRules(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None


def _convert(text: str, name: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadRules(f"cannot use {name}: {error}") from None
