"""From a box, a model's footprint and a wish to a plan: how many instances, where, and how they share the memory."""

import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from .cards import RESERVE, RESERVE_SHARE, chosen, root, spread
from .cores import Core, cores_near, cores_within_nodes, crowding, node_of, ranges
from .footprint import Footprint
from .residency import allowed, cpu_refusal, first_fit, gb, refusal, residencies
from .topology import Gpu, Topology, TopologyError
from .wish import PlacementError, Wish

__all__ = ["RESERVE", "RESERVE_SHARE", "InstancePlan", "PlacementError", "Plan", "Wish", "make_plan"]

READ_SPEED = 2.0e9  # bytes per second, assumed of one load; what a start is staggered by
CORES_PER_ENCODER = 4
THREADS_BESIDE_GPU = 8  # at most: beside a card a worker draws noise, reads words and hands on frames
WIDTH = 100  # columns of a printed plan


@dataclass(frozen=True)
class InstancePlan:
    """One worker: its device, its cores, and when it starts. `numa_node`: that of all its cores; None where they span
    several, or where there is no choice."""

    index: int
    device: str
    gpu_index: int | None
    gpu_uuid: str | None
    numa_node: int | None
    cpus: tuple[int, ...]
    threads: int
    start_after_seconds: float


@dataclass(frozen=True)
class Plan:
    """`per_device` and `host` are expected bytes; `notes` say what was decided and why."""

    footprint: Footprint
    instances: tuple[InstancePlan, ...]
    two_phase: bool
    offload: bool
    overlap: bool
    encode_slots: int
    per_device: int
    host: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def table(self) -> str:
        """The plan as text, at most 100 columns."""
        what = (
            f"{self.footprint.name}: {len(self.instances)} instances, "
            + ("encoders as a phase of their own" if self.two_phase else "all stages in turn")
            + (", weights moved in stage by stage" if self.offload else "")
            + (", decoding beside denoising" if self.overlap else "")
        )
        memory = (
            f"expected memory: {gb(self.per_device)} on each device, {gb(self.host)} of the host; "
            f"{self.encode_slots} clips written at a time"
        )
        lines = [
            *_wrapped(what),
            *_wrapped(memory),
            f"{'#':>3} {'device':<8} {'node':>4} {'threads':>7} {'start':>7}  cores",
        ]
        for one in self.instances:
            device = "cpu" if one.gpu_index is None else f"cuda:{one.gpu_index}"
            node = "-" if one.numa_node is None else str(one.numa_node)
            start = f"{one.start_after_seconds:.0f} s"
            row = f"{one.index:>3} {device:<8} {node:>4} {one.threads:>7} {start:>7}  "
            cores = textwrap.wrap(ranges(one.cpus).replace(",", ", "), WIDTH - len(row))
            lines += [(row if k == 0 else " " * len(row)) + part.replace(", ", ",") for k, part in enumerate(cores)]
        for note in self.notes:
            lines += _wrapped(f"note: {note}")
        return "\n".join(lines)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ")


def make_plan(topology: Topology, footprint: Footprint, wish: Wish) -> Plan:
    """Place the instances. Pure: the same arguments give the same plan.

    Raises PlacementError when it cannot fit, TopologyError for a card that is not there.
    """
    if wish.device == "cuda" or (wish.device == "auto" and topology.gpus):
        return _on_gpus(topology, footprint, wish)
    if wish.gpus is not None:
        given = ",".join(map(str, wish.gpus))
        raise TopologyError(f"--gpus {given}: the instances run on the CPU. Leave it out, or use a GPU.")
    return _on_cpu(topology, footprint, wish)


