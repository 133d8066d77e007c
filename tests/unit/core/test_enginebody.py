"""What any control plane's payload may hold, however odd: laid over what the agent computed, or refused by name."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import enginebody
from sexton.core.enginebody import BadPayload
from sexton.core.task import Binding
from sexton.wire import acs_task

ARN = "arn:aws:ecs:eu-west-1:123456789012:task/default/t1"


def task(**fields):
    return acs_task.Task(arn=ARN, family="web", version="3", **fields)


def container(config=None, host_config=None, **fields):
    texts = acs_task.DockerConfig(config=config, host_config=host_config)
    return acs_task.Container(**({"name": "app", "image": "busybox", "docker_config": texts} | fields))


def body(one, of=None, **fields):
    usual = {"labels": {}, "bindings": (), "cgroup_parent": ""}
    return enginebody.create_body(of or task(), one, **(usual | fields))


def test_names_follow_from_the_task_and_differ():
    names = {
        enginebody.engine_name(task(), "app"),
        enginebody.engine_name(task(), "app"),
        enginebody.engine_name(task(), "a_p.p"),
        enginebody.engine_name(task(), "app "),
        enginebody.engine_name(acs_task.Task(arn=ARN + "2", family="web", version="3"), "app"),
    }

    assert len(names) == 4
    assert all(name.startswith("ecs-web-3-app-") for name in names)


def test_labels_say_whose_the_container_is_and_no_payload_can_say_otherwise():
    own = enginebody.labels(task(), "app", "default", "arn:instance")
    made = body(container('{"Labels":{"com.amazonaws.ecs.task-arn":"forged","mine":"1"}}'), labels=own)

    assert own == {
        "com.amazonaws.ecs.task-arn": ARN,
        "com.amazonaws.ecs.container-name": "app",
        "com.amazonaws.ecs.task-definition-family": "web",
        "com.amazonaws.ecs.task-definition-version": "3",
        "com.amazonaws.ecs.cluster": "default",
        "dev.sexton.container-instance": "arn:instance",
    }
    assert made["Labels"] == {**own, "mine": "1"}


def test_scalars_and_lists_replace_and_objects_merge():
    one = container('{"Env":["X=1"],"New":{"a":1}}', '{"CpuShares":5,"PortBindings":{"1/tcp":[]}}', cpu=100)
    binding = Binding(container_port=80, host_port=81, bind_ip="0.0.0.0", protocol="tcp")
    made = body(one, bindings=(binding,))

    assert made["Env"] == ["X=1"]
    assert made["New"] == {"a": 1}
    assert made["HostConfig"]["CpuShares"] == 5
    assert made["HostConfig"]["PortBindings"] == {"80/tcp": [{"HostPort": "81"}], "1/tcp": []}


@pytest.mark.parametrize("text", [None, "", "{}", "null", '{"Labels":null,"Image":null,"HostConfig":null}'])
def test_null_says_nothing(text):
    assert body(container(text, text)) == body(container())


@pytest.mark.parametrize(
    "one, error",
    [
        (container("{"), "DockerClientConfigError"),
        (container("[]"), "DockerClientConfigError"),
        (container('{"HostConfig":5}'), "DockerClientConfigError"),
        (container('{"Labels":["a"]}'), "DockerClientConfigError"),
        (container("{}", "x"), "HostConfigError"),
        (container("[" * 100_000), "DockerClientConfigError"),
        (container(health_check_type="docker"), "DockerClientConfigError"),
        (container('{"Healthcheck":null}', health_check_type="docker"), "DockerClientConfigError"),
        (container(overrides="["), "HostConfigError"),
        (container(overrides='{"cpu":1}'), "HostConfigError"),
        (container(overrides='{"command":"sh"}'), "HostConfigError"),
        (container(mount_points=(acs_task.MountPoint(source_volume="v", container_path="/v"),)), "InvalidVolumeError"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(one, error):
    with pytest.raises(BadPayload, match=f"^{error}: .*app"):
        body(one)


@pytest.mark.parametrize("kind", ["fsxWindowsFileServer", "s3files", "ebs"])
def test_a_volume_that_cannot_be_mounted_here_is_refused(kind):
    of = task(volumes=(acs_task.Volume(name="v", type=kind),))

    with pytest.raises(BadPayload, match=f"InvalidVolumeError: volume v is of type {kind}"):
        body(container(mount_points=(acs_task.MountPoint(source_volume="v", container_path="/v"),)), of)


def test_a_volume_that_is_not_there_is_refused():
    with pytest.raises(BadPayload, match="InvalidVolumeError: volume v of container app"):
        body(container(mount_points=(acs_task.MountPoint(source_volume="v", container_path="/v"),)), task())


@pytest.mark.parametrize("given", ['{"command":["b"]}', {"command": ["b"]}])
def test_the_command_may_be_overridden_in_either_form(given):
    assert body(container(command=("a",), overrides=given))["Cmd"] == ["b"]


@pytest.mark.parametrize("given", [None, "", "{}", '{"command":null}'])
def test_without_an_override_the_command_stands(given):
    assert body(container(command=("a",), overrides=given))["Cmd"] == ["a"]


def test_a_log_keeps_the_buffer_it_was_given():
    text = '{"LogConfig":{"Type":"x","Config":{"mode":"non-blocking","max-buffer-size":"1m"}}}'

    assert body(container("{}", text))["HostConfig"]["LogConfig"]["Config"]["max-buffer-size"] == "1m"


def test_links_and_volumes_of_others_name_the_engines_containers():
    other = enginebody.engine_name(task(), "db")
    one = container(
        links=("db:store", "db"),
        volumes_from=(
            acs_task.VolumeFrom(source_container="db"),
            acs_task.VolumeFrom(source_container="db", read_only=True),
        ),
    )

    config = body(one)["HostConfig"]

    assert config["Links"] == [f"{other}:store", f"{other}:db"]
    assert config["VolumesFrom"] == [other, f"{other}:ro"]


def test_a_range_is_published_port_by_port():
    made = body(
        container(),
        bindings=(Binding(container_port=80, host_port=9000, bind_ip="0.0.0.0", protocol="udp", span=2),),
    )

    assert set(made["ExposedPorts"]) == {"80/udp", "81/udp"}
    assert made["HostConfig"]["PortBindings"] == {"80/udp": [{"HostPort": "9000"}], "81/udp": [{"HostPort": "9001"}]}


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"pid_mode": "host"}, {"PidMode": "host"}),
        ({"ipc_mode": "host"}, {"IpcMode": "host"}),
        ({"ipc_mode": "none"}, {"IpcMode": "none"}),
    ],
)
def test_namespaces_of_the_host(fields, said):
    config = body(container(), task(**fields))["HostConfig"]

    assert {name: config[name] for name in said} == said


def with_gpu(**fields):
    gpus = tuple(acs_task.Association(name=name, type="gpu", containers=("app",)) for name in ("GPU-1", "GPU-2"))
    return task(associations=gpus, **fields)


def test_gpus_come_by_the_vendors_runtime():
    made = body(container(), with_gpu(), nvidia_runtime="nv")

    assert made["Env"] == ["NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2"]
    assert made["HostConfig"]["Runtime"] == "nv"
    assert "Runtime" not in body(container(name="side"), with_gpu())["HostConfig"]


def test_gpus_outside_of_ec2_come_as_devices():
    made = body(container(), with_gpu(launch_type="EXTERNAL"))

    assert made["HostConfig"]["DeviceRequests"] == [{"DeviceIDs": ["GPU-1", "GPU-2"], "Capabilities": [["gpu"]]}]
    assert "Runtime" not in made["HostConfig"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_keys = st.sampled_from(["Labels", "HostConfig", "Env", "LogConfig", "PortBindings", "Binds", "Healthcheck", "X"])


@given(st.dictionaries(_keys, _json), st.dictionaries(_keys, _json))
def test_whatever_a_payload_holds_it_is_taken_or_refused(config, host_config):
    texts = [msgspec.json.encode(one).decode() for one in (config, host_config)]
    try:
        made = body(container(*texts), labels={"k": "v"})
    except BadPayload:
        return
    assert made["Labels"]["k"] == "v"
