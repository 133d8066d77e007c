"""Decisions about images: whether to ask a registry, and which digest of an image is the reference's own.

default         always asks; an image that is here will do when the registry fails
always          always asks; a failure ends the task
once            asks unless this agent pulled the name before; a failure ends the task
prefer-cached   asks only for what is not here
"""

from __future__ import annotations

from collections.abc import Iterable


def asks_registry(behaviour: str, *, here: bool, pulled_before: bool) -> bool:
    """Whether a registry is asked for an image that is ``here`` or not."""
    match behaviour:
        case "once":
            return not (here and pulled_before)
        case "prefer-cached":
            return not here
        case _:
            return True


def failure_ends_task(behaviour: str) -> bool:
    """Whether a pull that fails is the end of the task, whatever is on the host."""
    return behaviour in ("always", "once")


def split_reference(ref: str) -> tuple[str, str]:
    """Repository, and the digest that a reference may carry."""
    name, _, digest = ref.partition("@")
    repository, colon, tag = name.rpartition(":")
    return (repository if colon and "/" not in tag else name), digest


def digest_of(digests: Iterable[str], ref: str) -> str:
    """The digest under which a reference's own repository knows an image, from all ``repository@digest`` it has."""
    repository, _ = split_reference(ref)
    for one in digests:
        known_as, _, digest = one.partition("@")
        if known_as == repository or known_as.endswith("/" + repository):
            return digest
    return ""
