"""One model on one device: stage pipelines of a workflow, whose components are loaded when first needed and shared."""

import gc
import logging
import threading
import warnings
from pathlib import Path
from typing import Any

import torch
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks
from transformers.utils import logging as transformers_logging

from .errors import Cancelled, GenerationError, ModelError, OutOfMemory, VideoInferError
from .families import STAGES, Family, Stage, family_for
from .library_logs import collected_problems, quiet_block_errors
from .loading import ModelSource, check_fits, estimate_memory, resolve_model

logger = logging.getLogger(__name__)


class Model:
    """Loads on demand: a workflow touches only its own components, and what two stages share is loaded once.

    When the next stage's components do not fit the device beside the others, the others are given up first (and
    counted in `swaps`). Components stay on the device until `free` or `close`.
    """

    def __init__(self, name: str, device: torch.device, dtype: torch.dtype, **source_options: Any) -> None:
        self.name = name
        self.device = device
        self.dtype = dtype
        self.swaps = 0
        self._source_options = source_options
        source = resolve_model(name, components=[], **source_options)
        self.family: Family = family_for(source.folder)
        self.grid = self.family.grid(source.folder)
        self._sources: dict[str, ModelSource] = {}
        self._pipelines: dict[tuple[str, Stage], Any] = {}
        self._components: dict[str, Any] = {}  # by diffusers' load id: folder, subfolder, variant, revision
        self._loading = threading.RLock()  # two stages of different clips may ask at the same time
        self._used: dict[Stage, set[str]] = {stage: set() for stage in STAGES}  # load ids that a stage ever needed

    def source(self, workflow: str) -> ModelSource:
        """The folder and revision with everything that a workflow needs in it; downloaded or checked when first asked.

        Raises ModelError naming every file that is missing or cut off.
        """
        if workflow not in self._sources:
            index = resolve_model(self.name, components=[], **self._source_options).folder
            subfolders = set().union(*(self._subfolders(workflow, stage, index) for stage in STAGES))
            source = resolve_model(self.name, components=sorted(subfolders), **self._source_options)
            self.family.grid(source.folder)  # with all configuration files there, its facts can be checked
            self._sources[workflow] = source
        return self._sources[workflow]

    def components(self, workflow: str, stage: Stage) -> set[str]:
        """The subfolders that a stage of a workflow reads."""
        return self._subfolders(workflow, stage, self.source(workflow).folder)

    def _subfolders(self, workflow: str, stage: Stage, folder: Path) -> set[str]:
        specs = self._specs(self._build(workflow, stage, folder))
        return {spec.subfolder or name for name, spec in specs.items()}

    def stage(self, workflow: str, stage: Stage) -> Any:
        """The `ModularPipeline` of one stage, its components on the device. ModelError when one cannot be loaded."""
        with self._loading:
            if (workflow, stage) not in self._pipelines:
                folder = self.source(workflow).folder
                pipeline = self._build(workflow, stage, folder)
                specs = self._specs(pipeline)
                for name, spec in specs.items():
                    # diffusers falls back to the hub for what it does not find in the folder: never silently, not here.
                    if spec.pretrained_model_name_or_path != str(folder):
                        raise ModelError(f"{folder / (spec.subfolder or name)} is missing: download the model again.")
                self._load(pipeline, [name for name, spec in specs.items() if spec.load_id not in self._components])
                pipeline.register_components(**{name: self._components[spec.load_id] for name, spec in specs.items()})
                self._pipelines[workflow, stage] = pipeline
                self._used[stage] |= {spec.load_id for spec in specs.values()}
            return self._pipelines[workflow, stage]

    def outline(self, workflow: str, stage: Stage) -> Any:
        """The pipeline of a stage for its configuration alone, no component loaded."""
        return self._build(workflow, stage, self.source(workflow).folder)

    def _build(self, workflow: str, stage: Stage, folder: Path) -> Any:
        pipeline: Any = self.family.stage_pipeline(workflow, stage, folder)
        for block in pipeline._blocks.sub_blocks.values():  # `.blocks` is a copy
            if isinstance(block, LoopSequentialPipelineBlocks):
                block.set_progress_bar_config(disable=True)
        return pipeline

    def _specs(self, pipeline: Any) -> dict[str, Any]:
        specs = {name: pipeline.get_component_spec(name) for name in pipeline.pretrained_component_names}
        if unnamed := sorted(name for name, spec in specs.items() if spec.pretrained_model_name_or_path is None):
            raise ModelError(f"the model {self.name} has no {', '.join(unnamed)}: its model index does not name it.")
        return specs

    def _load(self, pipeline: Any, names: list[str]) -> None:
        if not names:
            return
        specs = self._specs(pipeline)
        self._make_room({specs[name].load_id: specs[name] for name in names}, {s.load_id for s in specs.values()})
        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()
        try:
            with collected_problems() as problems, warnings.catch_warnings():
                # The audio VAE keeps the spelling of its checkpoint; that is no concern of the user.
                warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
                pipeline.load_components(names=names, dtype=self.dtype)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"{', '.join(names)} of the model {self.name} cannot be built: {error}") from error
        finally:
            if bars:
                transformers_logging.enable_progress_bar()
        failed = [name for name in names if getattr(pipeline, name) is None]
        if failed or problems:
            what = ", ".join(failed) or "a component"
            reason = "\n".join(problems)
            raise ModelError(f"{what} of the model {self.name} cannot be used as it is on disk:\n{reason}")
        for name in names:
            component = getattr(pipeline, name)
            if isinstance(component, torch.nn.Module):
                component.to(self.device).requires_grad_(False)
            self._components[specs[name].load_id] = component

    def _make_room(self, wanted: dict[str, Any], needed: set[str]) -> None:
        (folder,) = {Path(spec.pretrained_model_name_or_path) for spec in wanted.values()}
        estimate = estimate_memory(folder, sorted({spec.subfolder for spec in wanted.values()}), self.dtype)
        try:
            check_fits(estimate, self.device)
        except ModelError:
            others = set(self._components) - needed
            if not others:
                raise
            logger.warning("not enough memory on %s: components of other stages are given up", self.device)
            self.swaps += 1
            self._drop(others)
            check_fits(estimate, self.device)

    def free(self, stage: Stage) -> None:
        """Give up the components that only this stage uses; they are loaded again when needed."""
        with self._loading:
            others = set().union(*(ids for owner, ids in self._used.items() if owner != stage))
            self._drop((self._used[stage] - others) & set(self._components))

    def close(self) -> None:
        self._drop(set(self._components))

    def _drop(self, ids: set[str]) -> None:
        if not ids:
            return
        self._pipelines.clear()  # they hold the components too; building one anew costs milliseconds
        for load_id in ids:
            del self._components[load_id]
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def run(self, pipeline: Any, stage: Stage, inputs: dict[str, Any]) -> dict[str, Any]:
        """Runs a stage and returns the intermediates that it hands on.

        Raises ModelError when the blocks would ignore an input, GenerationError for what goes wrong inside.
        """
        known = {parameter.name for parameter in pipeline._blocks.inputs}
        if unknown := sorted(set(inputs) - known):
            raise ModelError(f"the {stage} blocks of {self.family.name} take no {', '.join(unknown)}.")
        try:
            with quiet_block_errors():
                return pipeline(**inputs, output=list(self.family.stage_outputs(stage)))
        except (VideoInferError, Cancelled):
            raise
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise OutOfMemory(
                f"{self.device} ran out of memory in the {stage} stage. Ask for a smaller size or fewer frames."
            ) from error
        except Exception as error:
            raise GenerationError(f"the {stage} stage failed: {error or type(error).__name__}") from error
