"""What the queue itself costs: jobs that only sleep, on many instances.

    python -P -m videoinfer.eval.queue_overhead [--instances 16] [--seconds 60]

`overhead` is the share of the instances' time without a job, for equal jobs that fill all of them; `makespan`
is the time of a mixed queue over the best that any schedule could reach (the greater of the mean load and the longest
job). Both leave out the start of the workers and count everything from the first moment in which all are ready.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

from ..request import GenerationRequest
from .stub_batch import run_stubs, stub_jobs


def measure(seconds: list[float], instances: int) -> dict[str, float]:
    """Make one stub job for each of `seconds` on warm workers; wall time over the ideal."""
    with tempfile.TemporaryDirectory() as folder:
        # Jobs for the warm-up: nothing is measured until every worker has made one.
        warm = [GenerationRequest(prompt="stub 0.5", seed=k, steps=1) for k in range(instances)]
        jobs = [GenerationRequest(prompt=f"stub {s:.4f}", seed=k, steps=4) for k, s in enumerate(seconds, start=1000)]
        first, rest = stub_jobs(warm), stub_jobs(jobs)
        first = [type(job)(**{**vars(job), "priority": 1}) for job in first]
        queue, _, _ = run_stubs(Path(folder), [*first, *rest], instances, clips=False)
        with queue.journal.reading() as db:
            rows = db.execute(
                "SELECT a.started AS started, a.ended AS ended FROM attempts a JOIN jobs j ON j.id = a.job "
                "WHERE j.priority = 0 AND a.outcome = 'done'"
            ).fetchall()
    began, ended = min(row["started"] for row in rows), max(row["ended"] for row in rows)
    ideal = max(sum(seconds) / instances, max(seconds))
    return {"wall": ended - began, "ideal": ideal, "ratio": (ended - began) / ideal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each of the two runs")
    given = parser.parse_args()
    each = 4.0
    equal = measure([each] * (round(given.seconds / each) * given.instances), given.instances)
    draw = random.Random(5)
    mixed: list[float] = []
    while sum(mixed) < given.seconds * given.instances:
        mixed.append(draw.choice((1.0, 2.0, 4.0, 12.0)))
    told = {
        "instances": given.instances,
        "overhead": round(1.0 - 1.0 / equal["ratio"], 4),
        "makespan": round(measure(mixed, given.instances)["ratio"], 4),
        "jobs": [round(given.seconds / each) * given.instances, len(mixed)],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
