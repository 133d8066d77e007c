"""Can it loop for ever, and what does each turn leave: told from the unit's settings."""

from __future__ import annotations

import pytest

from sexton.core.endless import Endless, can_loop, leaks
from sexton.core.installed import Defaults, Unit
from sexton.core.unitfile import Settings, parse
from unitroot import BASE, ECS_AGENT, ECS_AGENT_RPM


def unit(text: str, name: str = "x.service") -> Unit:
    return Unit(name=name, fragment=f"/usr/lib/systemd/system/{name}", settings=Settings(parse(text, "/x")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Service]\nExecStart=/bin/x\n", Endless.NO),
        ("[Service]\nRestart=always\n", Endless.LIMITED),  # 5 x 0.1 s is well within 10 s
        ("[Service]\nRestart=always\nRestartSec=2\n", Endless.FOREVER),  # 5 x 2 s just misses the 10 s
        ("[Service]\nRestart=always\nRestartSec=1900ms\n", Endless.LIMITED),
        ("[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=on-failure\n", Endless.FOREVER),
        ("[Unit]\nStartLimitBurst=0\n[Service]\nRestart=on-failure\n", Endless.FOREVER),
        ("[Unit]\nStartLimitIntervalSec=5min\n[Service]\nRestart=always\nRestartSec=5\n", Endless.LIMITED),
        # The older names, where they used to stand.
        ("[Service]\nRestart=always\nRestartSec=5\nStartLimitInterval=5min\nStartLimitBurst=3\n", Endless.LIMITED),
        (ECS_AGENT, Endless.FOREVER),
        (BASE["docker.service"], Endless.LIMITED),
    ],
)
def test_verdicts(text, expected):
    assert can_loop(unit(text), Defaults()).endless is expected


def test_the_managers_own_defaults_count():
    looper = unit("[Service]\nRestart=always\n")

    assert can_loop(looper, Defaults(restart_sec=3.0)).endless is Endless.FOREVER
    assert can_loop(looper, Defaults(limit_interval=0.0)).endless is Endless.FOREVER


def test_what_is_no_service_does_not_loop():
    assert can_loop(unit("[Service]\nRestart=always\nRestartSec=9\n", "x.timer"), Defaults()).endless is Endless.NO


def test_the_reason_names_the_figures_and_what_is_excepted():
    why = can_loop(unit(ECS_AGENT_RPM), Defaults()).why

    assert "Restart=on-failure, RestartSec=10 s, 5 starts in 10 s" in why
    assert "never trips" in why
    assert "not after status 5" in why


@pytest.mark.parametrize(
    ("command", "client", "paths"),
    [
        ("/usr/bin/docker run --rm -v /var/log/app:/log -v data:/data img", "docker", ("/var/log/app",)),
        ("/usr/bin/podman run --volume=/srv:/srv img", "podman", ("/srv",)),
        ("/usr/bin/docker run --mount type=bind,source=/etc/app,target=/etc img", "docker", ("/etc/app",)),
        ("/bin/sh -c 'docker rm -f x; exec docker run --name x img'", "docker", ()),
        ("/usr/bin/nerdctl compose up", "nerdctl", ()),
        ("/usr/libexec/amazon-ecs-init start", "amazon-ecs-init", ()),
        ("/usr/bin/env FOO=1 docker start app", "docker", ()),
    ],
)
def test_commands_that_make_containers(command, client, paths):
    (leak,) = leaks(unit(f"[Service]\nExecStart={command}\n"))

    assert (leak.client, leak.host_paths) == (client, paths)


@pytest.mark.parametrize(
    "command",
    [
        "/usr/sbin/dockerd -H fd://",
        "/usr/bin/docker ps",
        "/usr/bin/docker-proxy run",
        "/bin/echo docker run",
        "/bin/true",
    ],
)
def test_commands_that_make_none(command):
    assert leaks(unit(f"[Service]\nExecStart={command}\n")) == ()
