"""IAM's decision: may this request be made, by what the policies of a role say?

    a Deny that applies -> no, whatever else is said
    an Allow that applies, to every resource of the request -> yes
    nothing that applies -> no

A request names one action, the resources that it touches, and its condition keys. A resource may be known by several
ARNs, where a service spells it in more than one way; a statement that names any of them means it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from sexton.core.iam_document import ALLOW, DENY, Policy, Statement
from sexton.core.iam_pattern import Pattern, Values

Resource = tuple[str, ...]
"""The ARNs of one resource, the usual one first; ``("*",)`` for an action that touches none."""

ANYTHING: Resource = ("*",)


class Request(NamedTuple):
    """What is asked for. ``values`` are the condition keys in lower case."""

    action: str
    resources: tuple[Resource, ...] = (ANYTHING,)
    values: Values = {}


class Verdict(StrEnum):
    """How a decision came about."""

    ALLOWED = "allowed"
    DENIED = "explicitly denied"
    NOT_ALLOWED = "not allowed by any statement"


class Decision(NamedTuple):
    """The answer, the resource that it is about, and the statement that decided, if one did."""

    verdict: Verdict
    resource: str = ""
    statement: Statement | None = None

    @property
    def allowed(self) -> bool:
        return self.verdict is Verdict.ALLOWED


def keys(found: Mapping[str, str | Sequence[str] | None]) -> dict[str, tuple[str, ...]]:
    """Condition keys as a request carries them; one without a value is not there."""
    return {
        name.lower(): (value,) if isinstance(value, str) else tuple(value)
        for name, value in found.items()
        if value is not None
    }


def decide(policies: Sequence[Policy], request: Request) -> Decision:
    """Whether the policies of one role, taken together, allow a request."""
    statements = [one for policy in policies for one in policy.statements]
    meant = [one for one in statements if _acts(one, request)]
    allowed: Decision | None = None
    refused: Decision | None = None
    for resource in request.resources or (ANYTHING,):
        touching = [one for one in meant if _touches(one, resource, request.values)]
        denial = _first(touching, DENY)
        if denial is not None:
            return Decision(Verdict.DENIED, resource[0], denial)
        permission = _first(touching, ALLOW)
        if permission is None:
            refused = refused or Decision(Verdict.NOT_ALLOWED, resource[0])
        else:
            allowed = allowed or Decision(Verdict.ALLOWED, resource[0], permission)
    return refused or allowed or Decision(Verdict.NOT_ALLOWED)


def _first(statements: Sequence[Statement], effect: str) -> Statement | None:
    return next((one for one in statements if one.effect == effect), None)


def _acts(statement: Statement, request: Request) -> bool:
    """Whether the statement speaks of the action, and its conditions hold."""
    named = statement.actions or statement.not_actions
    found = any(one.matches(request.action, request.values, any_case=True) for one in named)
    return found == bool(statement.actions) and all(one.holds(request.values) for one in statement.conditions)


def _touches(statement: Statement, resource: Resource, values: Values) -> bool:
    if statement.resources:
        return any(_names(one, resource, values) for one in statement.resources)
    if statement.effect == ALLOW and any(one.fill(values) is None for one in statement.not_resources):
        return False  # what is left out cannot be told, so nothing is given
    return not any(_names(one, resource, values) for one in statement.not_resources)


def _names(wanted: Pattern, resource: Resource, values: Values) -> bool:
    """Whether a resource of the policy means this one. An action without resources is met by ``*`` alone."""
    return any(wanted.matches(one, values) for one in resource)
