"""Which cards the instances go on, and how much of a card may be used."""

from collections import Counter
from collections.abc import Sequence

from .topology import Gpu, Topology, TopologyError

RESERVE_SHARE, RESERVE = 0.06, 1 << 30  # of a card, kept free: fragmentation, other processes, CUDA's context


def chosen(topology: Topology, gpus: tuple[int, ...] | None) -> list[Gpu]:
    """The cards that were asked for, or all. Raises TopologyError for one that is not there or is named twice."""
    if not topology.gpus:
        raise TopologyError("there is no GPU here: use --device cpu. " + " ".join(topology.notes))
    if gpus is None:
        return list(topology.gpus)
    known = {gpu.index: gpu for gpu in topology.gpus}
    there = ",".join(map(str, known))
    if not gpus:
        raise TopologyError(f"--gpus names no card; there are {there}.")
    named = ",".join(map(str, gpus))
    if unknown := [index for index in gpus if index not in known]:
        raise TopologyError(f"--gpus {named}: there is no card {unknown[0]}; there are {there}.")
    if len(set(gpus)) != len(gpus):
        raise TopologyError(f"--gpus {named} names a card twice.")
    return [known[index] for index in gpus]


def usable(gpu: Gpu) -> int:
    """Bytes of a card that a plan may promise."""
    return max(0, int(gpu.free_bytes - RESERVE_SHARE * gpu.memory_bytes - RESERVE))


def root(gpu: Gpu) -> str:
    """The root port that a card hangs under: cards of one root share its way to the host."""
    return gpu.pci_path[0] if gpu.pci_path else gpu.pci_bus_id


def spread(gpus: Sequence[Gpu], count: int) -> list[Gpu]:
    """The cards for `count` instances, in the given order. Fewer instances than cards take those that share least:
    other nodes first, then other PCIe roots."""
    left, taken = list(gpus), []
    nodes, roots = Counter[int | None](), Counter[str]()
    while left and len(taken) < count:
        gpu = min(left, key=lambda gpu: (nodes[gpu.numa_node], roots[root(gpu)]))
        left.remove(gpu)
        taken.append(gpu)
        nodes[gpu.numa_node] += 1
        roots[root(gpu)] += 1
    return sorted(taken, key=list(gpus).index)
