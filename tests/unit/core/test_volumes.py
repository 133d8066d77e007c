"""Volumes of a task as the engine mounts them: names that can be computed again, options as they are documented."""

from __future__ import annotations

import pytest

from sexton.core.volumes import (
    BadVolume,
    Mountable,
    Where,
    mountable,
    of_task_scope,
    source_of,
    task_volume_name,
    unlike,
)
from sexton.wire import acs_task

TASK = "arn:aws:ecs:eu-west-1:1:task/default/" + "1" * 32
HERE = Where(region="eu-west-1")
PLUGIN = Where(region="eu-west-1", capabilities=("efsAuth",))


def docker(name="v", **given):
    return acs_task.Volume(
        name=name, type="docker", docker_volume_configuration=acs_task.DockerVolumeConfiguration(**given)
    )


def efs(role="", **given):
    auth = given.pop("auth", None)
    return acs_task.Volume(
        name="v",
        type="efs",
        efs_volume_configuration=acs_task.EFSVolumeConfiguration(
            file_system_id="fs-1", authorization_config=auth and acs_task.EFSAuthorizationConfig(**auth), **given
        ),
    )


def task(*volumes, arn=TASK, **fields):
    return acs_task.Task(arn=arn, family="web", version="3", volumes=volumes, **fields)


def test_a_path_of_the_host_is_bound_as_it_is():
    volume = acs_task.Volume(name="v", host=acs_task.HostVolume(source_path="/srv"))

    assert mountable(task(volume), volume, HERE) == Mountable(path="/srv")
    assert of_task_scope(task(volume)) == ()


@pytest.mark.parametrize("volume", [acs_task.Volume(name="v"), acs_task.Volume(name="v", type="host")])
def test_a_volume_without_a_path_is_the_task_s_own(volume):
    made = mountable(task(volume), volume, HERE)

    assert made.name.startswith("ecs-web-3-v-") and made.driver == "local" and not made.shared
    assert made.name == task_volume_name(task(volume), volume) == of_task_scope(task(volume))[0]
    assert made.name != mountable(task(volume, arn=TASK[:-1] + "2"), volume, HERE).name


def test_a_docker_volume_of_task_scope_carries_what_was_asked():
    volume = docker(scope="task", driver="d", driver_opts={"a": "1"}, labels={"l": "2"})
    made = mountable(task(volume), volume, HERE)

    assert (made.driver, made.options, made.labels, made.shared) == ("d", {"a": "1"}, {"l": "2"}, False)
    with pytest.raises(BadVolume, match="InvalidVolumeError"):
        mountable(task(volume), docker(scope="task", autoprovision=True), HERE)


def test_a_shared_volume_keeps_its_name_and_outlives_the_task():
    volume = docker("data", scope="shared", autoprovision=True)

    assert mountable(task(volume), volume, HERE) == Mountable(name="data", shared=True)
    assert mountable(task(volume), docker("data", scope="shared"), HERE).must_exist
    assert of_task_scope(task(volume)) == ()


def test_a_network_file_system_is_mounted_over_nfs():
    volume = efs(root_directory="/app")
    made = mountable(task(volume), volume, HERE)

    assert made.driver == "local"
    assert made.options == {
        "type": "nfs",
        "device": ":/app",
        "o": "addr=fs-1.efs.eu-west-1.amazonaws.com,nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,"
        "noresvport",
    }
    assert of_task_scope(task(volume)) == (made.name,)


def test_the_plugin_is_told_what_it_needs():
    volume = efs(
        root_directory="/app",
        transit_encryption="ENABLED",
        transit_encryption_port=2999,
        auth={"access_point_id": "fsap-1", "iam": "ENABLED"},
    )
    of = task(volume, role_credentials=acs_task.IAMRoleCredentials(credentials_id="c-1"))
    made = mountable(of, volume, PLUGIN)

    assert made.driver == "amazon-ecs-volume-plugin"
    assert made.options == {
        "type": "efs",
        "device": "fs-1:/app",
        "o": "tls,tlsport=2999,iam,awscredsuri=/v2/credentials/c-1,accesspoint=fsap-1",
    }
    assert mountable(of, efs(), PLUGIN).options == {"type": "efs", "device": "fs-1", "o": ""}


@pytest.mark.parametrize("given", [{"transit_encryption": "ENABLED"}, {"auth": {"iam": "ENABLED"}}])
def test_encryption_is_never_left_out_silently(given):
    with pytest.raises(BadVolume, match="needs the volume plugin"):
        mountable(task(), efs(**given), HERE)


@pytest.mark.parametrize("kind", ["fsxWindowsFileServer", "ebs", "s3files", "attachment", "new"])
def test_what_cannot_be_mounted_here_is_refused_by_name(kind):
    volume = acs_task.Volume(name="v", type=kind)

    with pytest.raises(BadVolume, match=f"volume v is of type {kind}"):
        mountable(task(volume), volume, HERE)
    with pytest.raises(BadVolume):
        source_of(task(volume), acs_task.Container(name="a"), "v")
    assert of_task_scope(task(volume)) == ()


def test_a_difference_is_named():
    wanted = Mountable(name="v", options={"a": "1"}, labels={"l": "1"})

    assert unlike(wanted, "local", {"a": "1"}, {"l": "1"}) == ""
    assert "driver" in unlike(wanted, "nfs", {"a": "1"}, {"l": "1"})
    assert "options" in unlike(wanted, "local", {}, {"l": "1"})
    assert "labels" in unlike(wanted, "local", {"a": "1"}, {})
