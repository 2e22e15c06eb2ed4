"""The topology of this machine: sysfs for cores and the PCIe tree, NVML for the cards, cgroups for the limits."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from .cgroups import cpu_quota, memory_left
from .topology import Gpu, NumaNode, Topology, load_facts
from .visible import visible


def read_topology(facts: Path | None = None, cards: bool = True, root: Path = Path("/")) -> Topology:
    """The box of a facts file, or this one. Only cores that this process may use, and cards it may see, are in it.

    cards: False does not ask for any. Raises TopologyError for a facts file that describes no box, and for a
    CUDA_VISIBLE_DEVICES whose meaning is not certain.
    """
    if facts is not None:
        return load_facts(facts)
    gpus, notes = read_gpus(root) if cards else ((), [])
    every = read_nodes(allowed_cpus(), root)
    quota = cpu_quota(root)
    nodes = every if quota is None else within_quota(every, quota)
    kept, there = (sum(len(node.cores) for node in some) for some in (nodes, every))
    if kept < there:
        notes.append(f"the CPU quota of this process's cgroup, {quota:g}, leaves {kept} of {there} cores")
    return Topology(gpus, nodes, available_memory(root), tuple(notes))


def allowed_cpus() -> set[int]:
    """The logical CPUs that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def within_quota(nodes: Sequence[NumaNode], quota: float) -> tuple[NumaNode, ...]:
    """As many whole cores as `quota` keeps busy with one thread each, at least one, from all nodes in turn.

    A quota is a share of time and not of places: two threads on one core would get less done in the same time.
    """
    turns = sorted((turn, place) for place, node in enumerate(nodes) for turn in range(len(node.cores)))
    taken = [place for _, place in turns[: max(1, int(quota))]]
    kept = [NumaNode(node.index, node.cores[: taken.count(k)], node.memory_bytes) for k, node in enumerate(nodes)]
    return tuple(node for node in kept if node.cores)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that may still be taken: of the machine, and of this process's cgroups."""
    free, left = psutil.virtual_memory().available, memory_left(root)
    return free if left is None else min(free, left)


def read_nodes(cpus: set[int], root: Path = Path("/")) -> tuple[NumaNode, ...]:
    """The NUMA nodes with the physical cores of `cpus`; one node where sysfs names none."""
    base = root / "sys/devices/system"
    nodes = []
    for folder in sorted((base / "node").glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        try:
            mine = cpus & set(parse_cpulist((folder / "cpulist").read_text()))
            memory = _mem_total((folder / "meminfo").read_text())
        except (OSError, ValueError):
            continue
        if mine:
            nodes.append(NumaNode(int(folder.name[4:]), _cores(mine, base), memory))
    if not nodes:
        nodes = [NumaNode(0, _cores(cpus, base), psutil.virtual_memory().total)]
    return tuple(nodes)


def _cores(cpus: set[int], base: Path) -> tuple[tuple[int, ...], ...]:
    """Logical CPUs grouped by physical core."""
    cores: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(cpus):
        try:
            text = (base / f"cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
            siblings = tuple(parse_cpulist(text))
        except (OSError, ValueError):
            siblings = (cpu,)
        cores.setdefault(siblings, []).append(cpu)
    return tuple(tuple(core) for core in cores.values())


def parse_cpulist(text: str) -> list[int]:
    """`0-3,8` of sysfs as numbers."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def _mem_total(text: str) -> int:
    for line in text.splitlines():
        if "MemTotal:" in line:
            return int(line.split("MemTotal:")[1].split()[0]) * 1024
    raise ValueError("no MemTotal")


def read_gpus(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> tuple[tuple[Gpu, ...], list[str]]:
    """The NVIDIA cards that CUDA_VISIBLE_DEVICES leaves, in its order, and what could not be found out.

    `Gpu.index` is NVML's, the number that nvidia-smi shows. Raises TopologyError as `visible` does.
    """
    try:
        import pynvml  # type: ignore[import-not-found]
    except ImportError:
        return (), ["GPUs are not looked for: nvidia-ml-py is not installed"]
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), [f"no NVIDIA driver answers: {error}"]
    try:
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            bus = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-12:]  # NVML writes the domain with 8 digits
            path, node = pci_place(bus, root)
            names = _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle))
            gpus.append(Gpu(index, *names, int(memory.total), int(memory.free), bus, path, node))
    finally:
        pynvml.nvmlShutdown()
    gpus.sort(key=lambda gpu: gpu.pci_bus_id)
    return visible(gpus, environment)


def pci_place(bus: str, root: Path = Path("/")) -> tuple[tuple[str, ...], int | None]:
    """The bridges above a device, from the root port on, and its NUMA node."""
    device = root / "sys/bus/pci/devices" / bus
    try:
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        node = -1
    # .../pci0000:00/0000:00:01.0/0000:01:00.0
    parts = [part for part in Path(os.path.realpath(device)).parts if part.count(":") == 2]
    return tuple(parts[:-1]), None if node < 0 else node


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
