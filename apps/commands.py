"""The commands as typer sees them: `videoinfer generate` and `models`, and those of the queue."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import GenerationError
from .cache_commands import cache
from .flags import Flags, build_request
from .queue_commands import batch, jobs
from .report import report
from .reproduce import read_run

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

app.command()(batch)
app.command()(report)
app.add_typer(jobs, name="jobs")
app.add_typer(cache, name="cache")

PROMPT_HELP = (
    "What the clip shows. With --soundscape or --music it becomes the first part of MiniMax-H3's structured prompt, "
    "integrated_multimodal_description: what is seen and heard, in order. References are named in it as <Picture 1>, "
    "<Video 1>, <Audio 1>."
)
REFERENCE_HELP = (
    "A picture, clip or sound that the clip refers to; give it several times, the order counts. The kind is told from "
    "the file's content."
)
CACHE_HELP = (
    "Step cache: answer some forwards from earlier ones, for example first-block@0.1. The clip then differs from the "
    "one without; the sidecar says what was answered. Default: dense, every forward computed"
)
FROM_HELP = "Repeat the run of a sidecar (.json beside a clip). Flags given here override what it says."


def _option(help_text: str, *names: str, panel: str | None = None) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel, show_default=False)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"videoinfer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Text and reference pictures to video with sound."""


@app.command()
def generate(
    prompt: Annotated[str | None, typer.Argument(help=PROMPT_HELP, show_default=False)] = None,
    image: Annotated[Path | None, _option("Picture that the clip starts with.", "--image")] = None,
    last_image: Annotated[Path | None, _option("Picture that the clip ends with.", "--last-image")] = None,
    reference: Annotated[list[Path] | None, _option(REFERENCE_HELP, "--reference")] = None,
    fit: Annotated[
        str | None, _option("How a picture of another shape is put on the canvas: cover, contain, stretch.", "--fit")
    ] = None,
    model: Annotated[
        str | None, _option("demo (embedded, the default), a model folder, or a hub id org/name.", "--model", "-m")
    ] = None,
    seconds: Annotated[float | None, _option("Length in seconds.", "--seconds")] = None,
    frames: Annotated[int | None, _option("Length in frames.", "--frames")] = None,
    size: Annotated[str | None, _option("Canvas WIDTHxHEIGHT in pixels.", "--size")] = None,
    aspect: Annotated[str | None, _option("Canvas by its ratio W:H, at the model's resolution.", "--aspect")] = None,
    steps: Annotated[int | None, _option("Forwards of the model.", "--steps")] = None,
    seed: Annotated[int | None, _option("Seed of the noise, default 0.", "--seed")] = None,
    soundscape: Annotated[
        str | None, _option("Structured prompt, overall_soundscape: ambience and physical sounds.", "--soundscape")
    ] = None,
    music: Annotated[
        str | None, _option("Structured prompt, non_diegetic_music: the score, if there is one.", "--music")
    ] = None,
    negative_prompt: Annotated[
        str | None, _option("What should not be seen, where the model can take it.", "--negative-prompt")
    ] = None,
    cache: Annotated[str | None, _option(CACHE_HELP, "--cache")] = None,
    shift: Annotated[
        float | None, _option("Shift of the video's noise levels. Default: the model's own.", "--shift")
    ] = None,
    solver: Annotated[
        str | None, _option("euler, or ab2 for steps of second order. Default: euler", "--solver")
    ] = None,
    guidance: Annotated[float | None, _option("Guidance scale, where the model has one.", "--guidance")] = None,
    output: Annotated[
        str, _option("A file that ends in .mp4, or a folder (file <id>.mp4). Default: out", "--output", "-o")
    ] = "out",
    crf: Annotated[int | None, _option("H.264 quality 0 (lossless) to 51, default 18.", "--crf")] = None,
    frames_png: Annotated[
        bool | None, _option("Also write the frames as PNG files.", "--frames-png/--no-frames-png")
    ] = None,
    gif: Annotated[bool | None, _option("Also write a GIF.", "--gif/--no-gif")] = None,
    latents: Annotated[bool | None, _option("Also write the latents.", "--latents/--no-latents")] = None,
    strict: Annotated[bool, _option("Refuse instead of adjusting to what the model can make.", "--strict")] = False,
    from_: Annotated[Path | None, _option(FROM_HELP, "--from")] = None,
    accept_licence: Annotated[
        bool, _option("Accept the licence of the weights; see `videoinfer models`.", "--accept-licence")
    ] = False,
    offline: Annotated[bool, _option("Download nothing.", "--offline")] = False,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1. Default: auto", "--device")] = "auto",
    dtype: Annotated[
        str | None, _option("auto, bfloat16, float32. Default: that of the sidecar, else auto", "--dtype")
    ] = None,
    as_json: Annotated[bool, _option("Print one JSON object on stdout and no progress.", "--json")] = False,
    debug: Annotated[bool, _option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    """Make a clip with sound from a prompt, from a first and last picture, or from references."""
    made_before = read_run(from_) if from_ is not None else None
    flags = Flags(
        prompt=prompt,
        soundscape=soundscape,
        music=music,
        image=image,
        last_image=last_image,
        references=reference or (),
        fit=fit,
        seconds=seconds,
        frames=frames,
        size=size,
        aspect=aspect,
        steps=steps,
        seed=seed,
        guidance=guidance,
        negative_prompt=negative_prompt,
        cache=cache,
        shift=shift,
        solver=solver,
        output=output,
        crf=crf,
        frames_png=frames_png,
        gif=gif,
        latents=latents,
    )
    request = build_request(flags, made_before.request if made_before else None)
    from . import generate as command

    made = command.run(
        request,
        model or (made_before.model if made_before else None) or "demo",
        made_before=made_before,
        strict=strict,
        quiet=as_json,
        accept_licence=accept_licence,
        offline=offline,
        device=device,
        dtype=dtype or (made_before.dtype if made_before else None) or "auto",
    )
    # The path alone on stdout, so that a script can take it without parsing.
    try:
        print(json.dumps(made) if as_json else made["path"], flush=True)
    except OSError as error:
        raise GenerationError(f"{made['path']} is complete, but standard output: {error.strerror}.") from error


@app.command()
def models(
    as_json: Annotated[bool, _option("Print one JSON object on stdout.", "--json")] = False,
    debug: Annotated[bool, _option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    """List the models that can be run, and the licences of their weights."""
    from .models import list_models

    listed = list_models()
    if as_json:
        print(json.dumps({"models": listed}))
        return
    for entry in listed:
        print(f"{entry['name']}\n  {entry['what']}\n  workflows: {', '.join(entry['workflows'])}")
        print(f"  licence: {entry['licence'] or 'see the model'}")
        if entry["notice"]:
            print(f"  {entry['notice']}\n  accepted by you: {'yes' if entry['accepted'] else 'no'}")
