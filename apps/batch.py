"""`videoinfer batch`: a file of jobs through a durable queue, on as many instances as the plan allows."""

import io
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import RequestError
from ..jobs import JobQueue, RunnerQueue, State, open_journal
from ..jobs.intake import new_jobs
from ..jobs.journal import JournalError
from ..jobs.lines import read_lines
from ..jobs.on_disk import recover
from ..jobs.queue import NewJob
from ..jobs.report import summarise, write_reports
from ..jobs.runner import Runner, RunnerOptions
from ..jobs.runners import reclaim, registered
from ..regular_file import expanded
from ..request import GenerationRequest, Output, RequestAdjusted, ResolvedRequest
from .batch_log import EventLog
from .batch_screen import Screen
from .generate import open_engine, settle_licence
from .interrupt import stop_on_interrupt
from .media_kind import media_kind
from .preflight import NEEDED, check_output

QUEUE = ".videoinfer"  # the folder of the journal, below the output folder
EXIT_OK, EXIT_SOME_FAILED, EXIT_INTERRUPTED = 0, 1, 130


@dataclass(frozen=True)
class BatchOptions:
    """What was given on the command line.

    resume  None decides by whether the folder holds the same queue
    gpus    cards, numbered as nvidia-smi does
    device  cuda:N is one card, the N-th of those that CUDA shows
    """

    folder: Path
    journal: Path | None = None
    model: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    repeat: int = 1
    strict: bool = False
    resume: bool | None = None
    dry_run: bool = False
    instances: str = "auto"
    gpus: tuple[int, ...] | None = None
    threads: int | None = None
    two_phase: bool | None = None
    overlap: bool | None = None
    facts: Path | None = None
    max_attempts: int = 3
    time_limit: float | None = None
    watch: bool = False
    device: str = "auto"
    dtype: str = "auto"
    accept_licence: bool = False
    offline: bool = False


def journal_path(folder: Path, journal: Path | None = None) -> Path:
    return journal if journal is not None else folder / QUEUE / "journal.sqlite"


