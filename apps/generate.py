"""`videoinfer generate`: one request through the engine, with progress, Ctrl-C and a result to print."""

import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console

from ..errors import Cancelled, GenerationError, MediaError, RequestError
from ..licence import Licence, ensure_accepted, licence_for
from ..regular_file import expanded
from ..request import GenerationRequest
from .interrupt import interruptible
from .preflight import check_output
from .progress import Report
from .reproduce import Sidecar

# Media that fail before this stage are the user's input; after it, the output could not be made.
FIRST_HEAVY = "denoise"


def open_engine(model: str, **options: Any) -> Any:
    """The engine of a model. Imported here, because torch takes seconds to load and `--help` must not."""
    from ..engine import VideoEngine

    return VideoEngine.from_pretrained(model, **options)


def run(
    request: GenerationRequest,
    model: str,
    *,
    strict: bool = False,
    quiet: bool = False,
    accept_licence: bool = False,
    offline: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    made_before: Sidecar | None = None,
) -> dict[str, Any]:
    """Makes the clip and returns what `--json` prints.

    Raises the errors of videoinfer.errors, and KeyboardInterrupt when Ctrl-C ended the run.
    """
    if expanded(model).is_dir() and model != "demo":
        model = str(expanded(model).absolute())  # so that the sidecar repeats the run from any folder
    console = Console(stderr=True)
    report = Report(console, quiet)
    check_output(request.output)
    settle_licence(model, accept_licence, console, may_ask=not quiet)
    heavy = False
    with interruptible(report.note) as interrupt, report.running():

        def on_stage(stage: str, *rest: object) -> None:
            nonlocal heavy
            if interrupt.is_set():  # Ctrl-C came with the last step of the loop.
                raise KeyboardInterrupt
            interrupt.stage = stage
            heavy = heavy or stage == FIRST_HEAVY
            report.on_stage(stage, *rest)

        try:
            on_stage("load")
            options = {"device": device, "dtype": dtype, "accept_licence": accept_licence, "offline": offline}
            with open_engine(model, **options) as engine:
                if made_before is not None:
                    _compare(engine, request, made_before, strict, report)
                result = engine.generate(
                    request, strict=strict, on_stage=on_stage, on_step=report.on_step, cancel=interrupt
                )
        except Cancelled as error:
            raise KeyboardInterrupt from error
        except MediaError as error:
            if heavy:
                raise GenerationError(str(error)) from error
            raise
    return describe(result, model)


def _compare(engine: Any, request: GenerationRequest, before: Sidecar, strict: bool, report: Report) -> None:
    """Tells what is not as it was when the sidecar's clip was made. With `strict`, RequestError."""
    if differences := before.differences(engine.describe(request, strict=strict)):
        text = f"the clip of the sidecar was made in another way: {'; '.join(differences)}"
        if strict:
            raise RequestError(f"{text}. Leave --strict out to make it all the same.")
        report.note(f"{text}; this one can differ")


def describe(result: Any, model: str) -> dict[str, Any]:
    """A VideoResult in JSON's types."""
    resolved = result.resolved
    return {
        "path": str(result.path),
        "sidecar": str(result.sidecar_path),
        "extras": [str(path) for path in result.extras],
        "id": resolved.request.request_id,
        "model": model,
        "workflow": resolved.workflow,
        "width": resolved.width,
        "height": resolved.height,
        "num_frames": resolved.num_frames,
        "steps": resolved.steps,
        "seed": resolved.seed,
        "adjustments": [asdict(adjustment) for adjustment in resolved.adjustments],
        "timings": dict(result.timings),
        "peak_memory_mb": result.peak_memory_mb,
    }


def settle_licence(model: str, accept: bool, console: Console, may_ask: bool) -> None:
    """Asks for the licence of a model before the engine looks at it, when somebody is at the terminal to answer."""
    if model == "demo":
        return
    folder = expanded(model)
    licence = licence_for(model, folder if folder.is_dir() else None)
    if licence is None:
        return

    def ask(licence: Licence) -> bool:
        import typer

        console.print(f"{licence.name}\n{licence.notice}\n{licence.url}", soft_wrap=True, highlight=False)
        return typer.confirm("Do you accept this licence, and may you use these weights where you are?", err=True)

    asking = may_ask and sys.stdin.isatty() and console.is_terminal
    ensure_accepted(licence, accept=accept, ask=ask if asking else None)
