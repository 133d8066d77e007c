"""An image reference in its parts: "registry:5000/team/app:1" names a repository and a tag, "app@sha256:..." a digest.

A colon is a port when a slash follows it and begins the tag otherwise. Where both a tag and a digest are given the
digest decides, as in engines.
"""

from __future__ import annotations


def repository_and_tag(ref: str) -> tuple[str, str]:
    """Repository and tag or digest. A tag is always given: without one, engines pull every tag there is."""
    name, at, digest = ref.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, "latest"
    return (repository, digest) if at else (repository, tag)
