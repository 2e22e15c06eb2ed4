"""Run a queue of stub jobs: what the real batch does, with sleep in the place of a model.

python -P -m videoinfer.eval.stub_batch FOLDER [--jobs jobs.jsonl] [--instances 16] [--two-phase] [--no-clips]
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..jobs import JobQueue, NewJob, State, open_journal
from ..jobs.intake import job_id
from ..jobs.lines import read_lines
from ..jobs.on_disk import recover
from ..jobs.runner import Runner, RunnerOptions
from ..jobs.runners import reclaim, registered
from ..placement.local import LocalLauncher
from ..placement.worker import WorkerSetup
from ..request import GenerationRequest

STUB = "videoinfer.eval.stub_workload:StubWorkload"


def stub_jobs(requests: Iterable[GenerationRequest]) -> list[NewJob]:
    """Jobs whose cost is the number of seconds in their prompt."""
    jobs = []
    for number, request in enumerate(requests, start=1):
        identity = job_id(request, request.content_hash())
        text = request.model_dump_json(exclude_none=True)
        seconds = float(request.prompt_text.split()[1])
        key = request.content_hash()[:16]
        jobs.append(NewJob(identity, number, text, key, key, request.id or identity, "stub", seconds))
    return jobs


def run_stubs(
    folder: Path,
    jobs: list[NewJob],
    instances: int,
    options: RunnerOptions | None = None,
    *,
    clips: bool = True,
    overlap: bool = True,
    interrupt: Any = None,
) -> tuple[JobQueue, Runner, float]:
    """Make the jobs in `folder`; returns the queue, the runner, and the seconds from the first ready worker on."""
    state = folder / ".videoinfer"
    journal = open_journal(state / "journal.sqlite", create=True)
    faults = state / "faults"
    faults.mkdir(exist_ok=True)
    setups = [
        WorkerSetup(k, os.getpid(), STUB, {"faults": str(faults) if clips else "", "clip": clips}, overlap=overlap)
        for k in range(instances)
    ]
    launcher = LocalLauncher(setups, [{"OMP_NUM_THREADS": "1"}] * instances, [0.0] * instances, state / "logs")
    with registered(journal) as queue:
        reclaim(journal)
        recover(queue, folder)
        queue.add(jobs)
        conditionings = state / "conditionings"
        log = (state / "events.jsonl").open("a", encoding="utf-8")
        first: list[float] = []

        def on_event(event: str, job: Any, text: str) -> None:
            log.write(json.dumps({"event": event, "job": job.name if job else None, "text": text}) + "\n")
            log.flush()

        def on_beat(runner: Runner) -> None:
            if not first and all(seat.ready for seat in runner.seats):
                first.append(time.monotonic())
            if interrupt is not None:
                interrupt(runner)

        runner = Runner(
            queue,
            launcher,
            lambda name: folder / f"{name}.mp4",
            lambda key: conditionings / f"{key}.safetensors",
            options or RunnerOptions(),
            on_event,
            lambda: shutil.disk_usage(folder).free > 1 << 20,
            on_beat,
        )
        runner.run()
        ended = time.monotonic()
    return JobQueue(journal), runner, ended - (first[0] if first else runner.began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--two-phase", action="store_true")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--silence", type=float, default=10.0)
    parser.add_argument("--no-clips", action="store_true")
    given = parser.parse_args()
    jobs = []
    if given.jobs is not None:
        lines = read_lines(given.jobs.read_bytes().splitlines(), str(given.jobs), given.jobs.parent)
        jobs = stub_jobs(line.request for line in lines)
    options = RunnerOptions(two_phase=given.two_phase, time_limit=given.time_limit, silence=given.silence)
    queue, _, _ = run_stubs(given.folder, jobs, given.instances, options, clips=not given.no_clips)
    sys.exit(0 if all(state is State.DONE for state in queue.counts()) else 1)


if __name__ == "__main__":
    main()
