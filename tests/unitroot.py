"""Small root file systems of unit files for tests of the audit: made in a directory, booted by nobody.

``ECS_AGENT`` is a stand-in for the agent's unit as Debian and Ubuntu get it: what matters for a loop is the same
(restart on failure after ten seconds, a start limit that this delay keeps out of reach, no exit status that ends it),
the text is ours. ``ECS_AGENT_RPM`` differs from it in the one line that lets a hopeless agent stay down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

VENDOR = "usr/lib/systemd/system"
ADMIN = "etc/systemd/system"

ECS_AGENT = """
[Unit]
Description=Stand-in for the agent of Amazon ECS
After=docker.service cloud-final.service
Requires=docker.service

[Service]
Type=simple
Restart=on-failure
RestartSec=10s
EnvironmentFile=-/etc/ecs/ecs.config
ExecStartPre=/usr/libexec/amazon-ecs-init pre-start
ExecStart=/usr/libexec/amazon-ecs-init start
ExecStop=/usr/libexec/amazon-ecs-init stop

[Install]
WantedBy=multi-user.target
"""
ECS_AGENT_RPM = ECS_AGENT.replace("RestartSec=10s", "RestartSec=10s\nRestartPreventExitStatus=5")

BASE = {
    "graphical.target": "[Unit]\nRequires=multi-user.target\n",
    "multi-user.target": "[Unit]\nRequires=basic.target\n",
    "basic.target": "[Unit]\nWants=timers.target sockets.target paths.target\n",
    "timers.target": "[Unit]\n",
    "sockets.target": "[Unit]\n",
    "paths.target": "[Unit]\n",
    "docker.service": (
        "[Unit]\n[Service]\nExecStart=/usr/sbin/dockerd\nRestart=always\nRestartSec=2\n"
        "StartLimitBurst=3\nStartLimitInterval=60s\n[Install]\nWantedBy=multi-user.target\n"
    ),
}
PROGRAMS = ("usr/libexec/amazon-ecs-init", "usr/sbin/dockerd", "usr/bin/true", "bin/true")


def make_root(
    top: Path,
    units: Mapping[str, str] = {},
    *,
    enabled: Iterable[str] = (),
    files: Mapping[str, str] = {},
    links: Mapping[str, str] = {},
) -> Path:
    """A root with the base units; ``units`` without a directory in their name are a package's; ``enabled`` get a link
    from multi-user.target; the files and links are given below the root."""
    for name, text in {**BASE, **units}.items():
        path = top / (name if "/" in name else f"{VENDOR}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in PROGRAMS:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    all_links = {f"{VENDOR}/default.target": "graphical.target", **links}
    for name in enabled:
        file = f"{name.partition('@')[0]}@.service" if "@" in name else name
        all_links[f"{ADMIN}/multi-user.target.wants/{name}"] = f"/{VENDOR}/{file}"
    for name, target in all_links.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return top


def ecs_root(top: Path, agent: str = ECS_AGENT) -> Path:
    """A vendor's image: Docker, and the agent of a cluster nobody here has."""
    return make_root(
        top, {"ecs.service": agent}, enabled=["docker.service", "ecs.service"], files={"etc/ecs/ecs.config": ""}
    )
