"""From a box and a model to the workers of a batch: the plan, what it costs, and the processes that carry it out."""

import json
import os
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from ..errors import RequestError
from ..jobs.queue import NewJob
from ..jobs.report import replace_file
from ..placement.footprint import estimate_footprint
from ..placement.local import LocalLauncher
from ..placement.machine import read_topology
from ..placement.plan import Plan, Wish, make_plan
from ..placement.topology import Topology
from ..placement.visible import cuda_card
from ..placement.worker import WorkerSetup
from ..regular_file import expanded
from .batch_screen import duration

ENGINE = "videoinfer.placement.engine_workload:EngineWorkload"


def make_plan_for(engine: Any, options: Any) -> Plan:
    """The plan of a batch on this machine (or on the box of `options.facts`).

    Raises PlacementError with numbers, TopologyError for a card that is not there, RequestError for options that
    contradict.
    """
    instances: int | str = options.instances
    if instances != "auto":
        try:
            instances = int(instances)
        except ValueError:
            raise RequestError(f"--instances {instances!r} is no number: write auto, or 1 or more.") from None
        if instances < 1:
            raise RequestError(f"--instances {instances} is too few: write auto, or 1 or more.")
    device = options.device.split(":")[0] if options.facts is not None else engine.model.device.type
    topology = read_topology(options.facts, cards=options.device != "cpu")
    wish = Wish(
        instances=instances,  # type: ignore[arg-type]
        gpus=_cards(options, topology),
        threads=options.threads,
        two_phase=options.two_phase,
        overlap=options.overlap,
        device=device,
    )
    return make_plan(topology, estimate_footprint(engine), wish)


def _cards(options: Any, topology: Topology) -> tuple[int, ...] | None:
    """The numbers of the cards that were asked for, as nvidia-smi counts; None leaves all.

    --gpus holds such numbers. --device cuda:N is torch's name for the N-th card that CUDA shows, and means that one;
    with nothing hidden the two are the same. RequestError when both are given and differ.
    """
    name, _, number = options.device.partition(":")
    if name != "cuda" or not number.isdecimal():  # any other name was checked when the engine was opened
        return options.gpus
    given, card = options.gpus, cuda_card(topology.gpus, int(number))
    if given not in (None, (card.index,)):
        raise RequestError(
            f"--device {options.device} is card {card.index} as nvidia-smi counts, and --gpus "
            f"{','.join(map(str, given))} asks for others: leave one of the two out."
        )
    return (card.index,)


def start_workers(plan: Plan, model: str, options: Any, logs: Path) -> LocalLauncher:
    """How the runner starts each instance of the plan."""
    setups, environments, delays = [], [], []
    for instance in plan.instances:
        workload = {
            "model": str(expanded(model).absolute()) if expanded(model).is_dir() else model,
            "strict": options.strict,
            "accept_licence": options.accept_licence,
            "device": instance.device,
            "dtype": options.dtype,
            "offline": options.offline,
            "slots": (str(logs.parent / "slots"), plan.encode_slots),
        }
        setups.append(
            WorkerSetup(
                instance.index,
                os.getpid(),
                ENGINE,
                workload,
                instance.cpus,
                instance.numa_node,
                instance.threads,
                plan.overlap,
            )
        )
        threads = str(instance.threads)
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        if instance.gpu_uuid is not None:
            environment["CUDA_VISIBLE_DEVICES"] = instance.gpu_uuid
        environments.append(environment)
        delays.append(instance.start_after_seconds)
    return LocalLauncher(setups, environments, delays, logs)


def describe_dry_run(plan: Plan, jobs: list[NewJob], engine: Any, journal: Path) -> dict[str, Any]:
    """What a dry run prints (`text`) and gives as JSON: the plan, the jobs, the expected time."""
    total = sum(job.cost for job in jobs)
    known = known_rate(engine)
    seconds = None if known is None else total * known / len(plan.instances)
    lines = [
        f"{len(jobs)} jobs, {total:.3g} units (1e9 pixel-forwards), journal {journal}",
        plan.table(),
        f"expected time: {duration(seconds)} (from earlier clips of this model on this machine)"
        if seconds is not None
        else "expected time: not known yet; no clip of this model was made in a batch on this machine",
    ]
    return {
        "text": "\n".join(lines),
        "jobs": len(jobs),
        "cost": total,
        "expected_seconds": seconds,
        "plan": plan.to_json(),
    }


def _rate_key(engine: Any) -> str:
    return f"{engine.model.name} {engine.model.device.type} {str(engine.model.dtype).removeprefix('torch.')}"


def known_rate(engine: Any) -> float | None:
    """Seconds per unit of cost of one instance, as the last batch of this model here measured it."""
    rate = _rates().get(_rate_key(engine))
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def remember_rate(engine: Any, rate: float) -> None:
    """Keep it for the next dry run; a cache that cannot be written is no error."""
    file = _rates_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps({**_rates(), _rate_key(engine): rate}))
    except OSError:
        return


def _rates_file() -> Path:
    return user_cache_path("videoinfer") / "rates.json"


def _rates() -> dict[str, Any]:
    """What was kept, by `_rate_key`; nothing when the file is not there or is no such file."""
    try:
        rates = json.loads(_rates_file().read_text())
    except (OSError, ValueError):
        return {}
    return rates if isinstance(rates, dict) else {}
