"""A queue under attack: workers and runners are killed and stopped, disks fill, part files are damaged, runners double.

    python -P -m videoinfer.eval.queue_chaos [--jobs 200] [--minutes 10] [--seed 1] [--model demo]

Stub jobs stand in for the model; every clip is a real mp4. With --model the real batch makes real clips, some of them
from pictures, which disappear for a while. At the end, after one undisturbed run, every job must be done exactly once
with its own latents (those of a run that nobody disturbed), every clip must play, and no process and no part file may
be left.
"""

import argparse
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
from ..media.publish import PART
from .chaos_queues import engine_queue, stub_queue


class Chaos:
    """Attacks on the runners of one folder; `command` starts one of them."""

    def __init__(self, folder: Path, seed: int, command: list[str]) -> None:
        self.folder, self.draw, self.done, self.command = folder, random.Random(seed), Counter(), command
        self.runners: list[subprocess.Popen] = []
        self.stopped: list[psutil.Process] = []

    def start(self) -> subprocess.Popen:
        nowhere = subprocess.DEVNULL
        self.runners.append(
            subprocess.Popen([sys.executable, "-P", "-m", *self.command], stdout=nowhere, stderr=nowhere)
        )
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
            (self.folder / f"{self.draw.choice(waiting).name}.mp4{PART}").write_bytes(b"rubbish")

    def hide_picture(self) -> None:
        """A reference disappears while runs go on, and comes back."""
        if pictures := sorted((self.folder / "pictures").glob("*.png")):
            picture = self.draw.choice(pictures)
            hidden = picture.rename(picture.with_suffix(".hidden"))
            time.sleep(self.draw.uniform(2.0, 6.0))
            hidden.rename(picture)

    def queue(self) -> JobQueue:
        return JobQueue(open_journal(self.folder / ".videoinfer" / "journal.sqlite", create=True))

    def run(self, minutes: float) -> None:
        attacks: list[Callable[[], None]] = [
            *[self.kill_worker] * 4,
            *[self.stop_worker] * 2,
            self.kill_runner,
            self.second_runner,
            self.leave_part,
            *([self.hide_picture] * 2 if (self.folder / "pictures").exists() else []),
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


def check(folder: Path, latents: dict[str, str], frames: int) -> dict[str, int]:
    """What must hold after everything; a count above 0 behind `wrong` is a bug of the queue.

    latents: digest of the video latents that each job must have made, by its name.
    """
    queue = JobQueue(open_journal(folder / ".videoinfer" / "journal.sqlite"))
    jobs = queue.jobs()
    wrong = Counter()
    for job in jobs:
        done = [attempt for attempt in queue.attempts(job.id) if attempt["outcome"] == "done"]
        wrong["not done"] += job.state is not State.DONE
        wrong["done more than once"] += len(done) > 1
        # A clip that was complete when its runner was killed is taken over from the disk, with the sidecar's digest.
        sidecar = json.loads((folder / f"{job.name}.json").read_text(encoding="utf-8"))
        made = (job.result or sidecar).get("latents") or sidecar.get("latents")
        wrong["other latents"] += made is None or made["video"] != latents[job.name]
        wrong["unplayable"] += probe_mp4(folder / f"{job.name}.mp4")["frames"] != frames
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
    parser.add_argument("--model", help="make real clips with this model; default: stub jobs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.model is None:
            command, wanted = stub_queue(folder, given.jobs, random.Random(given.seed))
        else:
            command, wanted = engine_queue(folder, given.jobs, given.model)
        chaos = Chaos(folder, given.seed, command)
        chaos.start()
        chaos.run(given.minutes)
        queue = chaos.queue()
        queue.retry([job.id for job in queue.jobs(State.FAILED, State.SET_ASIDE)])
        code = chaos.start().wait()
        told = {"attacks": dict(chaos.done), "last run": code}
        told |= check(folder, wanted, frames=2 if given.model is None else 124)
    print(json.dumps(told))
    sys.exit(any(count for name, count in told.items() if name.startswith("wrong")))


if __name__ == "__main__":
    main()
