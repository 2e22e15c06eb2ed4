"""The commands of the queue as typer sees them: `videoinfer batch` and `videoinfer jobs ...`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import RequestError
from .interrupt import INTERRUPTED, Stopped


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


GPUS_HELP = "Cards to use, as nvidia-smi numbers them, for example 0,2. Default: all"
DEVICE_HELP = "auto, cpu, cuda, or cuda:N, one card as CUDA counts the visible ones. Default: auto"

Folder = Annotated[Path, typer.Argument(help="The output folder of a batch.", show_default=False)]
Ids = Annotated[list[str] | None, typer.Argument(help="Ids, or their beginnings.", show_default=False)]
Journal = Annotated[Path | None, _option("The journal, where it is not in the output folder.", "--journal")]
AsJson = Annotated[bool, _option("Print one JSON object on stdout.", "--json")]
Debug = Annotated[bool, _option("Show the traceback of an error.", "--debug")]


def batch(
    file: Annotated[str, typer.Argument(help="Job file, one JSON request a line; - for standard input.")],
    output: Annotated[Path, _option("Folder of the clips and of the queue. Default: out", "--output", "-o")] = Path(
        "out"
    ),
    model: Annotated[
        str | None, _option("demo, a model folder, or a hub id. Default: that of the queue, else demo", "--model", "-m")
    ] = None,
    instances: Annotated[
        str, _option("How many copies of the model run; a number or auto (the default).", "--instances")
    ] = "auto",
    gpus: Annotated[str | None, _option(GPUS_HELP, "--gpus")] = None,
    threads: Annotated[int | None, _option("CPU threads per instance.", "--threads")] = None,
    two_phase: Annotated[
        bool | None,
        _option(
            "Encode every prompt first, then give up the encoders. Default: as the plan finds",
            "--two-phase/--one-phase",
        ),
    ] = None,
    overlap: Annotated[
        bool | None,
        _option(
            "Decode and write a clip while the next one denoises. Default: as the plan finds", "--overlap/--no-overlap"
        ),
    ] = None,
    repeat: Annotated[int, _option("Clips of each line, with seeds that count up.", "--repeat", "-n")] = 1,
    dry_run: Annotated[bool, _option("Check everything and print the plan; run nothing.", "--dry-run")] = False,
    resume: Annotated[
        bool | None,
        _option(
            "Go on with the queue in the folder; the default when it holds jobs of this file.", "--resume/--no-resume"
        ),
    ] = None,
    watch: Annotated[bool, _option("Stay when the queue is empty, and wait for `jobs add`.", "--watch")] = False,
    time_limit: Annotated[
        float | None, _option("Seconds that a job may take. Default: ten times what is usual", "--time-limit")
    ] = None,
    max_attempts: Annotated[int, _option("Attempts before a job is given up. Default: 3", "--max-attempts")] = 3,
    seconds: Annotated[float | None, _option("Length, for lines that do not set it.", "--seconds")] = None,
    frames: Annotated[int | None, _option("Length in frames, likewise.", "--frames")] = None,
    size: Annotated[str | None, _option("Canvas WIDTHxHEIGHT, likewise.", "--size")] = None,
    aspect: Annotated[str | None, _option("Canvas W:H, likewise.", "--aspect")] = None,
    steps: Annotated[int | None, _option("Forwards, likewise.", "--steps")] = None,
    seed: Annotated[int | None, _option("Seed, likewise.", "--seed")] = None,
    cache: Annotated[str | None, _option("Step cache, likewise; see generate --help.", "--cache")] = None,
    shift: Annotated[float | None, _option("Shift of the noise levels, likewise.", "--shift")] = None,
    solver: Annotated[str | None, _option("euler or ab2, likewise.", "--solver")] = None,
    crf: Annotated[int | None, _option("H.264 quality, likewise.", "--crf")] = None,
    frames_png: Annotated[bool | None, _option("Also PNG frames, likewise.", "--frames-png/--no-frames-png")] = None,
    gif: Annotated[bool | None, _option("Also a GIF, likewise.", "--gif/--no-gif")] = None,
    latents: Annotated[bool | None, _option("Also the latents, likewise.", "--latents/--no-latents")] = None,
    strict: Annotated[bool, _option("Refuse instead of adjusting.", "--strict")] = False,
    facts: Annotated[Path | None, _option("Plan for the box of this facts file (with --dry-run).", "--facts")] = None,
    journal: Annotated[
        Path | None, _option("Journal on a local disk, when the output folder is not on one.", "--journal")
    ] = None,
    accept_licence: Annotated[bool, _option("Accept the licence of the weights.", "--accept-licence")] = False,
    offline: Annotated[bool, _option("Download nothing.", "--offline")] = False,
    device: Annotated[str, _option(DEVICE_HELP, "--device")] = "auto",
    dtype: Annotated[str, _option("auto, bfloat16, float32. Default: auto", "--dtype")] = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make every clip of a job file. Run it again after anything: it goes on where it was."""
    from . import batch as command

    given = {
        **{
            "duration": seconds,
            "num_frames": frames,
            "size": size,
            "aspect_ratio": aspect,
            "steps": steps,
            "seed": seed,
            "cache": cache,
            "shift": shift,
            "solver": solver,
        },
        "output": {
            key: value
            for key, value in {"crf": crf, "frames": frames_png, "gif": gif, "latents": latents}.items()
            if value is not None
        },
    }
    if facts is not None and not dry_run:
        raise RequestError(f"--facts {facts} describes another box: it goes with --dry-run.")
    if repeat < 1 or max_attempts < 1:
        raise RequestError(f"--repeat {repeat} and --max-attempts {max_attempts} must be at least 1.")
    if time_limit is not None and not time_limit > 0:
        raise RequestError(f"--time-limit {time_limit:g} must be more than 0 seconds.")
    options = command.BatchOptions(
        folder=output,
        journal=journal,
        model=model,
        defaults={key: value for key, value in given.items() if value is not None},
        repeat=repeat,
        strict=strict,
        resume=resume,
        dry_run=dry_run,
        instances=instances,
        gpus=_numbers(gpus),
        threads=threads,
        two_phase=two_phase,
        overlap=overlap,
        facts=facts,
        max_attempts=max_attempts,
        time_limit=time_limit,
        watch=watch,
        device=device,
        dtype=dtype,
        accept_licence=accept_licence,
        offline=offline,
    )
    code, summary = command.run(file, options, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(summary))
    if code == INTERRUPTED:
        raise Stopped
    raise typer.Exit(code)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RequestError(f"--gpus {text!r} is no list of card numbers: write for example 0,2.") from None


