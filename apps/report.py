"""`videoinfer report` as typer sees it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import RequestError

METHODS_HELP = (
    "What is compared with dense, separated by commas: fewer-steps@25, static@25 (the best 25 steps of a calibration), "
    "or any cache setting as a request takes it, such as first-block@0.1. A bare name stands for the --settings of it."
)
CALIBRATION_HELP = (
    "File of `videoinfer cache calibrate`, for magcache, teacache and static@K. Default: cache_calibration.json in the "
    "model's folder"
)


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


def report(
    output: Annotated[Path, _option("Folder of the report, its clips and its queue.", "--output", "-o")],
    methods: Annotated[str, _option(METHODS_HELP, "--methods")],
    model: Annotated[str, _option("demo, a model folder, or a hub id. Default: demo", "--model", "-m")] = "demo",
    workflow: Annotated[str, _option("Some of t2va,fl2va,ref2va. Default: t2va", "--workflow")] = "t2va",
    settings: Annotated[
        str, _option("Of a bare method name: shipped (one, the default) or sweep (several).", "--settings")
    ] = "shipped",
    prompts: Annotated[
        Path | None, _option("Job file with the prompts. Default: those of the embedded model", "--prompts")
    ] = None,
    count: Annotated[
        int | None, _option("Prompts of each workflow. Default: 32, or all of the job file", "--count", "-n")
    ] = None,
    steps: Annotated[int, _option("Forwards of the dense run. Default: 50", "--steps")] = 50,
    calibration: Annotated[Path | None, _option(CALIBRATION_HELP, "--calibration")] = None,
    budget: Annotated[
        float | None, _option("The largest rho that does not violate the budget, for the violation rate.", "--budget")
    ] = None,
    instances: Annotated[
        str, _option("Copies of the model that make the clips; a number or auto (the default).", "--instances")
    ] = "auto",
    threads: Annotated[int | None, _option("CPU threads per instance.", "--threads")] = None,
    rounds: Annotated[int, _option("Rounds of the timing pass. Default: 3", "--rounds")] = 3,
    quality_only: Annotated[bool, _option("Time nothing.", "--quality-only")] = False,
    accept_licence: Annotated[bool, _option("Accept the licence of the weights.", "--accept-licence")] = False,
    offline: Annotated[bool, _option("Download nothing.", "--offline")] = False,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1. Default: auto", "--device")] = "auto",
    dtype: Annotated[str, _option("auto, bfloat16, float32. Default: auto", "--dtype")] = "auto",
    as_json: Annotated[bool, _option("Print one JSON object on stdout.", "--json")] = False,
    debug: Annotated[bool, _option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    """Compare step caches with the dense run: quality on the same prompts, speed in alternating rounds.

    Run it again after anything: clips that are made and measured stay, and so does a timing of the same clips.
    """
    if settings not in ("shipped", "sweep"):
        raise RequestError(f"--settings {settings} is not allowed: write shipped or sweep.")
    if rounds < 1 or steps < 1 or (count is not None and count < 1):
        raise RequestError(f"--rounds {rounds}, --steps {steps} and -n {count} must be 1 or more.")
    if budget is not None and not budget > 0.0:
        raise RequestError(f"--budget {budget:g} must be more than 0: it is a relative error.")
    from . import report_run as command

    options = command.ReportOptions(
        folder=output,
        methods=methods,
        model=model,
        workflows=tuple(dict.fromkeys(name.strip() for name in workflow.split(",") if name.strip())),
        sweep=settings == "sweep",
        prompts=prompts,
        count=count,
        steps=steps,
        calibration=calibration,
        budget=budget,
        instances=instances,
        threads=threads,
        rounds=rounds,
        quality_only=quality_only,
        accept_licence=accept_licence,
        offline=offline,
        device=device,
        dtype=dtype,
    )
    code, told = command.run(options, quiet=as_json)
    if told is not None:
        typer.echo(json.dumps(told) if as_json else str(output / "report.md"))
    raise typer.Exit(code)
