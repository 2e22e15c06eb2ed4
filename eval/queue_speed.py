"""Videos per hour of the queue: two instances against one, and against two bare engine loops without a queue.

    python -P -m videoinfer.eval.queue_speed [--model demo] [--prompts 64] [--steps 8] [--rounds 1]

Every side makes the same clips with one thread per instance, on cores of its own. A queue's time runs from when its
first worker is ready to the end of the last clip; a bare loop's from its first request on.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..demo.suite import make_cases

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
    command = [sys.executable, "-P", "-m", "videoinfer.apps.cli", "batch", str(file), "-m", model, "-o", str(folder)]
    command += [
        "--steps",
        str(steps),
        "--instances",
        str(instances),
        "--threads",
        "1",
        "--device",
        "cpu",
        "--json",
        *more,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["run"]["videos_per_hour"]


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


def measure(model: str, count: int, steps: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases("t2va", count, Path(folder))
    lines = [(case.request.seed, case.request.prompt_text) for case in cases]
    rates: dict[str, list[float]] = {"one": [], "two": [], "bare two": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = folder / "jobs.jsonl"
            file.write_text("".join(json.dumps({"prompt": p, "seed": s}) + "\n" for s, p in lines), encoding="utf-8")
            rates["two"].append(through_queue(file, model, steps, 2, folder / "two"))
            rates["bare two"].append(bare_loops(lines, model, steps, 2, folder / "bare"))
            rates["one"].append(through_queue(file, model, steps, 1, folder / "one"))
    median = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "clips": count,
        "steps": steps,
        "videos_per_hour": {name: round(value, 1) for name, value in median.items()},
        "two / one": round(median["two"] / median["one"], 3),
        "two / bare two": round(median["two"] / median["bare two"], 3),
        "at": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(measure(given.model, given.prompts, given.steps, given.rounds)))


if __name__ == "__main__":
    main()
