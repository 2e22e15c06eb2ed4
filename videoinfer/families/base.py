"""What the engine needs to know of a model family. A family is thin: it names blocks, states facts, copies nothing."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from diffusers import SequentialPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from ..conditioning import Conditioning
from ..errors import ModelError, RequestError
from ..request import Grid, ResolvedRequest
from ..result import Clip, Latents

if TYPE_CHECKING:
    from ..denoise.target import CacheTarget

Stage = Literal["encode", "denoise", "decode"]
STAGES: tuple[Stage, ...] = ("encode", "denoise", "decode")
INDEX_FILES = ("modular_model_index.json", "model_index.json")


class Family(ABC):
    """One model family. Instances are stateless; every method may be called for any folder of the family."""

    name: ClassVar[str]
    pipeline_classes: ClassVar[tuple[str, ...]]  # `_class_name` in the model index
    workflows: ClassVar[tuple[str, ...]]
    fps: ClassVar[int]

    def matches(self, index: Mapping[str, Any]) -> bool:
        """Whether a model index (modular or not) is of this family."""
        return index.get("_class_name") in self.pipeline_classes

    @abstractmethod
    def grid(self, folder: Path) -> Grid:
        """What the model in `folder` can make. ModelError when its configuration contradicts the family's facts."""

    @abstractmethod
    def stage_blocks(self, workflow: str, stage: Stage) -> SequentialPipelineBlocks:
        """Fresh blocks of one stage of one workflow, cut from diffusers' own blocks."""

    def stage_pipeline(self, workflow: str, stage: Stage, folder: Path) -> Any:
        """The stage's `ModularPipeline` over the folder, no component loaded yet."""
        return self.stage_blocks(workflow, stage).init_pipeline(str(folder))

    @abstractmethod
    def denoise_loop(self, blocks: SequentialPipelineBlocks) -> LoopSequentialPipelineBlocks:
        """The loop over sigmas in the blocks of a denoise stage: where the engine's own blocks go."""

    @abstractmethod
    def encode_inputs(self, resolved: ResolvedRequest, pipeline: Any) -> dict[str, Any]:
        """The inputs of the encode stage, media read and fitted. RequestError, MediaError before any model runs."""

    @abstractmethod
    def conditioning(self, outputs: Mapping[str, Any], resolved: ResolvedRequest, key: str) -> Conditioning:
        """What the encode stage made, as a Conditioning. Keys of `outputs` are the stage's intermediate names."""

    @abstractmethod
    def denoise_inputs(
        self, conditioning: Conditioning, resolved: ResolvedRequest, generator: torch.Generator, pipeline: Any
    ) -> dict[str, Any]:
        """The inputs of the denoise stage. RequestError when the step count has no grid of that many forwards."""

    velocities: ClassVar[tuple[str, ...]] = ()  # names of the streams' velocities in the denoise loop

    def cache_target(self, pipeline: Any) -> "CacheTarget":
        """The transformer of a denoise stage as a cache session sees it. RequestError where there is none."""
        raise RequestError(f"{self.name} cannot be run with a step cache. Leave cache out.")

    @abstractmethod
    def latents(self, outputs: Mapping[str, Any], resolved: ResolvedRequest) -> Latents:
        """What the denoise stage made."""

    @abstractmethod
    def decode_inputs(self, latents: Latents) -> dict[str, Any]:
        """The inputs of the decode stage."""

    @abstractmethod
    def clip(self, outputs: Mapping[str, Any]) -> Clip:
        """What the decode stage made."""

    @abstractmethod
    def stage_outputs(self, stage: Stage) -> tuple[str, ...]:
        """Names of the intermediates that a stage hands on."""


def read_index(folder: Path) -> dict[str, Any]:
    """The model index of a folder. ModelError when the folder is no diffusers model; it says what is missing."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder: give a model folder, a hub id like org/name, or demo.")
    for name in INDEX_FILES:
        if (folder / name).is_file():
            return read_json(folder / name)
    found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise ModelError(f"{folder} is no model: {' and '.join(INDEX_FILES)} are both missing. It holds {found}.")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. ModelError naming the file when it is missing, damaged or no object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}): the model folder is incomplete or damaged.") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} holds no JSON object: the model folder is damaged.")
    return data


def narrowed(grid: Grid, folder: Path) -> Grid:
    """The grid, narrowed by the folder's own `videoinfer.json` when it has one (keys: fields of Grid, and `name`)."""
    path = folder / "videoinfer.json"
    if not path.is_file():
        return grid
    overrides = {key: value for key, value in read_json(path).items() if key != "name"}
    known = {field.name for field in fields(Grid)}
    if unknown := sorted(set(overrides) - known):
        raise ModelError(f"{path} has the unknown keys {', '.join(unknown)}. Known: name, {', '.join(sorted(known))}.")
    return replace(grid, **{key: _tupled(value) for key, value in overrides.items()})


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
