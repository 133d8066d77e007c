"""Facts of /proc, with None for what a kernel does not tell."""

from __future__ import annotations

from pathlib import Path

from sexton.host.proc import Boot, KernelMemory, boot, kernel_memory


def test_the_real_host_tells_its_boot_and_memory() -> None:
    here = boot(Path("/"))

    assert here.id is not None and len(here.id) == 36
    assert here.uptime is not None and here.uptime > 0
    assert (kernel_memory(Path("/")).slab_unreclaimable or 0) > 2**20


def test_kernel_memory_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 10 kB\nSUnreclaim:   2048 kB\nPercpu:     3 kB\n")

    assert kernel_memory(tmp_path) == KernelMemory(percpu=3072, slab_unreclaimable=2048 * 1024)


def test_nothing_readable_is_none_and_no_error(tmp_path: Path) -> None:
    assert kernel_memory(tmp_path) == KernelMemory()
    assert boot(tmp_path) == Boot()


def test_nonsense_is_none_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/uptime").write_text("soon")
    (tmp_path / "proc/meminfo").write_text("Percpu:\nSUnreclaim: many kB\n")

    assert boot(tmp_path) == Boot()
    assert kernel_memory(tmp_path) == KernelMemory()
