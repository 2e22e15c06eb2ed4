"""Videos per hour of the queue: two instances against one, and against two bare engine loops without a queue.

    python -P -m videoinfer.eval.queue_speed [--model demo] [--prompts 64] [--steps 8] [--rounds 1] [--options]

Every side makes the same clips with one thread per instance, on cores of its own. A queue's time runs from when its
first worker is ready to the end of the last clip; a bare loop's from its first request on.

With --options instead, on one instance: encoding as a phase of its own, and decoding beside the next loop, against
neither.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..demo.suite import make_cases
from .real_batch import batch_command, run_batch, write_lines

COUNTS: dict[str, tuple[Any, ...]] = {"one": (1,), "two": (2,)}
OPTIONS: dict[str, tuple[Any, ...]] = {
    "one-phase": (1, "--one-phase", "--no-overlap"),
    "two-phase": (1, "--two-phase", "--no-overlap"),
    "overlap": (1, "--one-phase", "--overlap"),
}
LOOP = """
import sys, time, json
from videoinfer.placement.affinity import bind
core, model, steps, folder = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
bind([core], None, 1)
from videoinfer import GenerationRequest, Output, VideoEngine
lines = json.load(sys.stdin)
with VideoEngine.from_pretrained(model, device="cpu") as engine:
    print("ready", flush=True)
    began = time.time()
    for seed, prompt in lines:
        engine.generate(GenerationRequest(prompt=prompt, seed=seed, steps=steps, output=Output(folder=folder)))
    print(json.dumps([began, time.time()]), flush=True)
"""


def through_queue(file: Path, model: str, steps: int, instances: int, folder: Path, *more: str) -> float:
    """Videos per hour."""
    return run_batch(batch_command(file, folder, model, steps, instances, *more))["run"]["videos_per_hour"]


def bare_loops(lines: list[tuple[int, str]], model: str, steps: int, loops: int, folder: Path) -> float:
    """Videos per hour of `loops` engines side by side, each with its share of the prompts."""
    cores = sorted(os.sched_getaffinity(0))
    running = []
    for k in range(loops):
        command = [sys.executable, "-P", "-c", LOOP, str(cores[k]), model, str(steps), str(folder / str(k))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process.stdin.write(json.dumps(lines[k::loops]))  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
        running.append(process)
    spans = []
    for process in running:
        spans.append(json.loads(process.stdout.read().splitlines()[-1]))  # type: ignore[union-attr]
        process.wait()
    return len(lines) / (max(end for _, end in spans) - min(begin for begin, _ in spans)) * 3600.0


def measure(model: str, count: int, steps: int, rounds: int, options: bool) -> dict[str, Any]:
    """Medians over the rounds. `options`: the queue's own choices on one instance, not the number of instances."""
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases("t2va", count, Path(folder))
    lines = [(case.request.seed, case.request.prompt_text) for case in cases]
    rates: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = write_lines(folder / "jobs.jsonl", [{"prompt": p, "seed": s} for s, p in lines])
            sides: dict[str, Callable[[], float]] = {}
            for side, (instances, *more) in (OPTIONS if options else COUNTS).items():
                sides[side] = partial(through_queue, file, model, steps, instances, folder / side, *more)
            if not options:
                sides["bare two"] = partial(bare_loops, lines, model, steps, 2, folder / "bare")
            for side in list(sides)[:: 1 if number % 2 else -1]:
                rates[side].append(sides[side]())
    median = {name: statistics.median(values) for name, values in rates.items()}
    pairs = (("two-phase", "one-phase"), ("overlap", "one-phase")) if options else (("two", "one"), ("two", "bare two"))
    return {
        "clips": count,
        "steps": steps,
        "videos_per_hour": {name: round(value, 1) for name, value in median.items()},
        **{f"{one} / {other}": round(median[one] / median[other], 3) for one, other in pairs},
        "at": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--options", action="store_true", help="compare two-phase and overlap with neither")
    given = parser.parse_args()
    print(json.dumps(measure(given.model, given.prompts, given.steps, given.rounds, given.options)))


if __name__ == "__main__":
    main()
