"""The audit's decision: what to do with each unit a host of this shape would start, and why.

    unit + how it is started + can it loop + what each turn leaves + what it lacks + which gate holds it + rules
        -> keep, disable, mask or fix, with reasons

Rules and shapes are data. A rule knows a kind of unit and the facilities it cannot work without (a cluster to join, a
control plane to ask); a shape is a kind of host and the facilities it offers. A unit whose rule needs what the shape
does not offer cannot work there, whatever else is in order.

Masked is what a package upgrade must not bring back: units from packages that loop for ever or leave something at each
turn. The rest is disabled. A unit that is merely held back by a condition today is judged as if it were not: the day
somebody repairs the condition, it starts.
"""

from __future__ import annotations

import fnmatch
from enum import StrEnum

import msgspec

from sexton.core.endless import Endless, Leak, Loop
from sexton.core.installed import Reached, Unit
from sexton.core.unitfile import commands


class Verdict(StrEnum):
    KEEP = "keep"
    DISABLE = "disable"
    MASK = "mask"
    FIX = "fix"


class ConfigNeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration file a unit reads, and a word it must hold to be of any use."""

    path: str
    holds: str = ""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a kind of unit. It applies to units of these names, or whose commands match ``runs``."""

    name: str
    what: str
    units: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    config: tuple[ConfigNeed, ...] = ()
    loops_inside: str = ""
    leaks: str = ""
    terminal_exit: int | None = None
    why: str = ""
    verdict: Verdict | None = None


class Facility(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something outside the unit that it cannot work without."""

    name: str
    what: str


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of host: what it offers, which units it is there for, and which must never run on it."""

    name: str
    what: str
    offers: tuple[str, ...] = ()
    expects: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    facility: tuple[Facility, ...] = ()
    rule: tuple[Rule, ...] = ()


class Lack(msgspec.Struct, frozen=True):
    """Something a unit needs that is not there."""

    what: str
    where: str = ""

    @property
    def says(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


class Gate(msgspec.Struct, frozen=True):
    """A condition or assertion; ``met`` is None when files cannot tell."""

    what: str
    met: bool | None
    where: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read about one unit beside its own settings."""

    loop: Loop
    leaks: tuple[Leak, ...] = ()
    lacks: tuple[Lack, ...] = ()
    gates: tuple[Gate, ...] = ()
    # Of the rule that applies: what its configuration files were found to be.
    config: tuple[Lack, ...] = ()


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one unit."""

    name: str
    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    loop: Loop
    leaks: tuple[str, ...]
    lacks: tuple[str, ...]
    gates: tuple[Gate, ...]
    rule: str = ""

    @property
    def loops_for_ever(self) -> bool:
        return self.loop.endless is Endless.FOREVER

    @property
    def cannot_work(self) -> bool:
        return bool(self.lacks)


def rule_for(unit: Unit, rules: tuple[Rule, ...]) -> Rule | None:
    """The first rule that knows this unit; users' rules stand before the shipped ones."""
    names = (unit.name, *unit.aliases)
    texts = [" ".join(command.words) for command in commands(unit.settings)]
    for rule in rules:
        if any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in rule.units):
            return rule
        if any(fnmatch.fnmatchcase(text, pattern) for text in texts for pattern in rule.runs):
            return rule
    return None


def matches(unit: Unit, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (unit.name, *unit.aliases) for pattern in patterns)


def assess(reached: Reached, facts: Facts, shape: Shape, rule: Rule | None, facilities: dict[str, str]) -> Assessment:
    """Judge one unit."""
    unit = reached.unit
    expected = matches(unit, shape.expects)
    refused = matches(unit, shape.refuses)
    missing = tuple(need for need in (rule.needs if rule else ()) if need not in shape.offers)
    loop, leaking = _as_the_rule_knows(facts, rule)
    lacks = tuple(f"no {facilities.get(need, need)} on {shape.what}" for need in missing)
    lacks += tuple(lack.says for lack in facts.lacks)
    if missing:
        lacks += tuple(lack.says for lack in facts.config)
    held = any(gate.met is False for gate in facts.gates)
    doubtful = any(gate.met is None for gate in facts.gates)
    endless = loop.endless is Endless.FOREVER
    from_package = not unit.fragment.startswith("/etc/")
    banish = Verdict.MASK if from_package and (endless or leaking) else Verdict.DISABLE
    notes = []
    reasons: list[str] = []
    verdict = Verdict.KEEP
    if unit.mask:
        notes.append(f"masked by {unit.mask}")
    elif refused:
        verdict = banish
        reasons.append(f"{shape.what} must not run it")
    elif missing and not expected:
        verdict = rule.verdict if rule is not None and rule.verdict is not None else banish
        reasons.append("loops for ever, cannot work here" if endless else "cannot work here")
    elif facts.lacks and not held and not expected and (endless or not doubtful):
        verdict = banish if endless else Verdict.FIX
        reasons.append("loops for ever, cannot work here" if endless else "fails at each start")
    elif facts.lacks and not held and not doubtful:
        verdict = Verdict.FIX
        reasons.append(f"{shape.what} is there for it, and it cannot start")
    elif endless and leaking and not expected:
        verdict = Verdict.FIX
        reasons.append("can loop for ever, and each turn leaves something behind")
    if verdict is not Verdict.KEEP:
        reasons += _because(rule, loop, leaking, lacks)
        if held:
            gate = next(gate for gate in facts.gates if gate.met is False)
            notes.append(f"held back today by {gate.what} alone: it starts the day that is repaired")
    else:
        if held and not unit.mask:
            gate = next(gate for gate in facts.gates if gate.met is False)
            notes.append(f"not started: {gate.what} is not met")
        if expected:
            notes.append(f"{shape.what} is there for it")
        if endless and leaking:
            notes.append("if it fails it loops for ever, and each turn leaves something behind")
        if rule is not None and endless and rule.terminal_exit is not None and "not after status" not in loop.why:
            notes.append(f"a drop-in with RestartPreventExitStatus={rule.terminal_exit} would end its hopeless turns")
    return Assessment(
        name=unit.name,
        verdict=verdict,
        reasons=tuple(reasons),
        notes=tuple(notes),
        loop=loop,
        leaks=leaking,
        lacks=lacks,
        gates=facts.gates,
        rule=rule.name if rule else "",
    )


def _as_the_rule_knows(facts: Facts, rule: Rule | None) -> tuple[Loop, tuple[str, ...]]:
    """A rule may know what no unit file says: a loop inside the program, and what its turns leave."""
    loop = facts.loop
    if rule is not None and rule.loops_inside and loop.endless is not Endless.FOREVER:
        loop = Loop(Endless.FOREVER, rule.loops_inside)
    leaking = tuple(leak.says for leak in facts.leaks)
    if rule is not None and rule.leaks:
        leaking = (*leaking, rule.leaks)
    return loop, leaking


def _because(rule: Rule | None, loop: Loop, leaking: tuple[str, ...], lacks: tuple[str, ...]) -> list[str]:
    said = [f"lacks: {lack}" for lack in lacks]
    if loop.endless is Endless.FOREVER:
        said.append(f"loops: {loop.why}")
        if rule is not None and rule.loops_inside and rule.loops_inside != loop.why:
            said.append(f"loops: {rule.loops_inside}")
    said += [f"leaves: {leak}" for leak in leaking]
    if rule is not None and rule.why:
        said.append(rule.why)
    return said
