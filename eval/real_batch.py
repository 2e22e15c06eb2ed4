"""A real `videoinfer batch` as a measurement starts it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..demo.suite import WORKFLOWS, make_cases


def batch_command(file: Path, folder: Path, model: str, steps: int, instances: int, *more: str) -> list[str]:
    """One thread for each instance, on the CPU."""
    command = [sys.executable, "-P", "-m", "videoinfer.apps.cli", "batch", str(file), "-o", str(folder), "-m", model]
    command += ["--steps", str(steps), "--instances", str(instances), "--threads", "1", "--device", "cpu", "--json"]
    return [*command, *more]


def run_batch(command: Sequence[str]) -> dict[str, Any]:
    """What the batch printed. CalledProcessError when it does not end with 0."""
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def case_lines(count: int, folder: Path) -> list[dict[str, Any]]:
    """Lines of a job file, a third of each workflow, with ids; their pictures are written into `folder`."""
    cases = [case for workflow in WORKFLOWS for case in make_cases(workflow, -(-count // 3), folder)][:count]
    lines = []
    for k, case in enumerate(cases):
        references = [{"kind": r.kind, "path": str(r.path)} for r in case.request.references]
        lines.append({"id": f"job-{k}", "prompt": case.request.prompt_text, "references": references, "seed": k})
    return lines


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def sidecar(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
