"""Placement constraints: where a task may go at all.

In flow the constraints of a request and of a task definition, as the API carries them; out comes one ``Rules`` value
that hosts are measured against, or a ``RuleError`` whose text is the answer to the caller. Several constraints must
all hold, wherever they come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sexton.core import query
from sexton.core.query import Query, QueryError, Subject
from sexton.wire import ecs
from sexton.wire.ecs import PlacementConstraintType

# The API's own limit for a task, its definition's constraints included.
MOST_CONSTRAINTS = 10


class RuleError(ValueError):
    """A constraint or strategy that cannot be followed; the text says which and why."""


class Rules(msgspec.Struct, frozen=True):
    """``distinct``: no two tasks of the group on one host. ``queries``: what every host must be."""

    queries: tuple[Query, ...] = ()
    distinct: bool = False

    def unmet(self, subject: Subject) -> str:
        """The part of the first expression that the host fails; empty when it matches all."""
        for one in self.queries:
            if not one.matches(subject):
                return one.mismatch(subject)
        return ""


ANYWHERE = Rules()


def of_request(
    given: Sequence[ecs.PlacementConstraint] | None,
    definition: Sequence[ecs.TaskDefinitionPlacementConstraint] | None = None,
) -> Rules:
    """The rules of a task or service: its own constraints and those of its definition."""
    if len(given or ()) + len(definition or ()) > MOST_CONSTRAINTS:
        raise RuleError(
            f"cannot use more than {MOST_CONSTRAINTS} placement constraints, those of the task definition included"
        )
    queries = list(of_definition(definition).queries)
    distinct = False
    for index, one in enumerate(given or ()):
        where = f"placementConstraints[{index}]"
        if one.type == PlacementConstraintType.DISTINCT_INSTANCE:
            if one.expression is not None:
                raise RuleError("distinctInstance expression should not be specified.")
            distinct = True
        elif one.type == PlacementConstraintType.MEMBER_OF:
            queries.append(_read(one.expression, where))
        else:
            raise RuleError(f"cannot use {where}: type must be distinctInstance or memberOf, not '{one.type or ''}'")
    return Rules(_unique(queries), distinct)


def of_definition(given: Sequence[ecs.TaskDefinitionPlacementConstraint] | None) -> Rules:
    """The rules of a task definition, which knows ``memberOf`` only."""
    if len(given or ()) > MOST_CONSTRAINTS:
        raise RuleError(f"cannot use more than {MOST_CONSTRAINTS} placement constraints in a task definition")
    queries = []
    for index, one in enumerate(given or ()):
        if one.type != PlacementConstraintType.MEMBER_OF:
            raise RuleError(f"constraint.type '{one.type or ''}' is not supported.")
        queries.append(_read(one.expression, f"the task definition's placementConstraints[{index}]"))
    return Rules(_unique(queries))


def _read(expression: str | None, where: str) -> Query:
    if not expression:
        raise RuleError(f"cannot use {where}: memberOf needs an expression, such as attribute:stack == prod")
    try:
        return query.read(expression)
    except QueryError as error:
        raise RuleError(f"cannot use {where}: {error}") from error


def _unique(queries: Sequence[Query]) -> tuple[Query, ...]:
    return tuple(dict.fromkeys(queries))
