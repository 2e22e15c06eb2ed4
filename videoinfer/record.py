"""The sidecar of a clip: everything that is needed to make it again, and to explain how it came about."""

import sys
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from .model import Model
from .request import ResolvedRequest


def describe(model: Model, resolved: ResolvedRequest) -> dict[str, Any]:
    """What is known before a run: the request, asked and actual values, and the model. JSON-ready.

    The same request gives the same latents where device class, dtype and thread count are equal too.
    """
    source = model.source(resolved.workflow)
    device = model.device
    return {
        "videoinfer": version_of("videoinfer"),
        "request": resolved.request.model_dump(mode="json"),
        "references": [{"path": str(ref.path), "sha256": ref.digest()} for ref in resolved.request.references],
        "actual": {
            "workflow": resolved.workflow,
            "width": resolved.width,
            "height": resolved.height,
            "num_frames": resolved.num_frames,
            "fps": model.grid.fps,
            "steps": resolved.steps,
            "seed": resolved.seed,
        },
        "adjustments": [asdict(adjustment) for adjustment in resolved.adjustments],
        "model": {"name": source.name, "family": model.family.name, "revision": source.revision},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "dtype": str(model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": sys.version.split()[0],
            **{name: version_of(name) for name in ("torch", "diffusers", "transformers", "videoinfer")},
        },
    }


@cache
def version_of(package: str) -> str:
    """The version of a package; of this one also from a checkout that is not installed."""
    if package == "videoinfer":
        from . import __version__

        return __version__
    return version(package)