class _ShowByDefault(TyperGroup):
    """`videoinfer jobs DIR` means `videoinfer jobs show DIR`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


jobs = typer.Typer(cls=_ShowByDefault, no_args_is_help=True, help="See and steer the queue of a batch.")


def _queue(folder: Path, journal: Path | None) -> Any:
    from .jobs import open_queue

    return open_queue(folder, journal)


@jobs.command()
def show(
    folder: Folder,
    watch: Annotated[bool, _option("Keep it up to date.", "--watch")] = False,
    everything: Annotated[bool, _option("Every job.", "--all")] = False,
    journal: Journal = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """The jobs, their states, and who works on them."""
    from rich.console import Console

    from . import jobs as command

    queue = _queue(folder, journal)
    if as_json:
        typer.echo(json.dumps(command.describe(queue)))
    elif watch:
        command.watch(queue, Console())
    else:
        Console().print(command.show(queue, everything), highlight=False)


@jobs.command()
def retry(folder: Folder, ids: Ids = None, journal: Journal = None, debug: Debug = False) -> None:
    """Queue failed and set-aside jobs again; without ids all of them."""
    from . import jobs as command

    typer.echo(command.retry(_queue(folder, journal), ids or []))


@jobs.command()
def cancel(folder: Folder, ids: Ids = None, journal: Journal = None, debug: Debug = False) -> None:
    """Cancel jobs, also those in hand."""
    from . import jobs as command

    typer.echo(command.cancel(_queue(folder, journal), ids or []))


@jobs.command()
def priority(
    folder: Folder,
    value: Annotated[int, typer.Argument(help="Higher runs first; 0 is usual.", show_default=False)],
    ids: Ids = None,
    journal: Journal = None,
    debug: Debug = False,
) -> None:
    """Let jobs run earlier or later."""
    from . import jobs as command

    typer.echo(command.prioritise(_queue(folder, journal), value, ids or []))


@jobs.command()
def add(
    folder: Folder,
    file: Annotated[str, typer.Argument(help="Job file, or - for standard input.", show_default=False)],
    repeat: Annotated[int, _option("Clips of each line.", "--repeat", "-n")] = 1,
    journal: Journal = None,
    debug: Debug = False,
) -> None:
    """Add the jobs of another file to the queue."""
    from . import jobs as command

    typer.echo(command.add(folder, file, repeat, journal))


@jobs.command()
def pause(folder: Folder, journal: Journal = None, debug: Debug = False) -> None:
    """Finish what is in hand, start nothing new."""
    from . import jobs as command

    typer.echo(command.wish(_queue(folder, journal), "pause"))


@jobs.command()
def resume(folder: Folder, journal: Journal = None, debug: Debug = False) -> None:
    """Go on after a pause."""
    from . import jobs as command

    typer.echo(command.wish(_queue(folder, journal), "resume"))


@jobs.command()
def drain(folder: Folder, journal: Journal = None, debug: Debug = False) -> None:
    """Finish what is in hand, then end the runners."""
    from . import jobs as command

    typer.echo(command.wish(_queue(folder, journal), "drain"))
