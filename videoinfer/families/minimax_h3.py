"""MiniMax-H3: text, keyframes or references to video with stereo sound, over diffusers' modular blocks.

One packed sequence holds text, conditions, audio and video; the model is guidance-distilled, so one forward per step.
`transformer` serves t2va and fl2va, `transformer_ref` serves ref2va; a workflow's blocks expect only their own.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from diffusers import MiniMaxH3Blocks, SequentialPipelineBlocks
from diffusers.modular_pipelines.minimax_h3 import (
    MiniMaxH3AudioReference,
    MiniMaxH3ImageReference,
    MiniMaxH3ModularPipeline,
    MiniMaxH3VideoReference,
)
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from ..conditioning import Conditioning
from ..errors import ModelError, RequestError
from ..request import Grid, ResolvedRequest
from ..result import Clip, Latents
from .base import Family, Stage, narrowed, read_index, read_json
from .minimax_h3_cache import MiniMaxH3CacheTarget
from .minimax_h3_references import keyframe_inputs, reference_inputs

# Blocks of diffusers' whole pipeline, by the stage that they belong to.
STAGE_OF = {
    "before_encode": "encode",
    "text_encoder": "encode",
    "vae_encoder": "encode",
    "denoise": "denoise",
    "decode": "decode",
}
OUTPUTS: dict[Stage, tuple[str, ...]] = {
    "encode": (
        "prompt_embeds",
        "text_token_tags",
        "keyframe_anchors",
        "condition_latents",
        "audio_condition_latents",
        "normalized_references",
    ),
    "denoise": ("latents", "audio_latents"),
    "decode": ("videos", "audio", "sampling_rate"),
}


MAX_FRAMES = 362


class _Pipeline(MiniMaxH3ModularPipeline):
    """diffusers stops at 15.0 s, between the grid's 345 and 362 frames; the release makes 362, 15.08 s."""

    @property
    def max_duration(self) -> float:
        return MAX_FRAMES / self.fps


