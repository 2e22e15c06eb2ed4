"""`videoinfer cache ...`: what step caches must know of a model, and what they did in a run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import MediaError, RequestError

cache = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Calibrate step caches, and look at what they did."
)
Sidecar = Annotated[Path, typer.Argument(help="The .json beside a clip.", show_default=False)]


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


@cache.command()
def calibrate(
    output: Annotated[Path, _option("Calibration file; an entry is added to one that exists.", "--output", "-o")],
    model: Annotated[str, _option("demo, a model folder, or a hub id. Default: demo", "--model", "-m")] = "demo",
    workflow: Annotated[str, _option("t2va, fl2va, ref2va. Default: t2va", "--workflow")] = "t2va",
    steps: Annotated[int, _option("Forwards of the runs that it will serve. Default: 50", "--steps")] = 50,
    runs: Annotated[int, _option("Dense runs of the embedded model's prompts. Default: 4", "-n")] = 4,
    prompts: Annotated[Path | None, _option("Job file with the requests to run instead.", "--prompts")] = None,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1. Default: auto", "--device")] = "auto",
    debug: Annotated[bool, _option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    """Measure on dense runs what magcache, teacache and static schedules need to know of a model."""
    from . import calibrate as command

    entry = command.run(output, model, workflow, steps, runs, prompts, device, lambda text: typer.echo(text, err=True))
    typer.echo(f"{output}: {entry['workflow']}, {entry['steps']} steps, {entry['runs']} runs")
    typer.echo(f"teacache's polynomial explains {entry['teacache_r2']:.1%} of the change of the output")


@cache.command()
def replay(
    sidecar: Sidecar,
    setting: Annotated[
        str | None, _option("Judge the log by this cache setting instead of its own.", "--cache")
    ] = None,
    as_json: Annotated[bool, _option("Print one JSON object on stdout.", "--json")] = False,
    debug: Annotated[bool, _option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    """Decide the steps of a run again from its log, with no model. Another setting than the run's gives an estimate."""
    from ..eval import cache_log

    request, record = _read(sidecar)
    asked = setting if setting is not None else request.get("cache")
    if not isinstance(asked, str):
        raise RequestError(f"{sidecar} names no cache setting: give one with --cache.")
    steps = cache_log.replay(record, asked, cache_log.sigmas_of(record))
    if as_json:
        typer.echo(json.dumps({"setting": asked, "steps": steps}))
        return
    for name, entries in (("run", record["steps"]), ("replay", steps)):
        computed = sum(entry["computed"] for entry in entries)
        typer.echo(f"{name:<7}{cache_log.strip(entries)} {computed} of {len(entries)} computed")


@cache.command()
def plot(
    sidecar: Sidecar,
    debug: Annotated[bool, _option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    """Show what was computed and answered, with the reasons and the values decided by."""
    from ..eval import cache_log

    request, record = _read(sidecar)
    typer.echo(f"{request.get('cache') or record['policy']}: {record['computed']} of {record['forwards']} computed")
    typer.echo(cache_log.strip(record["steps"]))
    sigmas = next(iter(record["sigmas"].values()))
    for entry in record["steps"]:
        values = ", ".join(f"{name} {value:.4g}" for name, value in entry.get("values", {}).items())
        mark = "computed" if entry["computed"] else "answered"
        typer.echo(
            f"{entry['step']:>4}  sigma {sigmas[entry['step']]:.4f}  {mark}  {entry['reason']:<14} {values}".rstrip()
        )


def _read(sidecar: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request and the cache report of a sidecar."""
    from ..eval import cache_log
    from ..media.sidecar import read_sidecar

    data = read_sidecar(sidecar)
    request = data.get("request")
    if not isinstance(request, dict):
        raise MediaError(f"{sidecar} is no sidecar of a clip: it holds no request.")
    return request, cache_log.cache_record(data, str(sidecar))
