"""What a box is made of, as far as placing instances goes: cards, the PCIe tree, NUMA nodes, cores, memory."""

import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..errors import VideoInferError

Link = Literal["SELF", "PIX", "PXB", "PHB", "NODE", "SYS"]


class TopologyError(VideoInferError):
    """A facts file that does not describe a box, or cards that are named and not there."""


@dataclass(frozen=True)
class Gpu:
    """One card. `pci_path`: the bridges from the root port down; `numa_node`: None where the firmware is silent."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    free_bytes: int
    pci_bus_id: str
    pci_path: tuple[str, ...] = ()
    numa_node: int | None = None


@dataclass(frozen=True)
class NumaNode:
    """`cores`: physical cores, each with its logical CPUs."""

    index: int
    cores: tuple[tuple[int, ...], ...]
    memory_bytes: int


@dataclass(frozen=True)
class Topology:
    """A box. `available_memory_bytes` is what a process may still take of the host; `notes` say what is not known."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[NumaNode, ...]
    available_memory_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        return sum(len(node.cores) for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def link(a: Gpu, b: Gpu) -> Link:
    """How two cards reach each other, in nvidia-smi's words: PIX through one switch, PXB through several, PHB through
    the host bridge, NODE within a socket, SYS across sockets."""
    if a.pci_bus_id == b.pci_bus_id:
        return "SELF"
    shared = 0
    while shared < min(len(a.pci_path), len(b.pci_path)) and a.pci_path[shared] == b.pci_path[shared]:
        shared += 1
    if shared:
        # What lies below the last shared bridge: one bridge on each side is still the same switch.
        below = max(len(a.pci_path), len(b.pci_path)) - shared
        return "PIX" if below <= 1 else "PXB"
    if _domain(a) == _domain(b):
        return "PHB"
    return "NODE" if a.numa_node == b.numa_node and a.numa_node is not None else "SYS"


def _domain(gpu: Gpu) -> str:
    """The host bridge: domain and root bus."""
    return ":".join((gpu.pci_path[0] if gpu.pci_path else gpu.pci_bus_id).split(":")[:2])


def load_facts(path: Path) -> Topology:
    """The box of a facts file, as `Topology.to_json` writes it. Raises TopologyError naming what is wrong in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TopologyError(f"the facts file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise TopologyError(f"the facts file {path} is not JSON: {error}.") from error
    where = f"the facts file {path}"
    data = _checked(data, Topology, where)
    gpus = tuple(Gpu(**_typed(_checked(gpu, Gpu, f"{where}, gpus[{k}]"))) for k, gpu in enumerate(data["gpus"]))
    nodes = tuple(
        NumaNode(**_typed(_checked(node, NumaNode, f"{where}, nodes[{k}]"))) for k, node in enumerate(data["nodes"])
    )
    if not nodes or not all(node.cores for node in nodes):
        raise TopologyError(f"{where}: every box has a NUMA node with at least one core.")
    return Topology(gpus, nodes, data["available_memory_bytes"], tuple(data.get("notes", ())))


def _checked(data: Any, kind: type, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TopologyError(f"{where}: expected an object, found {type(data).__name__}.")
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(set(data) - set(known)):
        raise TopologyError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}.")
    if missing := [name for name, field in known.items() if name not in data and field.default is MISSING]:
        raise TopologyError(f"{where}: {missing[0]} is missing.")
    for name, value in data.items():
        wanted = _KINDS[name]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TopologyError(f"{where}: {name} is {value!r}; expected {_NAMES[wanted]}.")
    return data


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    """JSON's lists as tuples."""
    return {name: _tupled(value) for name, value in data.items()}


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value


_NUMBER, _TEXT, _LIST, _NODE = int, str, list, (int, type(None))
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("index", "memory_bytes", "free_bytes", "available_memory_bytes"), _NUMBER),
    **dict.fromkeys(("uuid", "name", "pci_bus_id"), _TEXT),
    **dict.fromkeys(("pci_path", "cores", "gpus", "nodes", "notes"), _LIST),
    "numa_node": _NODE,
}
_NAMES = {_NUMBER: "a whole number", _TEXT: "text", _LIST: "a list", _NODE: "a whole number or null"}
