"""Reasons of containers and tasks as the wire spells them: ``<ErrorName>: text``.

The engine's or the registry's own words follow the name; where they are known to mislead, a sentence before them says
what to check.
"""

from __future__ import annotations

import re

# What the wire calls the state that a step was to reach.
MANIFEST = "MANIFEST_PULLED"
PULL_BEGIN = "pullBegin"
PULLED = "pulled"
CREATED = "created"
STARTED = "started"
STOPPED = "stopped"

_LAYER_URL = re.compile(r"https[^\s\"']*starport-layer-bucket[^\s\"']*")


def timed_out(state: str, seconds: float) -> str:
    """An engine that took a call and did not answer it in its time."""
    return f"DockerTimeoutError: Could not transition to {state}; timed out after waiting {duration(seconds)}"


def duration(seconds: float) -> str:
    """A time as Go writes it: 4m0s, 30s, 1h0m0s, 1.5s."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60 + (seconds - whole)
    text = f"{rest:g}s"
    if whole >= 60:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def pull_failed(text: str, image: str, name: str = "CannotPullContainerError") -> str:
    """What a registry or the engine said about a pull, with what to check put before it where that is known."""
    text = _LAYER_URL.sub(f"REDACTED ECR URL related to {image}", text)
    return f"{name}: {_advice(text, image)}{text}"


def _advice(text: str, image: str) -> str:
    if "ecr:BatchGetImage" in text and "not authorized" in text:
        return f"The role may not read {image} from its ECR repository, check role permissions. "
    if "requested access to the resource is denied" in text:
        return f"The image {image} is not to be had from its registry, check whether the image exists. "
    if "request canceled while waiting for connection" in text:
        return f"The registry of {image} does not answer this host, check network configuration. "
    return ""
