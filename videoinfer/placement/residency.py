"""How much of a model stays in memory at a time: all of it, all but the encoders, or one stage; and what then fits."""

from collections.abc import Sequence
from dataclasses import dataclass

from .cards import spread, usable
from .footprint import Footprint
from .topology import Gpu

HELP = "What helps: quantised weights (int8 or fp8), more memory, or a smaller model."
BESIDE = ", with decoding beside denoising, which gains most of what a second instance on a card would"


@dataclass(frozen=True)
class Residency:
    """Bytes of one instance, on its device and in the host's memory beside it."""

    name: str
    device: int
    host: int
    two_phase: bool = False
    offload: bool = False


def residencies(footprint: Footprint) -> tuple[Residency, Residency, Residency]:
    """The three ways, fastest first."""
    phases = max(footprint.encode + footprint.working, footprint.without_encoders)
    weights = footprint.together - footprint.working
    return (
        Residency("all stages resident", footprint.together, footprint.host),
        Residency("encoders as a phase of their own", phases, footprint.host, two_phase=True),
        # Every process keeps a copy of its own in the host's memory: 16 instances need it 16 times.
        Residency("weights moved in stage by stage", footprint.largest_stage, footprint.host + weights, offload=True),
    )


def allowed(ways: Sequence[Residency], two_phase: bool | None) -> list[Residency]:
    """Those that a wish leaves: None leaves all, True only the phase, False only everything resident."""
    if two_phase is None:
        return list(ways)
    return [way for way in ways if way.two_phase == two_phase and not way.offload]


def first_fit(ways: Sequence[Residency], gpus: Sequence[Gpu], count: int, host: int) -> Residency | None:
    """The first way in which `count` instances fit the cards, each of which may have to hold the most of any card, and
    `host` bytes of the host's memory."""
    cards = spread(gpus, count)
    per_card, room = -(-count // len(cards)), min(map(usable, cards))
    return next((way for way in ways if per_card * way.device <= room and count * way.host <= host), None)


def refusal(footprint: Footprint, gpus: Sequence[Gpu], count: int, host: int, two_phase: bool | None) -> str:
    """What is needed, what there is, and what would fit: only ways that were tried."""
    cards = spread(gpus, count)
    per_card, smallest = -(-count // len(cards)), min(cards, key=usable)
    ways = residencies(footprint)
    needs = ", or ".join(
        f"{gb(per_card * way.device)} of the card and {gb(count * way.host)} of the host ({way.name})" for way in ways
    )
    text = (
        f"{count} instances of {footprint.name} do not fit: {per_card} on a card of {gb(smallest.memory_bytes)} "
        f"({gb(usable(smallest))} usable; {gb(host)} of host memory available) need {needs}. "
    )
    options = _options(ways, gpus, count, host, two_phase)
    return text + (f"What fits: {'; or '.join(options)}. " if options else "") + HELP


def _options(
    ways: Sequence[Residency], gpus: Sequence[Gpu], count: int, host: int, two_phase: bool | None
) -> list[str]:
    options = []
    if two_phase is not None and (way := first_fit(ways, gpus, count, host)):
        options.append(f"without {'--two-phase' if two_phase else '--one-phase'}: {way.name}")
    permitted = allowed(ways, two_phase)
    # Fewer instances: the most that fit at all, and the most with one on a card.
    fewer = dict(_most(permitted, gpus, limit, host) for limit in (count - 1, min(count - 1, len(gpus))))
    for n, way in fewer.items():
        if n > len(gpus):
            options.append(f"--instances {n} ({-(-n // len(gpus))} on a card), {way.name}")
        elif n:
            options.append(f"--instances {n}, {way.name}" + (BESIDE if count > len(gpus) else ""))
    # Other cards: those that one instance fits on.
    roomy = [gpu for gpu in gpus if first_fit(permitted, [gpu], 1, host)]
    if 0 < len(roomy) < len(gpus):
        options.append(f"--gpus {','.join(str(gpu.index) for gpu in roomy)}")
    return options


def _most(ways: Sequence[Residency], gpus: Sequence[Gpu], limit: int, host: int) -> tuple[int, Residency]:
    """The most instances, up to `limit`, that fit in one of the ways, and that way; 0 when none does."""
    room = min(map(usable, gpus))

    def most(way: Residency) -> int:
        n = min(limit, len(gpus) * (room // max(1, way.device)), host // max(1, way.host))
        if n >= len(gpus):
            return n
        below = range(min(limit, len(gpus) - 1), 0, -1)  # on some of the cards, perhaps the larger ones
        return next((n for n in below if first_fit([way], gpus, n, host)), 0)

    best = max(ways, key=most)
    return most(best), best


def cpu_refusal(footprint: Footprint, ways: Sequence[Residency], count: int, available: int) -> str:
    """The same on a CPU, where `ways` were tried."""
    each = [way.device + way.host for way in ways]
    needs = ", or ".join(f"{gb(count * size)} ({way.name})" for way, size in zip(ways, each, strict=True))
    text = f"{count} instances of {footprint.name} need {needs}, and {gb(available)} are available. "
    if fits := available // min(each):
        return text + f"Ask for at most --instances {fits}."
    phases = residencies(footprint)[1]
    if phases not in ways and count * (phases.device + phases.host) <= available:
        return text + f"What fits: without --one-phase, {phases.name}."
    return text + f"The model does not fit this machine. {HELP}"


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