class Intake:
    """Checks requests against the model before anything runs. Opens no weights."""

    def __init__(self, options: BatchOptions, model: str) -> None:
        self.strict = options.strict
        self.adjusted: Counter[str] = Counter()
        self.engine = open_engine(
            model,
            device=options.device,
            dtype=options.dtype,
            accept_licence=options.accept_licence,
            offline=options.offline,
        )
        self._kinds: dict[Path, str] = {}

    def resolve(self, request: GenerationRequest) -> ResolvedRequest:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RequestAdjusted)
            resolved = self.engine.resolve(request, strict=self.strict)
        self.adjusted.update(str(w.message) for w in caught if issubclass(w.category, RequestAdjusted))
        return resolved

    def check(self, request: GenerationRequest) -> None:
        for reference in request.references:
            kind = self._kinds.get(reference.path) or self._kinds.setdefault(reference.path, media_kind(reference.path))
            wanted = "image" if reference.kind.endswith("_frame") else reference.kind
            if kind != wanted:
                raise RequestError(f"{reference.path} is {kind}, and cannot be a reference of kind {reference.kind}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RequestAdjusted)
            self.engine.resolve(request, strict=self.strict)

    def jobs(self, source: str, options: BatchOptions) -> tuple[list[NewJob], int]:
        if source == "-":
            lines, base, name = sys.stdin.buffer, Path.cwd(), "standard input"
        else:
            path = expanded(source)
            try:
                lines, base, name = io.BytesIO(path.read_bytes()), path.absolute().parent, str(path)
            except OSError as error:
                raise RequestError(f"the job file {path} cannot be read: {error.strerror}.") from error
        found = read_lines(lines, name, base, options.defaults, options.repeat, self.check)
        return new_jobs(found, self.resolve, self.engine.conditioning_key)


def run(source: str, options: BatchOptions, *, quiet: bool = False) -> tuple[int, dict[str, Any]]:
    """Runs the batch; returns the exit code and the summary (of a dry run: the plan).

    Raises the errors of videoinfer.errors before anything runs.
    """
    console = Console(stderr=True)
    path = journal_path(options.folder, options.journal)
    model = options.model or _stored_model(path) or "demo"
    settle_licence(model, options.accept_licence, console, may_ask=not quiet)
    intake = Intake(options, model)
    jobs, equal = intake.jobs(source, options)
    for text, count in intake.adjusted.items():
        console.print(f"note: {text}" + (f" ({count} jobs)" if count > 1 else ""), highlight=False, soft_wrap=True)
    if equal:
        console.print(f"note: {equal} lines are equal to an earlier one and make no clip of their own")
    from .batch_plan import make_plan_for, start_workers

    plan = make_plan_for(intake.engine, options)
    if options.dry_run:
        from .batch_plan import describe_dry_run

        told = describe_dry_run(plan, jobs, intake.engine, path)
        if not quiet:
            print(told["text"])
        return EXIT_OK, {key: value for key, value in told.items() if key != "text"}
    check_output(Output(folder=options.folder))
    journal = open_journal(path, create=True)
    with registered(journal) as queue:
        _settle_queue(queue, jobs, model, intake.engine, options)
        reclaim(journal)
        recovered = recover(queue, options.folder)
        for what, count in recovered.items():
            if count:
                console.print(f"resume: {count} {what}")
        queue.add(jobs)
        conditionings = path.parent / "conditionings"
        place = lambda key: conditionings / f"{key}.safetensors"  # noqa: E731
        keys = {job.conditioning for job in queue.jobs(State.QUEUED)}
        queue.encoded(key for key in keys if place(key).with_suffix(".json").exists())
        if queue.setting("wish") == "drain":
            queue.set("wish", None)
        return _work(queue, plan, intake, model, options, place, path.parent, console, quiet, start_workers)


def _work(
    queue: RunnerQueue,
    plan: Any,
    intake: Intake,
    model: str,
    options: BatchOptions,
    place: Callable[[str], Path],
    state_folder: Path,
    console: Console,
    quiet: bool,
    start_workers: Callable[..., Any],
) -> tuple[int, dict[str, Any]]:
    from .batch_plan import remember_rate

    launcher = start_workers(plan, model, options, state_folder / "logs")
    intake.engine.close()
    log = EventLog(state_folder / "logs" / "runner.jsonl")
    with Screen(console, queue, quiet) as screen:

        def on_event(event: str, job: Any, text: str) -> None:
            log.write(event, job, text)
            screen.event(event, job, text)

        runner = Runner(
            queue,
            launcher,
            lambda name: options.folder / f"{name}.mp4",
            place,
            RunnerOptions(plan.two_phase, plan.offload, options.max_attempts, options.time_limit, watch=options.watch),
            on_event,
            lambda: shutil.disk_usage(options.folder).free >= NEEDED,
            screen.beat,
        )
        began = time.monotonic()
        try:
            with stop_on_interrupt(runner.stop, screen.note):
                runner.run()
        finally:
            ended = time.monotonic()
            summary = summarise(queue, ended - began, ended - (runner.first_ready or began), screen.made)
            summary["plan"] = plan.to_json()
            if runner.done_cost:
                worked = ended - (runner.first_ready or began)  # all that clips take, phases and idle ends too
                remember_rate(intake.engine, worked * len(plan.instances) / runner.done_cost)
            write_reports(queue, options.folder, summary)
            log.close()
    screen.final(summary, options.folder)
    if runner.stopping == "interrupted":
        return EXIT_INTERRUPTED, summary
    return EXIT_OK if not summary["not_done"] or runner.stopping == "drained" else EXIT_SOME_FAILED, summary


def _stored_model(path: Path) -> str | None:
    return JobQueue(open_journal(path)).setting("model") if path.exists() else None


def _settle_queue(queue: JobQueue, jobs: list[NewJob], model: str, engine: Any, options: BatchOptions) -> None:
    """A journal belongs to one model; a file of other jobs is not silently mixed into it."""
    stored = queue.setting("model")
    if stored is None:
        queue.set("model", model)
        return
    if stored != model:
        raise JournalError(
            f"{options.folder} holds a queue for the model {stored}, not {model}: give another -o, or that model."
        )
    known = {job.id for job in queue.jobs()}
    shared = sum(job.id in known for job in jobs)
    if options.resume is False and known:
        raise JournalError(
            f"{options.folder} holds a queue of {len(known)} jobs, and --no-resume was given: give another -o."
        )
    if known and not shared and not options.resume:
        raise JournalError(
            f"{options.folder} holds another queue ({len(known)} jobs, none of them in this file): give another -o, or "
            "--resume to add these jobs to it."
        )