def _on_gpus(topology: Topology, footprint: Footprint, wish: Wish) -> Plan:
    gpus = chosen(topology, wish.gpus)
    count = len(gpus) if wish.instances == "auto" else wish.instances
    available = topology.available_memory_bytes
    ways = residencies(footprint)
    way = first_fit(allowed(ways, wish.two_phase), gpus, count, available)
    if way is None:
        raise PlacementError(refusal(footprint, gpus, count, available, wish.two_phase))
    # Instance k sits on card k modulo the number of cards.
    cards = spread(gpus, count)
    per_card = -(-count // len(cards))
    places = [cards[k % len(cards)] for k in range(count)]
    notes = list(topology.notes)
    if way is not ways[0] and wish.two_phase is None:
        notes.append(f"all stages together need {gb(per_card * footprint.together)} on a card: {way.name}")
    if per_card > 1:
        notes.append(
            f"{per_card} instances share a card: that gains at most the time in which one of them does not denoise"
        )
    cores = cores_near(topology.nodes, [gpu.numa_node for gpu in places])
    if len(topology.nodes) > 1:
        far = [k for k, gpu in enumerate(places) if node_of(topology.nodes, cores[k]) != gpu.numa_node]
        if far:
            notes.append(
                f"instances {ranges(far)} run away from their card: its NUMA node is not known, or has no core left"
            )
    load = footprint.encode if way.two_phase else footprint.together - footprint.working
    started: Counter[str] = Counter()
    instances = []
    for k, gpu in enumerate(places):
        # Loads under one root take turns: they would only slow each other, and double the peak of a card.
        delay = started[root(gpu)] * load / READ_SPEED
        started[root(gpu)] += 1
        threads = wish.threads or min(len(cores[k]), THREADS_BESIDE_GPU)
        instances.append(_instance(topology, k, "cuda", gpu, cores[k], threads, delay))
    return Plan(
        footprint,
        tuple(instances),
        way.two_phase,
        way.offload,
        True if wish.overlap is None else wish.overlap,
        _slots(topology),
        per_card * way.device,
        count * way.host,
        tuple(notes + crowding(cores, wish.threads)),
    )


def _on_cpu(topology: Topology, footprint: Footprint, wish: Wish) -> Plan:
    available = topology.available_memory_bytes
    permitted = allowed(residencies(footprint)[:2], wish.two_phase)  # there is nowhere to move weights in from
    fitting = {way.name: available // max(1, way.device + way.host) for way in permitted}
    least = 1 if wish.instances == "auto" else wish.instances
    way = next((way for way in permitted if fitting[way.name] >= least), None)
    if way is None:
        raise PlacementError(cpu_refusal(footprint, permitted, least, available))
    notes = list(topology.notes)
    if wish.instances == "auto":
        count = max(1, topology.cores // (wish.threads or 1))
        if fitting[way.name] < count:
            count = fitting[way.name]
            notes.append(f"memory allows {count} instances on {topology.cores} cores")
    else:
        count = wish.instances
    if way.two_phase and wish.two_phase is None:
        notes.append(f"all stages together need {gb(least * (footprint.together + footprint.host))}: {way.name}")
    cores = cores_within_nodes(topology.nodes, count)
    load = (footprint.encode if way.two_phase else footprint.together - footprint.working) / READ_SPEED
    return Plan(
        footprint,
        tuple(
            _instance(topology, k, "cpu", None, cores[k], wish.threads or len(cores[k]), k * load) for k in range(count)
        ),
        way.two_phase,
        False,
        bool(wish.overlap),  # left open, no: decoding would take the cores that denoise
        _slots(topology),
        way.device,
        count * (way.device + way.host),
        tuple(notes + crowding(cores, wish.threads)),
    )


def _instance(
    topology: Topology, index: int, device: str, gpu: Gpu | None, cores: list[Core], threads: int, delay: float
) -> InstancePlan:
    return InstancePlan(
        index,
        device,
        None if gpu is None else gpu.index,
        None if gpu is None else gpu.uuid,
        node_of(topology.nodes, cores),
        tuple(cpu for core in cores for cpu in core),
        threads,
        round(delay, 1),
    )


def _slots(topology: Topology) -> int:
    return max(1, topology.cores // CORES_PER_ENCODER)
