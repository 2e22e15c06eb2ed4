"""Which physical cores each instance gets: its own, on one NUMA node, as long as there are enough of them."""

from collections import Counter
from collections.abc import Sequence

from .topology import NumaNode

Core = tuple[int, ...]  # one physical core: its logical CPUs


def cores_near(nodes: Sequence[NumaNode], wanted: Sequence[int | None]) -> list[list[Core]]:
    """Cores for instances that want to be near a card: `wanted` holds the card's node, None where it is not known.

    An instance whose node has no core left (or is not among `nodes`) gets cores of other nodes: a long way to the card
    costs less than half a core. Cores are shared only when there are fewer of them than instances.
    """
    near = {node.index: [k for k, want in enumerate(wanted) if want == node.index] for node in nodes}
    near = {node.index: near[node.index][: len(node.cores)] for node in nodes}
    far = [k for k in range(len(wanted)) if not any(k in mine for mine in near.values())]
    fair = sum(len(node.cores) for node in nodes) // len(wanted)
    given: list[list[Core]] = [[] for _ in wanted]
    rest: list[Core] = []
    for node in nodes:
        cores, mine = list(node.cores), near[node.index]
        if mine:
            # Whoever sits near leaves enough for those who find no place near.
            share = max(1, min(len(cores) // len(mine), fair)) if far else len(cores) // len(mine)
            for k in mine:
                given[k], cores = cores[:share], cores[share:]
        rest += cores
    for k, cores in zip(far, _dealt(rest, len(far), nodes), strict=True):
        given[k] = cores
    return given


def cores_within_nodes(nodes: Sequence[NumaNode], count: int) -> list[list[Core]]:
    """Cores for `count` instances that only compute on them. One alone gets all.

    More get equally many, none across two nodes, the most that this allows: with equal threads, every instance makes
    the same latents from the same request.
    """
    everything = [core for node in nodes for core in node.cores]
    if count == 1 or count > len(everything):
        return _dealt(everything, count, nodes)
    share = len(everything) // count
    while sum(len(node.cores) // share for node in nodes) < count:
        share -= 1
    # Nodes take turns, so that none stays idle while another is full; then instances are numbered node by node.
    blocks = [
        (turn, place, list(node.cores[turn * share : (turn + 1) * share]))
        for place, node in enumerate(nodes)
        for turn in range(len(node.cores) // share)
    ]
    taken = sorted(blocks)[:count]
    return [cores for _, _, cores in sorted(taken, key=lambda block: (block[1], block[0]))]


def _dealt(cores: Sequence[Core], count: int, nodes: Sequence[NumaNode]) -> list[list[Core]]:
    """`cores` in equal shares; with fewer cores than takers one each, and then every core of the box once more."""
    if count and (share := len(cores) // count):
        return [list(cores[k * share : (k + 1) * share]) for k in range(count)]
    everything = [core for node in nodes for core in node.cores]
    return [[cores[k] if k < len(cores) else everything[(k - len(cores)) % len(everything)]] for k in range(count)]


def node_of(nodes: Sequence[NumaNode], cores: Sequence[Core]) -> int | None:
    """The node that all of `cores` belong to; None when they span several, or when the box has only one."""
    homes = {node.index for node in nodes for core in cores if core in node.cores}
    return homes.pop() if len(homes) == 1 and len(nodes) > 1 else None


def crowding(cores: Sequence[Sequence[Core]], threads: int | None) -> list[str]:
    """Notes on cores that have more to do than one thread each."""
    notes, least = [], min(map(len, cores))
    used = Counter(core for mine in cores for core in mine)
    if max(used.values()) > 1:
        notes.append(f"{len(cores)} instances share {len(used)} cores: more than one on a core gains nothing")
    if threads and threads > least:
        notes.append(f"an instance has {threads} threads on {least} cores: more than one on a core slows it")
    return notes


def ranges(cpus: Sequence[int]) -> str:
    """`0-3,8` for 0, 1, 2, 3, 8."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
