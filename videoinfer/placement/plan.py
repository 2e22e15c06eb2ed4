"""From a box, a model's footprint and a wish to a plan: how many instances, where, and how they share the memory."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import VideoInferError
from .footprint import Footprint
from .topology import Gpu, NumaNode, Topology, TopologyError

GB = 1e9
RESERVE_SHARE, RESERVE = 0.06, 1 << 30  # of a card, kept free: fragmentation, other processes, CUDA's context
READ_SPEED = 2.0e9  # bytes per second, assumed of one load; what a start is staggered by
CORES_PER_ENCODER = 4


class PlacementError(VideoInferError):
    """The wish does not fit the box; the message holds the numbers, and what would fit."""


@dataclass(frozen=True)
class Wish:
    """What a user asks for. None: as the plan finds it best.

    instances  a number, or "auto": one for each card (a second one gains only the time of a card's idle stages), and
               on a CPU one for each core, since small models use one core best
    """

    instances: int | Literal["auto"] = "auto"
    gpus: tuple[int, ...] | None = None
    threads: int | None = None
    two_phase: bool | None = None
    overlap: bool | None = None
    device: str = "auto"


@dataclass(frozen=True)
class InstancePlan:
    """One worker: its device, its cores, and when it starts."""

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
        lines = [
            f"{self.footprint.name}: {len(self.instances)} instances, "
            + ("encoders as a phase of their own" if self.two_phase else "all stages in turn")
            + (", weights moved in stage by stage" if self.offload else "")
            + (", decoding beside denoising" if self.overlap else ""),
            f"expected memory: {_gb(self.per_device)} on each device, {_gb(self.host)} of the host; "
            f"{self.encode_slots} clips written at a time",
            f"{'#':>3} {'device':<8} {'node':>4} {'threads':>7} {'start':>7}  cores",
        ]
        for one in self.instances:
            device = "cpu" if one.gpu_index is None else f"cuda:{one.gpu_index}"
            node = "-" if one.numa_node is None else str(one.numa_node)
            start = f"{one.start_after_seconds:.0f} s"
            lines.append(f"{one.index:>3} {device:<8} {node:>4} {one.threads:>7} {start:>7}  {_ranges(one.cpus)}"[:100])
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def make_plan(topology: Topology, footprint: Footprint, wish: Wish) -> Plan:
    """Place the instances. Pure: the same arguments give the same plan.

    Raises PlacementError when it cannot fit, TopologyError for a card that is not there.
    """
    if wish.device.startswith("cuda") or (wish.device == "auto" and topology.gpus):
        return _on_gpus(topology, footprint, wish)
    if wish.gpus is not None:
        raise TopologyError(f"--gpus {_list(wish.gpus)}: the instances run on the CPU. Leave it out, or use a GPU.")
    return _on_cpu(topology, footprint, wish)


def _on_gpus(topology: Topology, footprint: Footprint, wish: Wish) -> Plan:
    gpus = _chosen(topology, wish)
    count = len(gpus) if wish.instances == "auto" else wish.instances
    if count < len(gpus):
        gpus = gpus[:count]
    per_card = -(-count // len(gpus))
    smallest = min(gpus, key=lambda gpu: gpu.free_bytes)
    room = int(smallest.free_bytes - RESERVE_SHARE * smallest.memory_bytes - RESERVE)
    two_phase, offload, notes = _sharing(topology, footprint, wish, smallest, room, per_card, count)
    need = footprint.largest_stage if offload else _resident(footprint, two_phase)
    host = count * (footprint.host + (footprint.together - footprint.working if offload else 0))
    if host > topology.available_memory_bytes:
        raise PlacementError(
            f"{count} instances of {footprint.name} need {_gb(host)} of host memory, and "
            f"{_gb(topology.available_memory_bytes)} are available. Ask for fewer --instances."
        )
    if per_card > 1:
        notes.append(
            f"{per_card} instances share a card: that gains at most the time in which one of them does not denoise"
        )
    # Instance k sits on card k modulo the number of cards; cards of one socket take turns in loading.
    places = [gpus[k % len(gpus)] for k in range(count)]
    cores = _cores_by_instance(topology, [gpu.numa_node for gpu in places], notes)
    load = footprint.encode if two_phase else footprint.together - footprint.working
    instances = []
    for k, gpu in enumerate(places):
        cpus = cores[k]
        threads = wish.threads or max(1, min(len(cpus), 8))
        delay = (sum(_root(other) == _root(gpu) for other in places[:k])) * load / READ_SPEED
        instances.append(InstancePlan(k, "cuda", gpu.index, gpu.uuid, gpu.numa_node, cpus, threads, round(delay, 1)))
    overlap = True if wish.overlap is None else wish.overlap
    return Plan(
        footprint,
        tuple(instances),
        two_phase,
        offload,
        overlap,
        _slots(topology),
        per_card * need,
        host,
        tuple([*topology.notes, *notes]),
    )


def _sharing(
    topology: Topology, footprint: Footprint, wish: Wish, card: Gpu, room: int, per_card: int, count: int
) -> tuple[bool, bool, list[str]]:
    """Whether the encoders get a phase of their own, and whether weights move: the first of these that fits."""
    if wish.two_phase is not True and per_card * footprint.together <= room:
        return False, False, []
    need = per_card * _resident(footprint, True)
    if wish.two_phase is not False and need <= room:
        return True, False, [f"all stages together need {_gb(per_card * footprint.together)} on a card: in two phases"]
    if wish.two_phase is None and per_card * footprint.largest_stage <= room:
        weights = count * (footprint.together - footprint.working + footprint.host)
        if weights <= topology.available_memory_bytes:
            return (
                False,
                True,
                [f"two phases need {_gb(need)} on a card: the weights of a stage move in when it begins"],
            )
    raise PlacementError(_refusal(topology, footprint, wish, card, room, per_card, count))


def _resident(footprint: Footprint, two_phase: bool) -> int:
    if not two_phase:
        return footprint.together
    return max(footprint.encode + footprint.working, footprint.without_encoders)


def _refusal(
    topology: Topology, footprint: Footprint, wish: Wish, card: Gpu, room: int, per_card: int, count: int
) -> str:
    ways = {
        "all stages resident": footprint.together,
        "encoders as a phase of their own": _resident(footprint, True),
        "weights moved in stage by stage": footprint.largest_stage,
    }
    text = (
        f"{count} instances of {footprint.name} do not fit: {per_card} on a card of {_gb(card.memory_bytes)} "
        f"({_gb(room)} usable, {_gb(topology.available_memory_bytes)} of host memory) need "
        + ", or ".join(f"{_gb(per_card * size)} ({name})" for name, size in ways.items())
        + ". "
    )
    fitting = [name for name, size in ways.items() if size <= room]
    if per_card > 1 and fitting:
        cards = count // per_card if count % per_card == 0 else -(-count // per_card)
        return text + (
            f"What fits: one instance on a card (--instances {cards}), {fitting[0]}, with decoding beside denoising, "
            "which gains most of what a second instance would."
        )
    if wish.two_phase is not None and fitting:
        return text + f"What fits: {fitting[0]}; leave --two-phase/--one-phase out."
    return text + "What helps: quantised weights (int8 or fp8), cards with more memory, or a smaller model."


def _on_cpu(topology: Topology, footprint: Footprint, wish: Wish) -> Plan:
    two_phase = bool(wish.two_phase)
    each = _resident(footprint, two_phase) + footprint.host
    fitting = topology.available_memory_bytes // each if each else topology.cores
    notes: list[str] = []
    if wish.instances == "auto":
        count = max(1, min(topology.cores // (wish.threads or 1), fitting))
        if fitting < topology.cores:
            notes.append(f"memory allows {fitting} instances on {topology.cores} cores")
    else:
        count = wish.instances
    if fitting < max(1, count):
        raise PlacementError(
            f"{count} instances of {footprint.name} need {_gb(count * each)} ({_gb(each)} each), and "
            f"{_gb(topology.available_memory_bytes)} are available. "
            + (f"Ask for at most --instances {fitting}." if fitting else "The model does not fit this machine.")
        )
    if count > topology.cores:
        notes.append(f"{count} instances share {topology.cores} cores: more than one on a core gains nothing")
    nodes = [topology.nodes[k * len(topology.nodes) // count].index if count > 1 else None for k in range(count)]
    cores = _cores_by_instance(topology, nodes, notes)
    load = (footprint.together - footprint.working) / READ_SPEED
    instances = tuple(
        InstancePlan(
            k,
            "cpu",
            None,
            None,
            nodes[k] if len(topology.nodes) > 1 else None,
            cores[k],
            wish.threads or max(1, _physical(topology, cores[k])),
            round(k * load, 1),
        )
        for k in range(count)
    )
    overlap = False if wish.overlap is None else wish.overlap  # decoding would take the cores that denoise
    return Plan(
        footprint,
        instances,
        two_phase,
        False,
        overlap,
        _slots(topology),
        each - footprint.host,
        count * each,
        tuple([*topology.notes, *notes]),
    )


def _chosen(topology: Topology, wish: Wish) -> list[Gpu]:
    if not topology.gpus:
        raise TopologyError("there is no GPU here: use --device cpu. " + " ".join(topology.notes))
    if wish.gpus is None:
        return list(topology.gpus)
    known = {gpu.index: gpu for gpu in topology.gpus}
    if unknown := [index for index in wish.gpus if index not in known]:
        raise TopologyError(
            f"--gpus {_list(wish.gpus)}: there is no card {unknown[0]}; there are {_list(tuple(known))}."
        )
    if len(set(wish.gpus)) != len(wish.gpus):
        raise TopologyError(f"--gpus {_list(wish.gpus)} names a card twice.")
    return [known[index] for index in wish.gpus]


def _cores_by_instance(topology: Topology, nodes: list[int | None], notes: list[str]) -> list[tuple[int, ...]]:
    """Disjoint physical cores for each instance, on its node where that is known; shared when there are too few."""
    by_node: dict[int, NumaNode] = {node.index: node for node in topology.nodes}
    wanted = [node if node in by_node else None for node in nodes]
    if None in wanted and len(topology.nodes) > 1 and any(node is not None for node in nodes):
        notes.append("the NUMA node of a card is not known: its instance runs on any cores")
    result: list[tuple[int, ...]] = [()] * len(nodes)
    pools = {index: list(node.cores) for index, node in by_node.items()}
    loose = [k for k, node in enumerate(wanted) if node is None]
    total = sum(map(len, pools.values()))
    fair = max(1, total // len(nodes))
    for index, pool in pools.items():
        mine = [k for k, node in enumerate(wanted) if node == index]
        if not mine:
            continue
        share = max(1, len(pool) // len(mine)) if not loose else max(1, min(fair, len(pool) // len(mine)))
        for place, k in enumerate(mine):
            cores = pool[place * share : (place + 1) * share] or [pool[place % len(pool)]]
            result[k] = tuple(cpu for core in cores for cpu in core)
        del pool[: share * len(mine)]
    rest = [core for pool in pools.values() for core in pool] or [c for node in topology.nodes for c in node.cores]
    share = max(1, len(rest) // len(loose)) if loose else 1
    for place, k in enumerate(loose):
        cores = rest[place * share : (place + 1) * share] or [rest[place % len(rest)]]
        result[k] = tuple(cpu for core in cores for cpu in core)
    return result


def _physical(topology: Topology, cpus: tuple[int, ...]) -> int:
    return sum(1 for node in topology.nodes for core in node.cores if set(core) <= set(cpus))


def _slots(topology: Topology) -> int:
    return max(1, topology.cores // CORES_PER_ENCODER)


def _root(gpu: Gpu) -> str:
    return gpu.pci_path[0] if gpu.pci_path else gpu.pci_bus_id


def _gb(size: float) -> str:
    return f"{size / GB:.1f} GB"


def _list(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def _ranges(cpus: tuple[int, ...]) -> str:
    """`0-3,8` for 0, 1, 2, 3, 8."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
