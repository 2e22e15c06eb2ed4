"""Whether one request makes one clip, whichever instance makes it, and whatever was made before or after a resume.

    python -P -m videoinfer.eval.queue_instances [--model demo] [--instances 16] [--steps 4]

Two requests, each as many times as there are instances, in turn; the first runner is killed half-way.
"""

import argparse
import json
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from ..jobs import JobQueue, State, open_journal
from .real_batch import batch_command, run_batch, sidecar, write_lines

PROMPTS = ("a large red circle moves right on a black background", "a small blue square moves up on a gray background")


def measure(model: str, instances: int, steps: int) -> dict[str, object]:
    """For each prompt, how many different latents were made, of how many clips, by which instances."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [{"id": f"{p}-{k}", "prompt": PROMPTS[p], "seed": 7} for k in range(instances) for p in (0, 1)]
        command = batch_command(write_lines(folder / "jobs.jsonl", lines), folder / "out", model, steps, instances)
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        journal = folder / "out" / ".videoinfer" / "journal.sqlite"
        while not journal.exists():
            time.sleep(0.5)
        while JobQueue(open_journal(journal)).counts()[State.DONE] < instances and first.poll() is None:
            time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = JobQueue(open_journal(journal)).counts()[State.DONE]
        run_batch(command)
        queue = JobQueue(open_journal(journal))
        made, by = defaultdict(set), defaultdict(set)
        for job in queue.jobs():
            made[job.name[0]].add(json.dumps(sidecar(folder / "out", job.name)["latents"]))
            by[job.name[0]].add(queue.attempts(job.id)[-1]["instance"])
    return {
        "clips of each request": instances,
        "done when the runner was killed": before,
        "different latents of each": [len(found) for found in made.values()],
        "instances that made one": [sorted(found) for found in by.values()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    print(json.dumps(measure(given.model, given.instances, given.steps)))


if __name__ == "__main__":
    main()
