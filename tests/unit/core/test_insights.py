"""Names, units and dimensions as Container Insights has them, and values that travel together."""

from __future__ import annotations

from sexton.core.insights import MOST_VALUES, HostMinute, TaskMinute, of_host, of_tasks


def minute(family: str = "web", service: str = "", cpu: float = 10.0) -> TaskMinute:
    return TaskMinute(family, service, 256, cpu, 512, 100.5, received=7, restarts=1)


def test_a_task_counts_for_its_cluster_its_family_and_its_service() -> None:
    found = {(one.name, one.dimensions): one for one in of_tasks("prod", [minute(service="front"), minute(cpu=30.0)])}
    cluster = (("ClusterName", "prod"),)

    assert found["CpuUtilized", cluster].values == ((10.0, 1), (30.0, 1))
    assert found["CpuReserved", (*cluster, ("TaskDefinitionFamily", "web"))].values == ((256.0, 2),)
    assert found["MemoryUtilized", (*cluster, ("ServiceName", "front"))].values == ((100.5, 1),)
    assert {one.name: one.unit for one in found.values()} == {
        "CpuReserved": "None",
        "CpuUtilized": "None",
        "MemoryReserved": "Megabytes",
        "MemoryUtilized": "Megabytes",
        "NetworkRxBytes": "Bytes/Second",
        "NetworkTxBytes": "Bytes/Second",
        "StorageReadBytes": "Bytes",
        "StorageWriteBytes": "Bytes",
        "RestartCount": "Count",
    }


def test_no_datum_has_more_values_than_it_may() -> None:
    data = [one for one in of_tasks("c", [minute(cpu=float(n)) for n in range(400)]) if one.name == "CpuUtilized"]
    of_cluster = [one for one in data if len(one.dimensions) == 1]

    assert [len(one.values) for one in of_cluster] == [MOST_VALUES, MOST_VALUES, 100]
    assert sorted(value for one in of_cluster for value, _ in one.values) == [float(n) for n in range(400)]


def test_the_host_is_told_by_itself_and_in_its_cluster() -> None:
    host = HostMinute(cpu_reserved=50, cpu_used=10, memory_reserved=25, memory_used=5, tasks=3)
    names = {
        one.dimensions: one.values for one in of_host("c", "ci", "i-1", host) if one.name == "instance_cpu_utilization"
    }

    assert names == {
        (("ClusterName", "c"),): ((10.0, 1),),
        (("ClusterName", "c"), ("ContainerInstanceId", "ci"), ("InstanceId", "i-1")): ((10.0, 1),),
    }
    assert all(len(one.dimensions) < 3 for one in of_host("c", "ci", "", host))
