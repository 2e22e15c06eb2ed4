"""Model families: one file each. `family_for` finds the one that a model folder belongs to."""

from pathlib import Path

from ..errors import ModelError
from .base import STAGES, Family, Stage, read_index
from .minimax_h3 import MiniMaxH3

FAMILIES: tuple[Family, ...] = (MiniMaxH3(),)

__all__ = ["FAMILIES", "STAGES", "Family", "MiniMaxH3", "Stage", "family_for"]


def family_for(folder: str | Path) -> Family:
    """The family of a model folder.

    Raises ModelError: the folder is no model (what is missing is named), or no supported family (the class that was
    found and the supported ones are named).
    """
    folder = Path(folder)
    index = read_index(folder)
    for family in FAMILIES:
        if family.matches(index):
            return family
    supported = ", ".join(f"{family.name} ({', '.join(family.pipeline_classes)})" for family in FAMILIES)
    raise ModelError(
        f"{folder} holds a {index.get('_class_name') or 'model without a class name'}, which is not supported. "
        f"Supported: {supported}."
    )