class MiniMaxH3(Family):
    name: ClassVar[str] = "MiniMax-H3"
    pipeline_classes: ClassVar[tuple[str, ...]] = ("MiniMaxH3ModularPipeline",)
    workflows: ClassVar[tuple[str, ...]] = ("t2va", "fl2va", "ref2va")
    fps: ClassVar[int] = 24
    velocities: ClassVar[tuple[str, ...]] = ("noise_pred", "audio_noise_pred")

    def grid(self, folder: Path) -> Grid:
        index = read_index(folder)
        self._check_geometry(folder, index)
        grid = Grid(
            fps=self.fps,
            frames_per_chunk=17,
            frames_tail=5,
            min_frames=120,
            max_frames=MAX_FRAMES,
            multiple=32,
            default_short_edge=index.get("canvas_short_edge", 768),
            max_pixels=index.get("canvas_max_pixels", 768 * 1344),
            default_steps=50,
            max_steps=1000,
            why_no_guidance=f"{self.name} is guidance-distilled: one forward per step, with no guidance to set",
            max_images=9,
            max_videos=3,
            max_audios=3,
            max_references=12,
        )
        return narrowed(grid, folder)

    def _check_geometry(self, folder: Path, index: Mapping[str, Any]) -> None:
        """diffusers takes these numbers for granted in every stage that holds no VAE; another one would break there."""
        for component, facts in (
            ("vae", {"latent_channels": 24, "clip_length": 17, "spatial_downsample_factors": 16}),
            ("audio_vae", {"latent_channels": 32, "encoder_rates": 800, "sampling_rate": 32000}),
        ):
            if component not in index:
                raise ModelError(f"{folder} is incomplete: its model index names no {component}.")
            path = folder / (index[component][-1].get("subfolder") or component) / "config.json"
            if not path.is_file():
                continue  # a description without its parts yet, as the hub gives it first; loading checks for files
            config = read_json(path)
            for key, expected in facts.items():
                value = config.get(key, expected)
                value = prod(value) if isinstance(value, list) else value
                if value != expected:
                    raise ModelError(f"{path}: {key} gives {value}; {self.name} needs {expected}.")

    def stage_blocks(self, workflow: str, stage: Stage) -> SequentialPipelineBlocks:
        # The workflow's own blocks come flattened, named `<block>.<inner block>`.
        blocks = MiniMaxH3Blocks().get_workflow(workflow).sub_blocks.items()
        return SequentialPipelineBlocks.from_blocks_dict(
            {name: block for name, block in blocks if STAGE_OF[name.split(".")[0]] == stage}
        )

    def stage_pipeline(self, workflow: str, stage: Stage, folder: Path) -> Any:
        pipeline = super().stage_pipeline(workflow, stage, folder)
        pipeline.__class__ = _Pipeline  # `init_pipeline` chooses the class by the blocks' name, and takes no other
        return pipeline

    def denoise_loop(self, blocks: SequentialPipelineBlocks) -> LoopSequentialPipelineBlocks:
        loops = [block for block in blocks.sub_blocks.values() if isinstance(block, LoopSequentialPipelineBlocks)]
        (loop,) = loops
        return loop

    def stage_outputs(self, stage: Stage) -> tuple[str, ...]:
        return OUTPUTS[stage]

    def encode_inputs(self, resolved: ResolvedRequest, pipeline: Any) -> dict[str, Any]:
        inputs: dict[str, Any] = {"prompt": resolved.request.prompt_text}
        if resolved.workflow == "t2va":
            return inputs
        inputs |= {"width": resolved.width, "height": resolved.height}
        if resolved.workflow == "fl2va":
            return inputs | keyframe_inputs(resolved)
        references = reference_inputs(resolved, pipeline.config)
        return inputs | {"num_frames": resolved.num_frames, "references": references}

    def conditioning(self, outputs: Mapping[str, Any], resolved: ResolvedRequest, key: str) -> Conditioning:
        return Conditioning(
            key=key,
            workflow=resolved.workflow,
            width=resolved.width,
            height=resolved.height,
            num_frames=resolved.num_frames,
            prompt_embeds=outputs["prompt_embeds"],
            text_token_tags=outputs["text_token_tags"],
            condition_latents=tuple(outputs["condition_latents"] or ()),
            audio_condition_latents=tuple(outputs["audio_condition_latents"] or ()),
            keyframe_anchors=tuple(outputs["keyframe_anchors"] or ()),
            reference_kinds=tuple((ref.kind, ref.has_audio) for ref in outputs["normalized_references"] or ()),
        )

    def denoise_inputs(
        self, conditioning: Conditioning, resolved: ResolvedRequest, generator: torch.Generator, pipeline: Any
    ) -> dict[str, Any]:
        # The scheduler counts grid points, the terminal zero included: N forwards need N + 1.
        points = resolved.steps + 1
        # Always set: the schedulers are shared, and keep the shift of the run before.
        pipeline.scheduler.set_shift(resolved.request.shift or pipeline.scheduler.config.shift)
        for scheduler in (pipeline.scheduler, pipeline.audio_scheduler):
            scheduler.set_timesteps(points)
            if len(scheduler.timesteps) != resolved.steps:
                raise RequestError(
                    f"steps {resolved.steps} cannot be made: at shift {scheduler.shift:g} the float32 sigma grid has "
                    f"only {len(scheduler.timesteps)} distinct steps. Ask for that many or fewer."
                )
        inputs: dict[str, Any] = {
            # The blocks move the condition latents to the device, and the text not.
            "prompt_embeds": conditioning.prompt_embeds.to(pipeline._execution_device),
            "text_token_tags": conditioning.text_token_tags,
            "width": resolved.width,
            "height": resolved.height,
            "num_frames": resolved.num_frames,
            "num_inference_steps": points,
            "generator": generator,
        }
        if resolved.workflow == "fl2va":
            inputs["keyframe_anchors"] = conditioning.keyframe_anchors
        if resolved.workflow != "t2va":
            inputs["condition_latents"] = list(conditioning.condition_latents)
        if resolved.workflow == "ref2va":
            inputs["audio_condition_latents"] = list(conditioning.audio_condition_latents)
            inputs["normalized_references"] = [_outline(*kind) for kind in conditioning.reference_kinds]
        return inputs

    def cache_target(self, pipeline: Any) -> MiniMaxH3CacheTarget:
        names = [name for name in ("transformer", "transformer_ref") if name in pipeline.pretrained_component_names]
        (name,) = names  # a workflow's blocks expect only their own
        return MiniMaxH3CacheTarget(getattr(pipeline, name))

    def latents(self, outputs: Mapping[str, Any], resolved: ResolvedRequest) -> Latents:
        return Latents(resolved.workflow, outputs["latents"], outputs["audio_latents"])

    def decode_inputs(self, latents: Latents) -> dict[str, Any]:
        return {"latents": latents.video, "audio_latents": latents.audio, "output_type": "pt"}

    def clip(self, outputs: Mapping[str, Any]) -> Clip:
        video = outputs["videos"][0]  # (F, 3, H, W) in [0, 1]
        frames = np.empty((video.shape[0], *video.shape[2:], 3), np.uint8)
        for start in range(0, len(video), 16):  # a few frames at a time: a float clip is four times its bytes
            part = video[start : start + 16].mul(255).round().to(torch.uint8)
            frames[start : start + 16] = part.permute(0, 2, 3, 1).cpu().numpy()
        audio = outputs["audio"][0].float().cpu().numpy()
        return Clip(frames, audio, float(self.fps), int(outputs["sampling_rate"]))


def _outline(kind: str, has_audio: bool) -> Any:
    """A reference without its media: the packed layout reads only the kind and whether there is sound."""
    sound: Any = torch.empty(0) if has_audio else None
    if kind == "image":
        return MiniMaxH3ImageReference(image=None)  # type: ignore[arg-type]
    if kind == "video":
        return MiniMaxH3VideoReference(frames=None, audio=sound)  # type: ignore[arg-type]
    return MiniMaxH3AudioReference(audio=sound)
