"""Whether a worker grows: its peak memory, job after job, over a long queue of all three workflows.

python -P -m videoinfer.eval.queue_memory [--model demo] [--jobs 200] [--steps 2]
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from ..jobs import JobQueue, open_journal
from .real_batch import batch_command, case_lines, run_batch, sidecar, write_lines


def measure(model: str, count: int, steps: int) -> dict[str, object]:
    """Medians in MB over tenths of the queue, in the order in which the jobs were made, from each job's sidecar."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write_lines(folder / "jobs.jsonl", case_lines(count, folder))
        run_batch(batch_command(file, folder / "out", model, steps, 1))
        queue = JobQueue(open_journal(folder / "out" / ".videoinfer" / "journal.sqlite"))
        ended = {job.name: queue.attempts(job.id)[-1]["ended"] for job in queue.jobs()}
        peaks = [sidecar(folder / "out", name)["peak_memory_mb"] for name in sorted(ended, key=ended.__getitem__)]
    tenth = max(1, len(peaks) // 10)
    tenths = [round(statistics.median(peaks[k : k + tenth])) for k in range(0, len(peaks), tenth)]
    return {"jobs": len(peaks), "MB by tenths of the queue": tenths, "last / second": round(tenths[-1] / tenths[1], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2)
    given = parser.parse_args()
    print(json.dumps(measure(given.model, given.jobs, given.steps)))


if __name__ == "__main__":
    main()
