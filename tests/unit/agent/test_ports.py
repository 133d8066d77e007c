"""Host ports that are given out are free, within the range, and not given out again soon."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sexton.agent.ports import FALLBACK, NoPort, PortAllocator

SPAN = (23100, 23103)
NONE: frozenset[int] = frozenset()


def allocator(span: tuple[int, int] = SPAN, reserved: frozenset[int] = NONE) -> PortAllocator:
    return PortAllocator(span, reserved)


def test_goes_round_the_range() -> None:
    ports = allocator()
    assert [ports.take("tcp") for _ in range(5)] == [23100, 23101, 23102, 23103, 23100]


def test_reserved_ports_are_passed_over() -> None:
    ports = allocator(reserved=frozenset({23100, 23102}))
    assert [ports.take("udp") for _ in range(3)] == [23101, 23103, 23101]


@pytest.mark.parametrize(("protocol", "kind"), [("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)])
def test_port_in_use_is_passed_over(protocol: str, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 23100))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        assert allocator().take(protocol) == 23101


def test_port_that_is_only_lingering_is_free() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 23120))  # of its own: it lingers, and other tests would find it taken
        server.listen()
        with socket.create_connection(("127.0.0.1", 23120)), server.accept()[0] as ours:
            ours.close()  # ours closes first, so this end waits out the connection
    assert allocator((23120, 23121)).take("tcp") == 23120


def test_full_range_is_said() -> None:
    with pytest.raises(NoPort):
        allocator(reserved=frozenset(range(23100, 23104))).take("tcp")


def test_kernels_own_range_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "ip_local_port_range"
    file.write_text("23100\t23101\n")
    ports = PortAllocator(None, NONE, str(file))
    assert {ports.take("tcp") for _ in range(4)} == {23100, 23101}
    assert FALLBACK[0] <= PortAllocator(None, NONE, str(tmp_path / "none")).take("tcp") <= FALLBACK[1]


def test_rows_of_ports_hold_only_free_ones_and_do_not_go_round_the_end() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 23102))
        taken.listen()
        ports = allocator((23100, 23107), frozenset({23104}))
        assert ports.take("tcp", 3) == 23105
        assert ports.take("tcp", 2) == 23100
        with pytest.raises(NoPort, match="4 contiguous host ports are unavailable"):
            ports.take("tcp", 4)
