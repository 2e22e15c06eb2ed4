"""videoinfer: text and reference pictures to video with sound, on one engine from a laptop to a box of GPUs.

The names below are imported on first use, so that `import videoinfer` and `videoinfer --help` do not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import VideoEngine as VideoEngine
    from .errors import Cancelled as Cancelled
    from .errors import GenerationError as GenerationError
    from .errors import MediaError as MediaError
    from .errors import ModelError as ModelError
    from .errors import RequestError as RequestError
    from .errors import VideoInferError as VideoInferError
    from .request import GenerationRequest as GenerationRequest
    from .request import Output as Output
    from .request import Reference as Reference
    from .request import RequestAdjusted as RequestAdjusted
    from .request import StructuredPrompt as StructuredPrompt
    from .result import VideoResult as VideoResult

__version__ = "0.1.0"

_HOME = {
    "VideoEngine": "engine",
    "VideoResult": "result",
    "Cancelled": "errors",
    "GenerationError": "errors",
    "MediaError": "errors",
    "ModelError": "errors",
    "RequestError": "errors",
    "VideoInferError": "errors",
    "GenerationRequest": "request",
    "Output": "request",
    "Reference": "request",
    "RequestAdjusted": "request",
    "StructuredPrompt": "request",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'videoinfer' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
