"""The topology of this machine: sysfs for cores and the PCIe tree, NVML for the cards, cgroups for the limits."""

import os
from pathlib import Path

import psutil

from .topology import Gpu, NumaNode, Topology, TopologyError, load_facts


def read_topology(facts: Path | None = None) -> Topology:
    """The box of a facts file, or this one. Only cores that this process may use, and cards it may see, are in it."""
    if facts is not None:
        return load_facts(facts)
    gpus, notes = read_gpus()
    nodes = read_nodes(allowed_cpus())
    return Topology(gpus, nodes, available_memory(), tuple(notes))


def allowed_cpus(root: Path = Path("/")) -> set[int]:
    """The logical CPUs of this process, cut to its cgroup's quota (whole CPUs, at least one)."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    quota = _quota(root)
    if quota is not None and quota < len(cpus):
        cpus = set(sorted(cpus)[: max(1, int(quota))])
    return cpus


def _quota(root: Path) -> float | None:
    """CPUs of the cgroup, version 2 then 1; None without a limit."""
    try:
        limit, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit = int((root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period = int((root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return limit / period if limit > 0 else None
    except (OSError, ValueError):
        return None


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that may still be taken: of the machine, and of this process's cgroup."""
    free = psutil.virtual_memory().available
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int((root / "sys/fs/cgroup" / limit).read_text()) - _number(root, used))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return max(0, free)


def _number(root: Path, name: str) -> int:
    return int((root / "sys/fs/cgroup" / name).read_text())


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


def read_gpus(root: Path = Path("/"), visible: str | None = None) -> tuple[tuple[Gpu, ...], list[str]]:
    """The NVIDIA cards that CUDA_VISIBLE_DEVICES leaves, and what could not be found out."""
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
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    return tuple(gpus if wanted is None else _visible(gpus, wanted)), []


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


def _visible(gpus: list[Gpu], wanted: str) -> list[Gpu]:
    """CUDA's own reading: indices or beginnings of UUIDs; the first that is not valid hides all behind it."""
    chosen = []
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        if word.startswith("MIG-"):
            raise TopologyError(f"CUDA_VISIBLE_DEVICES names a MIG slice ({word}): give whole cards.")
        fitting = [gpu for gpu in gpus if str(gpu.index) == word or gpu.uuid.startswith(word)]
        if not fitting:
            break
        chosen.append(fitting[0])
    return chosen


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
