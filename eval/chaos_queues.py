"""The queues that `queue_chaos` attacks: the command that runs one, and the latents that each of its jobs must make."""

import hashlib
import random
import sys
from pathlib import Path

from .real_batch import batch_command, case_lines, run_batch, sidecar, write_lines

STUBS = [sys.executable, "-P", "-m", "videoinfer.eval.stub_batch"]


def stub_queue(folder: Path, count: int, draw: random.Random) -> tuple[list[str], dict[str, str]]:
    """Jobs of .2 to 2 s that sleep; every tenth meets a full disk once."""
    prompts = [f"stub {draw.uniform(0.2, 2.0):.2f}" + (" full 1" if k % 10 == 0 else "") for k in range(count)]
    lines = [{"id": f"job-{k}", "prompt": prompt, "seed": k} for k, prompt in enumerate(prompts)]
    file = write_lines(folder / "jobs.jsonl", lines)
    wanted = {line["id"]: hashlib.sha256(f"{line['prompt']} {line['seed']}".encode()).hexdigest() for line in lines}
    return [*STUBS, str(folder), "--jobs", str(file), "--instances", "3", "--silence", "6"], wanted


def engine_queue(folder: Path, count: int, model: str) -> tuple[list[str], dict[str, str]]:
    """Clips of the model at 2 forwards, two thirds of them from pictures; what they must be comes from a batch that
    nobody disturbs."""
    (folder / "pictures").mkdir()
    lines = case_lines(count, folder / "pictures")
    file = write_lines(folder / "jobs.jsonl", lines)
    run_batch(batch_command(file, folder / "calm", model, 2, 1))
    wanted = {line["id"]: sidecar(folder / "calm", line["id"])["latents"]["video"] for line in lines}
    return batch_command(file, folder, model, 2, 2), wanted
