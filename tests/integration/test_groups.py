"""Security groups between running tasks, on one host and on two: what passes is what the groups say, and nothing else.

Three tasks live through all of it, ``one`` and ``two`` on the first host and ``far`` on the second. Each configuration
of their groups is tried with every kind of exchange in every direction: what is listed passes, the rest is refused.
Configurations follow each other on the same tasks, so each is also a change of rules under tasks that run.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from images import IMAGE
from nethosts import Host, Lab
from node import NodeFailed, until
from sexton.cli.app import app
from sites import KINDS, Probe, Site, begun, exchange

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

NAMES = ("one", "two", "far")
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]
PROBES = [Probe(a, b, kind) for a, b in PAIRS for kind in KINDS]
FOUR = tuple(kind for kind in KINDS if kind != "s80")
ANY4, ANY6 = "0.0.0.0/0", "::/0"
OUT = (("-1", None, ANY4), ("-1", None, ANY6))
Rule = tuple[str, Any, str]


class Setting(NamedTuple):
    """Rules by group, and groups by task where they are not just its own; and what passes."""

    passes: list[str]
    ingress: dict[str, tuple[Rule, ...]] = {}
    egress: dict[str, tuple[Rule, ...]] = {}
    groups: dict[str, tuple[str, ...]] = {}


def every(*pairs: str, kinds: tuple[str, ...] = KINDS) -> list[str]:
    return [f"{pair} {kind}" for pair in pairs for kind in kinds]


ALL4, ALL6 = ("-1", None, ANY4), ("-1", None, ANY6)
OPEN, OPEN4 = (ALL4, ALL6), (ALL4,)
PINGS = (("icmp", (8, -1), ANY4),)
EACH = tuple(f"{a}>{b}" for a, b in PAIRS)

# A task's name with a length of bits is its address. Nothing is let in and everything out where nothing is said.
SETTINGS = {
    "nothing in, everything out": Setting([]),
    "one address": Setting(["one>two t80"], {"two": (("tcp", 80, "one/32"),)}),
    "one address, over hosts": Setting(
        ["one>far t80", "far>one u53"], {"far": (("tcp", 80, "one/32"),), "one": (("udp", 53, "far/32"),)}
    ),
    "ports from a subnet": Setting(
        every("one>two", "far>two", kinds=("t80", "t81")), {"two": (("tcp", (80, 81), "SUBNET"),)}
    ),
    "a source group in both protocols": Setting(["one>far t80", "one>far s80"], {"far": (("tcp", 80, "sg:one"),)}),
    "a group lets its own members in": Setting(
        every("one>far", "far>one"),
        {"extra": (("-1", None, "sg:extra"),)},
        groups={"one": ("one", "extra"), "far": ("far", "extra")},
    ),
    "several groups together": Setting(
        ["one>two u53", "far>two u53", "one>two s80", "far>two s80"],
        {"two": (("udp", 53, ANY4),), "extra": (("tcp", 80, ANY6),)},
        groups={"two": ("two", "extra")},
    ),
    "one address of IPv6": Setting(["one>far s80"], {"far": (("tcp", 80, "one/128"),)}),
    "nothing out": Setting(every("two>far", "far>two"), {"two": OPEN, "far": OPEN}, {"one": ()}),
    "out to one address": Setting(
        ["one>far t80", *every("two>far", "far>two", kinds=FOUR)],
        {"two": OPEN4, "far": OPEN4},
        {"one": (("tcp", 80, "far/32"),)},
    ),
    "out to a group": Setting(
        ["one>two u53", *every("far>two", kinds=FOUR)], {"two": OPEN4}, {"one": (("udp", 53, "sg:two"),)}
    ),
    "pings only": Setting(every(*EACH, kinds=("ping",)), dict.fromkeys(NAMES, PINGS)),
    "wider and narrower blocks": Setting(
        ["one>two t80", "one>two t81", "far>two t80"], {"two": (("tcp", 80, ANY4), ("tcp", 81, "one/32"))}
    ),
    "all ports of one protocol": Setting(
        every("one>far", "two>far", kinds=("u53",)), {"far": (("udp", (0, 65535), ANY4),)}
    ),
    "everything": Setting(every(*EACH), dict.fromkeys(NAMES, OPEN)),
    "other groups on a running task": Setting(
        ["one>two t81"],
        {"two": (("tcp", 80, ANY4),), "extra": (("tcp", 81, "one/32"),)},
        groups={"two": ("extra",)},
    ),
}


class World:
    """The lab, its network, and three tasks."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ecs, self.ec2 = lab.client("ecs"), lab.client("ec2")
        vpc = self.ec2.create_vpc(CidrBlock="10.40.0.0/16", AmazonProvidedIpv6CidrBlock=True)["Vpc"]
        self.vpc = vpc["VpcId"]
        block6 = vpc["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"].replace("/56", "/64")
        self.subnet = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.40.1.0/24", Ipv6CidrBlock=block6)["Subnet"][
            "SubnetId"
        ]
        self.group = {
            name: self.ec2.create_security_group(GroupName=name, Description=name, VpcId=self.vpc)["GroupId"]
            for name in (*NAMES, "extra")
        }
        command = ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]
        container = {"name": "main", "image": IMAGE, "memory": 16, "cpu": 1, "command": command}
        self.ecs.register_task_definition(family="site", networkMode="awsvpc", containerDefinitions=[container])
        self.tasks: dict[str, str] = {}
        self.interface: dict[str, str] = {}
        self.sites: dict[str, Site] = {}

    def host(self, name: str) -> Host:
        return self.lab.hosts[1 if name == "far" else 0]

    def start(self) -> None:
        """Start the tasks anew."""
        self.leave()
        for name in NAMES:
            network = {"awsvpcConfiguration": {"subnets": [self.subnet], "securityGroups": [self.group[name]]}}
            answer = self.ecs.start_task(
                taskDefinition="site", containerInstances=[self.host(name).instance], networkConfiguration=network
            )
            assert not answer["failures"], answer["failures"]
            self.tasks[name] = answer["tasks"][0]["taskArn"]
        try:
            until(self._running, "all tasks run", 60)
        except NodeFailed as error:
            raise NodeFailed(f"{error}: {self._statuses()}\n{self.lab.hosts[0].agent.log[-3000:]}") from None
        for task in self._described():
            name = next(each for each, arn in self.tasks.items() if arn == task["taskArn"])
            details = {pair["name"]: pair["value"] for pair in task["attachments"][0]["details"]}
            self.interface[name] = details["networkInterfaceId"]
            space = self.host(name).task_namespace(self.tasks[name])
            self.sites[name] = Site(name, space, details["privateIPv4Address"], details["ipv6Address"])

    def _described(self) -> list[dict[str, Any]]:
        return list(self.ecs.describe_tasks(tasks=list(self.tasks.values()))["tasks"])

    def _statuses(self) -> list[str]:
        return [f"{one['lastStatus']} {one.get('stoppedReason', '')}" for one in self._described()]

    def _running(self) -> bool:
        return all(one["lastStatus"] == "RUNNING" for one in self._described())

    def set(self, setting: Setting) -> None:
        """Put the groups' rules and the tasks' groups into force."""
        for name, group in self.group.items():
            self._rules(group, setting.ingress.get(name, ()), setting.egress.get(name, OUT))
        for name in NAMES:
            wanted = [self.group[each] for each in setting.groups.get(name, (name,))]
            self.ec2.modify_network_interface_attribute(NetworkInterfaceId=self.interface[name], Groups=wanted)
        self.in_force()

    def _rules(self, group: str, ingress: tuple[Rule, ...], egress: tuple[Rule, ...]) -> None:
        known = self.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
        for way, rules, revoke, allow in (
            (
                "IpPermissions",
                ingress,
                self.ec2.revoke_security_group_ingress,
                self.ec2.authorize_security_group_ingress,
            ),
            (
                "IpPermissionsEgress",
                egress,
                self.ec2.revoke_security_group_egress,
                self.ec2.authorize_security_group_egress,
            ),
        ):
            if known[way]:
                revoke(GroupId=group, IpPermissions=known[way])
            if rules:
                allow(GroupId=group, IpPermissions=[self.permission(*rule) for rule in rules])

    def permission(self, protocol: str, ports: Any, peer: str) -> dict[str, Any]:
        found: dict[str, Any] = {"IpProtocol": protocol}
        if ports is not None:
            found["FromPort"], found["ToPort"] = ports if isinstance(ports, tuple) else (ports, ports)
        name, _, bits = peer.partition("/")
        if name in self.sites:
            peer = f"{self.sites[name].ipv6 if bits == '128' else self.sites[name].ipv4}/{bits}"
        if peer == "SUBNET":
            peer = "10.40.1.0/24"
        if peer.startswith("sg:"):
            return found | {"UserIdGroupPairs": [{"GroupId": self.group[peer[3:]]}]}
        return found | ({"Ipv6Ranges": [{"CidrIpv6": peer}]} if ":" in peer else {"IpRanges": [{"CidrIp": peer}]})

    def in_force(self) -> None:
        """Wait until the hosts have what the control plane says."""
        rules: dict[str, set[str]] = {group: set() for group in self.group.values()}
        for row in self.ec2.describe_security_group_rules(MaxResults=1000)["SecurityGroupRules"]:
            rules.setdefault(row["GroupId"], set()).add(row["SecurityGroupRuleId"])
        wanted = self.ec2.describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])[
            "NetworkInterfaces"
        ]
        groups = {one["NetworkInterfaceId"]: {each["GroupId"] for each in one["Groups"]} for one in wanted}

        def told(host: Host) -> bool:
            state = host.ask("/net?counts=0").get("state", {})
            here = {one["id"]: set(one.get("groups", ())) for one in state.get("interfaces", ())}
            shown = {
                one["id"]: {each["id"] for each in (*one.get("ingress", ()), *one.get("egress", ()))}
                for one in state.get("groups", ())
            }
            return here == groups and all(shown[each] == rules[each] for each in shown)

        until(lambda: all(map(told, self.lab.hosts)), "both hosts have the rules", 20)

    def knows(self, name: str, rule: str) -> bool:
        """Whether a task's host has a rule in force."""
        groups = self.host(name).ask("/net?counts=0")["state"]["groups"]
        return rule in {each["id"] for one in groups for each in one.get("ingress", ())}

    def check(self, expected: list[str], probes: list[Probe] = PROBES) -> None:
        wanted = {one for one in probes if str(one) in set(expected)}
        passed = exchange(self.sites, probes, wanted)
        assert sorted(map(str, passed)) == sorted(map(str, wanted))

    def leave(self) -> None:
        for site in self.sites.values():
            site.close()
        self.sites.clear()

    def net(self, host: Host, *words: str) -> Any:
        """What ``sexton net`` says as JSON on a host."""
        return json.loads(self.said(host, *words, "--json"))

    def said(self, host: Host, *words: str) -> str:
        environment = self.lab.credentials()
        environment |= {"ECS_DATADIR": f"{host.root}/agent", "AWS_ENDPOINT_URL": self.lab.endpoint}
        done = CliRunner().invoke(app, ["net", *words], env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    def stages(self, task: str) -> list[tuple[str, str]]:
        """What events told of a task and its interface, one after the other."""
        environment = self.lab.credentials() | {"AWS_ENDPOINT_URL": self.lab.endpoint}
        done = CliRunner().invoke(app, ["events", "--since", "oldest", "--json"], env=environment)
        assert done.exit_code == 0, done.output
        details = [json.loads(line)["event"]["detail"] for line in done.output.splitlines()]
        mine = [one for one in details if one.get("taskArn") == task]
        return list(dict.fromkeys((one["lastStatus"], one["attachments"][0]["status"]) for one in mine))

    def aws(self, *words: str) -> Any:
        """What the stock command line of AWS answers."""
        environment = self.lab.environment | self.lab.credentials()
        command = [str(Path(sys.executable).with_name("aws")), "--endpoint-url", self.lab.endpoint, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Lab(tmp_path_factory.mktemp("groups"), 2) as lab:
        made = World(lab)
        made.start()
        try:
            yield made
        finally:
            made.leave()


def test_there_are_enough_cases() -> None:
    assert len(SETTINGS) * len(PROBES) >= 60
    named = {str(one) for one in PROBES}
    assert all(each in named for setting in SETTINGS.values() for each in setting.passes)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_passes_is_what_the_groups_say(world: World, name: str) -> None:
    setting = SETTINGS[name]
    world.set(setting)

    world.check(setting.passes)


def test_a_change_is_in_force_within_a_second(world: World) -> None:
    permission = [world.permission("tcp", 81, ANY4)]
    seconds = []
    for _ in range(10):
        answer = world.ec2.authorize_security_group_ingress(GroupId=world.group["far"], IpPermissions=permission)
        began = time.monotonic()
        (rule,) = answer["SecurityGroupRules"]
        until(partial(world.knows, "far", rule["SecurityGroupRuleId"]), "the host has the rule")
        seconds.append(time.monotonic() - began)
        world.ec2.revoke_security_group_ingress(GroupId=world.group["far"], IpPermissions=permission)

    print(f"a change is in force after {statistics.median(seconds) * 1000:.0f} ms (median)")
    # Not the median: what others do on this machine at the same time is no fault of ours.
    assert sorted(seconds)[2] < 1.0


@pytest.mark.parametrize("target", ["two", "far"])
def test_a_revoked_rule_ends_what_it_had_allowed_and_nothing_else(world: World, target: str) -> None:
    both = (("tcp", 80, ANY4), ("udp", 53, ANY4), ("tcp", 81, ANY4))
    world.set(Setting([], {target: both}))
    http, datagrams, other = (begun(world.sites["one"], world.sites[target], kind) for kind in ("t80", "u53", "t81"))
    try:
        # A rule that comes disturbs nobody.
        world.set(Setting([], {target: (*both, ("icmp", (8, -1), ANY4))}))
        assert http.again() and datagrams.again() and other.again()

        world.set(Setting([], {target: (("tcp", 81, ANY4),)}))
        assert not http.again()
        assert not datagrams.again()
        assert other.again()
        world.check([f"one>{target} t81", f"{'far' if target == 'two' else 'two'}>{target} t81"])

        # What comes back goes on: the connection had only been silenced.
        world.set(Setting([], {target: both}))
        assert http.again(4.0) and other.again()
    finally:
        for one in (http, datagrams, other):
            one.close()


def test_answers_need_no_rule_and_give_no_right(world: World) -> None:
    """Who is asked answers, over a flow that others began; it may still not begin one itself."""
    world.set(Setting([], {"far": (("udp", 53, "one/32"),)}, {"far": ()}))
    flow = begun(world.sites["one"], world.sites["far"], "u53")
    try:
        assert flow.again()
        world.check(["one>far u53"])
    finally:
        flow.close()


def test_the_command_shows_what_is_in_force_and_why(world: World) -> None:
    world.set(Setting([], {"far": (("tcp", 80, "one/32"),), "two": (("udp", 53, "sg:one"),)}))
    world.check(["one>far t80", "one>two u53"])
    here, there = world.net(world.lab.hosts[0]), world.net(world.lab.hosts[1])

    assert {one["id"] for one in here["state"]["interfaces"] if not one.get("host")} == {
        world.interface["one"], world.interface["two"],
    }  # fmt: skip
    (far,) = (one for one in there["state"]["groups"] if one["id"] == world.group["far"])
    (rule,) = far["ingress"]
    assert there["counts"][rule["id"]]["packets"] >= 4
    assert there["counts"][f"{world.interface['far']} ingress"]["packets"] > 0
    task, two = (world.tasks[name].rpartition("/")[2] for name in ("one", "two"))
    allowed = world.net(world.lab.hosts[0], "why", task, f"{world.sites['far'].ipv4}:80")
    assert allowed["passes"] is True and allowed["rules"][-1] == rule["id"]
    dropped = world.net(world.lab.hosts[0], "why", task, f"{world.sites['far'].ipv4}:81")
    assert dropped["passes"] is False and "never reaches" in dropped["headline"]
    assert world.net(world.lab.hosts[1], "why", two, f"{world.tasks['one']}:80")["passes"] is False
    one = world.net(world.lab.hosts[0], task)
    assert [each["id"] for each in one["state"]["interfaces"]] == [world.interface["one"]]
    assert one["state"]["interfaces"][0]["taskArn"] == world.tasks["one"]
    lines = world.said(world.lab.hosts[1]).splitlines()
    assert lines[0] == f"task {world.tasks['far'].rpartition('/')[2]}"
    assert f"  in  {rule['id']}  tcp 80 from {world.sites['one'].ipv4}/32  (" in "\n".join(lines)


def test_the_command_line_of_aws_runs_a_task_and_shows_its_interface(world: World) -> None:
    network = f"awsvpcConfiguration={{subnets=[{world.subnet}],securityGroups=[{world.group['extra']}]}}"
    ran = world.aws("ecs", "run-task", "--task-definition", "site", "--network-configuration", network)
    task = ran["tasks"][0]["taskArn"]
    assert ran["tasks"][0]["lastStatus"] == "PROVISIONING"
    try:
        until(lambda: world.ecs.describe_tasks(tasks=[task])["tasks"][0]["lastStatus"] == "RUNNING", "it runs", 60)
        shown = world.aws("ecs", "describe-tasks", "--tasks", task)["tasks"][0]
        (attachment,) = shown["attachments"]
        details = {pair["name"]: pair["value"] for pair in attachment["details"]}
        assert (attachment["type"], attachment["status"]) == ("ElasticNetworkInterface", "ATTACHED")
        assert shown["containers"][0]["networkInterfaces"][0]["privateIpv4Address"] == details["privateIPv4Address"]
        ids = ("--network-interface-ids", details["networkInterfaceId"])
        (interface,) = world.aws("ec2", "describe-network-interfaces", *ids)["NetworkInterfaces"]
        assert (interface["Status"], interface["PrivateIpAddress"]) == ("in-use", details["privateIPv4Address"])
    finally:
        world.ecs.stop_task(task=task)
    until(lambda: world.ecs.describe_tasks(tasks=[task])["tasks"][0]["lastStatus"] == "STOPPED", "it has ended", 60)
    (attachment,) = world.ecs.describe_tasks(tasks=[task])["tasks"][0]["attachments"]
    assert attachment["status"] == "DELETED"
    assert world.stages(task) == [
        ("PROVISIONING", "ATTACHING"),
        ("PENDING", "ATTACHED"),
        ("RUNNING", "ATTACHED"),
        ("DEPROVISIONING", "DETACHING"),
        ("STOPPED", "DELETED"),
    ]
    known = world.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert details["networkInterfaceId"] not in {one["NetworkInterfaceId"] for one in known}


RULES = Setting(["one>two t80", "one>far t80"], {"two": (("tcp", 80, ANY4),), "far": (("tcp", 80, "sg:one"),)})
KEPT = ["one>two t80", "far>two t80", "one>far t80", "one>far s80"]


def test_a_restart_of_the_agent_changes_nothing(world: World) -> None:
    world.set(RULES)
    calls = [begun(world.sites["one"], world.sites[target], "t80") for target in ("two", "far")]
    try:
        for host in world.lab.hosts:
            host.agent.kill()
        assert all(one.again() for one in calls)
        world.check(KEPT)  # rules need nobody who watches over them
        for host in world.lab.hosts:
            host.start_agent()
        world.in_force()
        assert all(one.again() for one in calls)
        world.check(KEPT)
        world.set(SETTINGS["one address, over hosts"])
        world.check(SETTINGS["one address, over hosts"].passes)
    finally:
        for one in calls:
            one.close()


def test_a_restart_of_the_engine_changes_nothing(world: World) -> None:
    world.set(RULES)
    call = begun(world.sites["one"], world.sites["far"], "t80")
    try:
        for host in world.lab.hosts:
            host.engine.kill()
            host.engine.start()
        assert call.again()
        world.check(KEPT)
        until(lambda: all(one.ask("/health")["engineAnswers"] for one in world.lab.hosts), "the engines answer", 30)
        world.set(SETTINGS["several groups together"])
        world.check(SETTINGS["several groups together"].passes)
    finally:
        call.close()


def test_after_a_restart_of_the_control_plane_changes_reach_the_hosts(world: World) -> None:
    world.set(RULES)
    world.lab.control.kill()
    world.check(KEPT)
    world.lab.start_control()
    until(lambda: all(host.connected() for host in world.lab.hosts), "both hosts are connected", 60)
    world.set(SETTINGS["pings only"])
    world.check(SETTINGS["pings only"].passes)


def test_after_a_host_went_dark_its_new_tasks_are_judged_and_the_old_ones_hold_nothing(world: World) -> None:
    world.set(RULES)
    before, host = dict(world.tasks), world.lab.hosts[0]
    world.leave()
    host.agent.kill()
    host.engine.lose_power()
    for name in host.routers():
        subprocess.run(["ip", "netns", "delete", name], check=True, timeout=30)
    host.namespace.run("nft", "flush", "ruleset")
    host.start()

    gone = [before[name] for name in ("one", "two")]
    until(
        lambda: all(one["lastStatus"] == "STOPPED" for one in world.ecs.describe_tasks(tasks=gone)["tasks"]),
        "the tasks of the host have ended",
        60,
    )
    shown = world.ec2.describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [world.vpc]}])
    assert [one["NetworkInterfaceId"] for one in shown["NetworkInterfaces"]] == [world.interface["far"]]
    world.ecs.stop_task(task=before["far"])
    world.start()
    world.set(RULES)
    world.check(KEPT)
