"""`videoinfer cache calibrate`: dense runs into an entry of a calibration file."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..calibration import Calibration
from ..errors import RequestError
from ..jobs.lines import read_lines
from ..jobs.report import replace_file
from ..request import GenerationRequest


def run(
    output: Path,
    model: str,
    workflow: str,
    steps: int,
    runs: int,
    prompts: Path | None,
    device: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Adds the entry and returns it. RequestError before anything runs when the file holds one for these runs already,
    or is of another kind."""
    entries = Calibration.read(output, model, must_exist=False).entries
    if any((entry["workflow"], entry["steps"]) == (workflow, steps) for entry in entries):
        raise RequestError(f"{output} holds an entry for {workflow} with {steps} steps already: name another file.")
    if not output.parent.is_dir():
        raise RequestError(f"{output.parent} is no folder: make it first, or name another file.")
    if prompts is None and model != "demo":
        raise RequestError(f"the model {model} has no prompts of its own: give --prompts with a job file.")
    if runs < 1 or steps < 2:
        raise RequestError(f"-n {runs} must be 1 or more, and --steps {steps} 2 or more.")
    from ..engine import VideoEngine
    from ..eval.calibrate import calibrate

    with tempfile.TemporaryDirectory() as folder:
        requests = _requests(prompts, workflow, runs, Path(folder))
        if other := [request.workflow for request in requests if request.workflow != workflow]:
            raise RequestError(f"a request of {prompts} is of the workflow {other[0]}, not {workflow}.")
        requests = [request.model_copy(update={"steps": steps, "cache": None}) for request in requests]
        with VideoEngine.from_pretrained(model, device=device) as engine:
            entry = calibrate(engine, requests, say)
    replace_file(
        output,
        json.dumps({"entries": [*Calibration.read(output, model, must_exist=False).entries, entry]}, indent=1) + "\n",
    )
    return entry


def _requests(prompts: Path | None, workflow: str, runs: int, folder: Path) -> list[GenerationRequest]:
    if prompts is not None:
        try:
            lines = prompts.read_bytes().splitlines()
        except OSError as error:
            raise RequestError(f"the job file {prompts} cannot be read: {error.strerror}.") from error
        return [line.request for line in read_lines(lines, str(prompts), prompts.absolute().parent)]
    from ..demo.suite import WORKFLOWS, make_cases

    if workflow not in WORKFLOWS:
        raise RequestError(f"--workflow {workflow} is not one of {', '.join(WORKFLOWS)}.")
    # Another seed than the evaluation's: what is measured on these prompts must hold on others.
    return [case.request for case in make_cases(workflow, runs, folder, seed=4242)]
