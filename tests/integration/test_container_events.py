"""A real systemd with a unit that stays up while the containers it asks a real engine for die young: the unit is named
while its restart counter stays 0, and its zombies are traced back to it after the containers are long gone."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from images import IMAGE, build_busybox
from sexton.care.attribution import attribute
from sexton.care.births import Births
from sexton.care.probe import Looked, NotPresent, Outcome, Scene
from sexton.care.probes import containers
from sexton.core.finding import Finding
from sexton.host.cgroup import census
from sexton.host.memcg_walk import walk
from systemd import FIRST_BOOT_TIMEOUT, Systemd

pytestmark = [pytest.mark.docker, pytest.mark.timeout(FIRST_BOOT_TIMEOUT)]

DEADLINE = 30.0

# What the shipped agent does without credentials: makes its container, waits for its end, removes it, tries again.
AGENT = r"""
use strict; use IO::Socket::UNIX;
my ($image, $data) = @ARGV;
my $engine = IO::Socket::UNIX->new(Peer => "/run/docker.sock") or die;
sub ask {
    my ($what, $body) = @_;
    my $head = "$what HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n";
    print $engine $head . "Content-Length: " . length($body) . "\r\n\r\n$body";
    $engine->flush;
    my ($length, $chunked, $answer) = (0, 0, "");
    while (my $line = <$engine>) {
        last if $line eq "\r\n";
        $length = $1 if $line =~ /^Content-Length: (\d+)/i;
        $chunked = 1 if $line =~ /^Transfer-Encoding: chunked/i;
    }
    if ($chunked) {
        while (my $size = hex(<$engine>)) { read($engine, my $part, $size); $answer .= $part; <$engine>; }
        <$engine>;
    } elsif ($length) { read($engine, $answer, $length); }
    return $answer;
}
for (my $turn = 1; ; $turn++) {
    my $body = qq({"Image":"$image","Cmd":["sh","-c","echo x > /data/state-$turn; exit 1"],)
        . qq("HostConfig":{"NetworkMode":"none","Binds":["$data:/data"]}});
    my ($id) = ask("POST /containers/create?name=turning-$turn", $body) =~ /"Id":"([0-9a-f]+)"/;
    ask("POST /containers/$id/start", "");
    ask("POST /containers/$id/wait", "");
    ask("DELETE /containers/$id", "");
    select(undef, undef, undef, 0.3);
}
"""


@pytest.fixture(scope="module")
def compiled() -> None:
    script = Path(__file__).parents[2] / "scripts/build_bpf.sh"
    subprocess.run([script, "--must"], check=True, capture_output=True)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A directory of the host's that containers mount; what they touch there first keeps their groups as zombies."""
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", data], check=True)
    yield data
    subprocess.run(["umount", data], check=True)


class Told:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def finding(self, fingerprint: str) -> Finding | None:
        last = self.outcomes[-1] if self.outcomes else None
        found = last.findings if isinstance(last, Looked) else ()
        return next((finding for finding in found if finding.fingerprint.startswith(fingerprint)), None)


async def test_the_unit_behind_young_dying_containers_is_named_and_so_are_its_zombies(
    tmp_path: Path, data: Path, compiled: None
) -> None:
    (tmp_path / "systemd").mkdir()
    keep = tmp_path / "keep"
    told = Told()
    unit = "[Service]\nRestart=on-failure\nExecStart=/usr/bin/perl /run/systemd/system/agent.pl {} {}\n"
    image = IMAGE
    files = {"ecs.service": unit.format(image, data), "agent.pl": AGENT}
    with Systemd(files, tmp_path / "systemd") as systemd:
        socket = f"unix://{systemd.root}/run/docker.sock"
        with PrivateEngine(tmp_path / "engine", options=("--host", socket)) as engine:
            build_busybox(engine.url)
            scene = Scene(root=systemd.root, docker_host=socket, now=time.time(), uptime=None, keep=keep)
            task = asyncio.create_task(containers.watch(scene, told))
            await asyncio.to_thread(systemd.systemctl, "start", "--no-block", "ecs.service")
            deadline = time.monotonic() + DEADLINE
            while told.finding("unit-loop/ecs.service") is None or told.finding("container-loop/") is None:
                assert time.monotonic() < deadline, told.outcomes[-1:]
                await asyncio.sleep(0.05)
            loop, kind = told.finding("unit-loop/ecs.service"), told.finding("container-loop/")
            counter = systemd.systemctl("show", "ecs.service", "-p", "NRestarts", "--value").stdout.strip()
            await asyncio.to_thread(systemd.systemctl, "stop", "ecs.service")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            groups = [g for g in walk(census(Path("/")).tracked).groups if g.dead and engine.name in g.path]
            before = attribute(systemd.root, groups, tmp_path / "no register")
            after = attribute(systemd.root, groups, keep)

    assert loop is not None
    assert kind is not None
    assert counter == "0"
    evidence = {item.what: item.value for item in loop.evidence}
    assert evidence["shape"].startswith("it loops inside")
    assert int(evidence["turns"].split()[0]) <= 8  # three, and what a loaded machine adds until it is told
    assert evidence["makes"] == f"containers of image {image}"
    asked = {item.what: item.value for item in kind.evidence}["asked for by"]
    assert asked.startswith("ecs.service: its process named the container to the engine")
    dead = {group.path.rpartition("/")[2] for group in groups}
    births = [birth for birth in Births(keep).containers() if birth.id in dead]
    assert {birth.image for birth in births} == {image}
    # Before the register was written, nobody can say more than where; with it, who.
    assert [(origin.image, origin.unit) for origin in before] == [("", "")]
    assert after[0].unit == "ecs.service"
    assert sum(origin.zombies for origin in after if origin.image == image) == len(groups) >= 3
    assert "asked for by ecs.service" in after[0].says


async def test_without_an_engine_nothing_is_claimed(tmp_path: Path) -> None:
    told = Told()

    await containers.watch(
        Scene(root=tmp_path, docker_host=f"unix://{tmp_path}/no.sock", now=time.time(), uptime=None), told
    )

    assert isinstance(told.outcomes[-1], NotPresent)
