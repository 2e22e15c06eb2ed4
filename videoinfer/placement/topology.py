"""What a box is made of, as far as placing instances goes: cards, the PCIe tree, NUMA nodes, cores, memory."""

import json
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    where = f"the facts file {path}"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TopologyError(f"{where} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"{where} is not JSON: {error}.") from error
    data = _checked(data, Topology, where)
    gpus = tuple(Gpu(**_checked(gpu, Gpu, f"{where}, gpus[{k}]")) for k, gpu in enumerate(data["gpus"]))
    nodes = tuple(NumaNode(**_checked(node, NumaNode, f"{where}, nodes[{k}]")) for k, node in enumerate(data["nodes"]))
    if not nodes or not all(node.cores for node in nodes):
        raise TopologyError(f"{where}: every box has a NUMA node with at least one core.")
    for gpu in gpus:
        if gpu.free_bytes > gpu.memory_bytes:
            raise TopologyError(
                f"{where}: card {gpu.index} has {gpu.free_bytes} bytes free of {gpu.memory_bytes}; expected no more "
                "than it has."
            )
    for what, values in (
        ("card", [gpu.index for gpu in gpus]),
        ("card", [gpu.uuid for gpu in gpus]),
        ("node", [node.index for node in nodes]),
        ("CPU", [cpu for node in nodes for core in node.cores for cpu in core]),
    ):
        if twice := [value for value, times in Counter(values).items() if times > 1]:
            raise TopologyError(f"{where}: {what} {twice[0]} is there more than once; expected once.")
    return Topology(gpus, nodes, data["available_memory_bytes"], data.get("notes", ()))


def _checked(data: Any, kind: type, where: str) -> dict[str, Any]:
    """The fields of a dataclass, each of its form; JSON's lists as tuples."""
    if not isinstance(data, dict):
        raise TopologyError(f"{where}: expected an object, found {type(data).__name__}.")
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(set(data) - set(known)):
        raise TopologyError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}.")
    if missing := [name for name, field in known.items() if name not in data and field.default is MISSING]:
        raise TopologyError(f"{where}: {missing[0]} is missing.")
    for name, value in data.items():
        if not _FORMS[name].holds(value):
            shown = textwrap.shorten(json.dumps(value), 60, placeholder=" ...")
            raise TopologyError(f"{where}: {name} is {shown}; expected {_FORMS[name].text}.")
    return {name: _tupled(value) for name, value in data.items()}


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0  # a bool is an int to isinstance


def _cores(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(core, list) and core and all(_count(cpu) for cpu in core) for core in value
    )


class _Form(NamedTuple):
    holds: Callable[[Any], bool]
    text: str


_NUMBER = _Form(_count, "a whole number, 0 or more")
_TEXT = _Form(lambda value: isinstance(value, str), "text")
_TEXTS = _Form(lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value), "a list of text")
_LIST = _Form(lambda value: isinstance(value, list), "a list")
_FORMS = {
    **dict.fromkeys(("index", "memory_bytes", "free_bytes", "available_memory_bytes"), _NUMBER),
    **dict.fromkeys(("uuid", "name", "pci_bus_id"), _TEXT),
    **dict.fromkeys(("pci_path", "notes"), _TEXTS),
    **dict.fromkeys(("gpus", "nodes"), _LIST),
    "cores": _Form(_cores, "a list of cores, each the list of its CPUs' numbers"),
    "numa_node": _Form(lambda value: value is None or _count(value), "a whole number, or null where it is not known"),
}
