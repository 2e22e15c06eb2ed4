"""A queue under attack: workers and runners are killed and stopped, disks fill, part files are damaged, runners double.

    python -P -m videoinfer.eval.queue_chaos [--jobs 200] [--minutes 10] [--seed 1]

Stub jobs stand in for the model; every clip is a real mp4. At the end, after one undisturbed run, every job must be
done exactly once with its own latents, every clip must play, and no process and no part file may be left.
"""

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from ..jobs import JobQueue, State, open_journal
from ..media import probe_mp4

INSTANCES = 3


class Chaos:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw, self.done = folder, random.Random(seed), Counter()
        self.runners: list[subprocess.Popen] = []
        self.stopped: list[psutil.Process] = []

    def start(self) -> subprocess.Popen:
        command = [sys.executable, "-P", "-m", "videoinfer.eval.stub_batch", str(self.folder)]
        command += ["--jobs", str(self.folder / "jobs.jsonl"), "--instances", str(INSTANCES), "--silence", "6"]
        self.runners.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return self.runners[-1]

    def workers(self) -> list[psutil.Process]:
        found = []
        for runner in self.runners:
            if runner.poll() is None:
                found += psutil.Process(runner.pid).children(recursive=True)
        return found

    def kill_worker(self) -> None:
        if alive := self.workers():
            self.draw.choice(alive).kill()

    def stop_worker(self) -> None:
        if alive := self.workers():
            self.draw.choice(alive).send_signal(signal.SIGSTOP)

    def kill_runner(self) -> None:
        living = [runner for runner in self.runners if runner.poll() is None]
        if living:
            victim = self.draw.choice(living)
            victim.kill()
            victim.wait()
        if len(living) <= 1:
            self.start()

    def second_runner(self) -> None:
        if sum(runner.poll() is None for runner in self.runners) < 2:
            self.start()

    def leave_part(self) -> None:
        """As a crash leaves it: a part file with rubbish in it."""
        waiting = self.queue().jobs(State.QUEUED)
        if waiting:
            (self.folder / f"{self.draw.choice(waiting).name}.mp4.part").write_bytes(b"rubbish")

    def queue(self) -> JobQueue:
        return JobQueue(open_journal(self.folder / ".videoinfer" / "journal.sqlite", create=True))

    def run(self, minutes: float) -> None:
        attacks: list[Callable[[], None]] = [
            *[self.kill_worker] * 4,
            *[self.stop_worker] * 2,
            self.kill_runner,
            self.second_runner,
            self.leave_part,
        ]
        end = time.monotonic() + minutes * 60.0
        while time.monotonic() < end and set(self.queue().counts()) != {State.DONE}:
            if all(runner.poll() is not None for runner in self.runners):
                self.start()
            time.sleep(self.draw.uniform(0.5, 3.0))
            attack = self.draw.choice(attacks)
            self.done[attack.__name__] += 1
            try:
                attack()
            except psutil.NoSuchProcess:
                continue
        for runner in self.runners:
            if runner.poll() is None:
                runner.wait()


def check(folder: Path) -> dict[str, int]:
    """What must hold after everything; AssertionError is a bug of the queue."""
    queue = JobQueue(open_journal(folder / ".videoinfer" / "journal.sqlite"))
    jobs = queue.jobs()
    wrong = Counter()
    for job in jobs:
        request = json.loads(job.request)
        wanted = hashlib.sha256(f"{request['prompt']} {request.get('seed', 0)}".encode()).hexdigest()
        done = [attempt for attempt in queue.attempts(job.id) if attempt["outcome"] == "done"]
        wrong["not done"] += job.state is not State.DONE
        wrong["done more than once"] += len(done) > 1
        latents = (job.result or {}).get("latents")
        wrong["other latents"] += latents is not None and latents["video"] != wanted
        wrong["unplayable"] += probe_mp4(folder / f"{job.name}.mp4")["frames"] != 2
        wrong["no sidecar"] += not (folder / f"{job.name}.json").exists()
    wrong["part files"] = len(list(folder.glob("*.part")))
    wrong["orphans"] = sum(
        "videoinfer.placement.worker" in " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cmdline"])
    )
    attempts = sum(len(queue.attempts(job.id)) for job in jobs)
    return {"jobs": len(jobs), "attempts": attempts, **{f"wrong: {name}": count for name, count in wrong.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = random.Random(given.seed)
        lines = [
            {"prompt": f"stub {draw.uniform(0.2, 2.0):.2f}" + (" full 1" if k % 10 == 0 else ""), "seed": k}
            for k in range(given.jobs)
        ]
        (folder / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        chaos = Chaos(folder, given.seed)
        chaos.start()
        chaos.run(given.minutes)
        queue = chaos.queue()
        queue.retry([job.id for job in queue.jobs(State.FAILED, State.SET_ASIDE)])
        code = chaos.start().wait()
        told = {"attacks": dict(chaos.done), "last run": code, **check(folder)}
    print(json.dumps(told))
    sys.exit(any(count for name, count in told.items() if name.startswith("wrong")))


if __name__ == "__main__":
    main()
