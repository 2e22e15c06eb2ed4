"""What `videoinfer report` does: the clips through a queue, their measures, the timing, and the report."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ..calibration import NAME, Calibration
from ..errors import RequestError
from ..eval.report.assemble import assemble
from ..eval.report.clips import Clip, clips_of, job_lines
from ..eval.report.markdown import markdown
from ..eval.report.methods import Method, expand, resolve, split_names
from ..eval.report.page import page
from ..eval.report.plots import write_plots
from ..eval.report.prompts import Prompt, file_prompts, suite_prompts
from ..eval.report.timing import read_timing, time_clips, timed_clips
from ..jobs import JobQueue, State, open_journal
from ..jobs.report import replace_file
from . import batch
from .generate import open_engine, settle_licence

CLIPS, PICTURES = "clips", "pictures"  # folders of a report


@dataclass(frozen=True)
class ReportOptions:
    """What was given on the command line."""

    folder: Path
    methods: str
    model: str = "demo"
    workflows: tuple[str, ...] = ("t2va",)
    sweep: bool = False
    prompts: Path | None = None
    count: int | None = None
    steps: int = 50
    calibration: Path | None = None
    budget: float | None = None
    instances: str = "auto"
    threads: int | None = None
    rounds: int = 3
    quality_only: bool = False
    accept_licence: bool = False
    offline: bool = False
    device: str = "auto"
    dtype: str = "auto"

    @property
    def engine(self) -> dict[str, Any]:
        """How the engine is opened."""
        names = ("accept_licence", "offline", "device", "dtype")
        return {name: getattr(self, name) for name in names}


def run(options: ReportOptions, *, quiet: bool = False) -> tuple[int, dict[str, Any] | None]:
    """Makes the report; returns the exit code and the report (None when Ctrl-C ended the making of clips).

    Raises the errors of videoinfer.errors, for everything that was asked wrongly before anything runs.
    """
    console = Console(stderr=True, quiet=quiet)
    names = expand(split_names(options.methods), options.steps, options.sweep)
    settle_licence(options.model, options.accept_licence, console, may_ask=not quiet)
    methods = _methods(options, names)
    clips = clips_of(_prompts(options), methods)
    code = _make(options, clips, quiet)
    if code == batch.EXIT_INTERRUPTED:
        return code, None
    say = lambda text: console.print(text, highlight=False, soft_wrap=True, markup=False)  # noqa: E731
    from ..eval.report.quality import measure_clips

    folder, pictures = options.folder / CLIPS, options.folder / PICTURES
    measured = measure_clips(clips, folder, pictures, lambda: open_engine(options.model, **options.engine), say)
    timing = None if options.quality_only else _timing(options, timed_clips(clips), say)
    told = assemble(clips, measured, _reasons(options), timing, options.model, options.steps, options.budget)
    _write(options.folder, told)
    for text in told["warnings"]:
        say(f"note: {text}")
    return code, told


def _methods(options: ReportOptions, names: list[str]) -> dict[str, list[Method]]:
    """The methods of each workflow. RequestError with what is wrong in all of them."""
    with open_engine(options.model, **options.engine) as engine:
        known = engine.model.family.workflows
        if not options.workflows or not set(options.workflows) <= set(known):
            raise RequestError(f"--workflow {','.join(options.workflows)!r}: this model has {', '.join(known)}.")
        model = engine.model.source(options.workflows[0]).folder
    path = options.calibration or model / NAME
    calibration = Calibration.read(path, options.model, must_exist=options.calibration is not None)
    found = {}
    for workflow in options.workflows:
        entry, missing = calibration.entry(workflow, options.steps), calibration.missing(workflow, options.steps)
        found[workflow] = resolve(names, options.steps, entry, missing, _blocks(model))
    return found


def _blocks(model: Path) -> int | None:
    """Blocks of the transformer in a model's folder; None where its configuration does not say."""
    try:
        return json.loads((model / "transformer" / "config.json").read_text(encoding="utf-8")).get("num_layers")
    except (OSError, ValueError):
        return None


def _prompts(options: ReportOptions) -> list[Prompt]:
    if options.prompts is not None:
        return file_prompts(options.prompts, options.workflows, options.count)
    if options.model != "demo":
        raise RequestError(f"the model {options.model} has no prompts of its own: give --prompts with a job file.")
    return suite_prompts(options.workflows, options.count or 32, options.folder / "references")


def _journal(options: ReportOptions) -> Path:
    return batch.journal_path(options.folder)  # where `videoinfer jobs DIR` looks


def _make(options: ReportOptions, clips: list[Clip], quiet: bool) -> int:
    """The clips that are not there yet, through the queue; the exit code of a batch."""
    options.folder.mkdir(parents=True, exist_ok=True)
    jobs = options.folder / "jobs.jsonl"
    replace_file(jobs, job_lines(clips))
    code, _ = batch.run(
        str(jobs),
        batch.BatchOptions(
            folder=options.folder / CLIPS,
            journal=_journal(options),
            model=options.model,
            instances=options.instances,
            threads=options.threads,
            **options.engine,
        ),
        quiet=quiet,
    )
    return code


def _reasons(options: ReportOptions) -> dict[str, str]:
    """Why clips are not made, by name."""
    queue = JobQueue(open_journal(_journal(options)))
    jobs = [job for job in queue.jobs() if job.state is not State.DONE]
    return {job.name: f"{job.state}: {job.reason or 'not begun'}" for job in jobs}


def _timing(options: ReportOptions, clips: list[Clip], say: Any) -> dict[str, Any]:
    path = options.folder / "timing.json"
    if (earlier := read_timing(path, clips, options.rounds)) is not None:
        say(f"the timing of {earlier['at']} is used again; remove {path} to measure anew")
        return earlier
    with open_engine(options.model, **options.engine) as engine:
        return time_clips(engine, clips, options.rounds, path, say)


def _write(folder: Path, told: dict[str, Any]) -> None:
    """The files of the report, over those of an earlier one."""
    write_plots(told, folder / "plots")
    replace_file(folder / "report.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    replace_file(folder / "report.md", markdown(told))
    replace_file(folder / "report.html", page(told, CLIPS, PICTURES, folder))
