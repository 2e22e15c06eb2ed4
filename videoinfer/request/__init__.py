"""The one schema of a generation, shared by command line, job files, HTTP and UI, and its fit to a model's grid."""

from .grid import Grid, canvas_size
from .resolve import Adjustment, RequestAdjusted, ResolvedRequest, resolve
from .schema import GenerationRequest, Output, Reference, StructuredPrompt, Workflow

__all__ = [
    "Adjustment",
    "GenerationRequest",
    "Grid",
    "Output",
    "Reference",
    "RequestAdjusted",
    "ResolvedRequest",
    "StructuredPrompt",
    "Workflow",
    "canvas_size",
    "resolve",
]
