"""The machine as NVML, sysfs and cgroups tell of it, from trees of files as the kernel writes them."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from videoinfer.placement import machine
from videoinfer.placement.topology import Gpu, NumaNode, TopologyError


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def two_sockets(root: Path) -> None:
    """Eight cores with two threads each: core k has CPUs k and k + 8, cores 0 to 3 are node 0."""
    write(
        root,
        {f"sys/devices/system/node/node{n}/cpulist": f"{4 * n}-{4 * n + 3},{4 * n + 8}-{4 * n + 11}" for n in (0, 1)},
    )
    write(root, {f"sys/devices/system/node/node{n}/meminfo": f"Node {n} MemTotal:  1024 kB" for n in (0, 1)})
    write(
        root,
        {f"sys/devices/system/cpu/cpu{k}/topology/thread_siblings_list": f"{k % 8},{k % 8 + 8}" for k in range(16)},
    )


def test_sysfs_is_read_as_it_is_written(tmp_path):
    two_sockets(tmp_path)
    nodes = machine.read_nodes({0, 1, 2, 8, 6, 7, 15}, tmp_path)
    assert nodes == (NumaNode(0, ((0, 8), (1,), (2,)), 1024 * 1024), NumaNode(1, ((6,), (7, 15)), 1024 * 1024))
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    device = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    write(device, {"numa_node": "-1"})
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0").symlink_to(device)
    assert machine.pci_place("0000:01:00.0", tmp_path) == (("0000:00:01.0",), None)


def test_this_machine_has_cores_and_memory():
    box = machine.read_topology()
    assert box.cores >= 1 and box.available_memory_bytes > 0
    assert {cpu for node in box.nodes for core in node.cores for cpu in core} <= os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("quota", "kept"),
    [
        ("50000", [((0, 8),)]),
        ("100000", [((0, 8),)]),
        ("250000", [((0, 8),), ((4, 12),)]),
        ("300000", [((0, 8), (1, 9)), ((4, 12),)]),
        ("400000", [((0, 8), (1, 9)), ((4, 12), (5, 13))]),
    ],
)
def test_a_quota_leaves_whole_cores_of_all_nodes(monkeypatch, tmp_path, quota, kept):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    two_sockets(tmp_path)
    write(tmp_path, {"sys/fs/cgroup/cpu.max": f"{quota} 100000"})
    box = machine.read_topology(cards=False, root=tmp_path)
    assert [node.cores for node in box.nodes] == kept
    cores = sum(map(len, kept))
    assert box.notes == (f"the CPU quota of this process's cgroup, {int(quota) / 1e5:g}, leaves {cores} of 8 cores",)


@pytest.mark.parametrize("quota", ["800000 100000", "1200000 100000", "max 100000"])
def test_a_quota_that_keeps_all_cores_busy_takes_none(monkeypatch, tmp_path, quota):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    two_sockets(tmp_path)
    write(tmp_path, {"sys/fs/cgroup/cpu.max": quota})
    box = machine.read_topology(cards=False, root=tmp_path)
    assert box.cores == 8 and box.notes == ()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.floats(0.01, 50.0))
def test_any_quota_is_shared_out_evenly(sizes, quota):
    nodes = [
        NumaNode(n, tuple((100 * n + k, 100 * n + 50 + k) for k in range(size)), 1) for n, size in enumerate(sizes)
    ]
    kept = {node.index: node.cores for node in machine.within_quota(nodes, quota)}
    counts = [len(kept.get(n, ())) for n in range(len(sizes))]
    assert sum(counts) == min(sum(sizes), max(1, int(quota)))
    assert all(set(cores) <= set(nodes[n].cores) for n, cores in kept.items())
    assert all(count >= max(counts) - 1 for count, size in zip(counts, sizes, strict=True) if count < size)


def test_memory_is_that_of_the_machine_and_of_the_cgroup(monkeypatch, tmp_path):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4000))
    assert machine.available_memory(tmp_path) == 4000
    write(tmp_path, {"sys/fs/cgroup/memory.max": "5000", "sys/fs/cgroup/memory.current": "2000"})
    assert machine.available_memory(tmp_path) == 3000
    write(tmp_path, {"sys/fs/cgroup/memory.current": "500"})
    assert machine.available_memory(tmp_path) == 4000


class NVMLError(Exception):
    pass


def fake_nvml(monkeypatch, root: Path, cards: int, driver: bool = True) -> None:
    """NVML with `cards` cards, whose sysfs entries lie under `root`, as two sockets have them."""
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    for k in range(cards):
        bus = f"0000:{k + 1:02x}:00.0"
        device = root / f"sys/devices/pci0000:00/0000:00:{k:02x}.0/{bus}"
        write(device, {"numa_node": f"{k % 2}"})
        (root / "sys/bus/pci/devices" / bus).symlink_to(device)

    def start() -> None:
        if not driver:
            raise NVMLError("Driver Not Loaded")

    module = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: cards,
        nvmlDeviceGetHandleByIndex=lambda k: k,
        nvmlDeviceGetMemoryInfo=lambda k: SimpleNamespace(total=100 + k, free=50 + k),
        nvmlDeviceGetPciInfo=lambda k: SimpleNamespace(busId=f"00000000:{k + 1:02X}:00.0".encode()),
        nvmlDeviceGetUUID=lambda k: f"GPU-{'abcd'[k]}{k}".encode(),  # old bindings give bytes
        nvmlDeviceGetName=lambda k: "Some card",
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_cards_are_read_with_their_place(monkeypatch, tmp_path):
    fake_nvml(monkeypatch, tmp_path, 2)
    gpus, notes = machine.read_gpus(tmp_path, {})
    assert notes == []
    assert gpus == (
        Gpu(0, "GPU-a0", "Some card", 100, 50, "0000:01:00.0", ("0000:00:00.0",), 0),
        Gpu(1, "GPU-b1", "Some card", 101, 51, "0000:02:00.0", ("0000:00:01.0",), 1),
    )


def test_only_visible_cards_are_read_and_none_for_a_cpu(monkeypatch, tmp_path):
    fake_nvml(monkeypatch, tmp_path, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0,7")
    box = machine.read_topology(root=tmp_path)
    assert [gpu.index for gpu in box.gpus] == [2, 0]
    assert "'7' names no card" in box.notes[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    with pytest.raises(TopologyError, match="twice"):
        machine.read_topology(root=tmp_path)
    assert machine.read_topology(cards=False, root=tmp_path).gpus == ()


def test_without_driver_or_bindings_there_are_no_cards_and_the_reason(monkeypatch, tmp_path):
    fake_nvml(monkeypatch, tmp_path, 1, driver=False)
    assert machine.read_gpus(tmp_path) == ((), ["no NVIDIA driver answers: Driver Not Loaded"])
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import then fails
    gpus, notes = machine.read_gpus(tmp_path)
    assert gpus == () and "not installed" in notes[0]
