"""MiniMax-H3's forward as a cache session sees it: one packed sequence, two streams with their own noise levels."""

from collections.abc import Mapping
from typing import Any

import torch
from diffusers.hooks._helpers import TransformerBlockMetadata, TransformerBlockRegistry
from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3TransformerBlock

from ..denoise.target import CacheTarget, Rows

# diffusers' own caches find a model's blocks here, and H3's are not in it yet.
TransformerBlockRegistry.register(
    MiniMaxH3TransformerBlock,
    TransformerBlockMetadata(return_hidden_states_index=0),
)


class MiniMaxH3CacheTarget(CacheTarget):
    streams = ("video", "audio")

    def __init__(self, transformer: Any) -> None:
        self.transformer, self.blocks = transformer, transformer.transformer_blocks
        self._conditions = (0, 0)  # rows of each stream that are not generated
        self._video_frames = 0

    def sigmas(self, components: Any) -> dict[str, tuple[float, ...]]:
        schedulers = (components.scheduler, components.audio_scheduler)
        return {
            name: tuple(scheduler.sigmas.tolist()) for name, scheduler in zip(self.streams, schedulers, strict=True)
        }

    def enter(self, block_state: Any) -> None:
        self._conditions = (block_state.num_condition_video_rows, block_state.num_condition_audio_rows)

    def inputs(self, arguments: Mapping[str, Any]) -> Rows:
        return arguments["hidden_states"], arguments["audio_hidden_states"]

    def outputs(self, result: Any) -> Rows:
        return tuple(result)

    def result(self, outputs: Rows) -> Any:
        return outputs  # the loop asks for a plain tuple

    def generated(self, rows: Rows) -> Rows:
        return tuple(tensor[:, skipped:] for tensor, skipped in zip(rows, self._conditions, strict=True))

    def packed(self, arguments: Mapping[str, Any]) -> torch.Tensor:
        indices = (arguments["video_indices"], arguments["audio_indices"])
        return torch.cat([index[skipped:] for index, skipped in zip(indices, self._conditions, strict=True)])

    def modulated(self, block: Any, hidden_states: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor:
        temb, adaln_indices = arguments[:2]
        shift, scale = block.adaln_proj(temb)[:2]
        rows = adaln_indices
        return block.norm1(hidden_states) * (1.0 + scale.index_select(0, rows)) + shift.index_select(0, rows)

    def video_latents(self, arguments: Mapping[str, Any]) -> torch.Tensor:
        (rows, _) = self.generated(self.inputs(arguments))
        frames, height, width = self._video_shape(arguments)
        patch = rows[0].unflatten(0, (frames, height, width)).unflatten(-1, (-1, 2, 2))  # T h w C 2 2
        return patch.permute(0, 1, 4, 2, 5, 3).reshape(frames, 2 * height, 2 * width, -1)

    def _video_shape(self, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
        """Frames, rows and columns of patches, from the positions of the generated video rows."""
        places = arguments["position_ids"].index_select(0, arguments["video_indices"][self._conditions[0] :])
        frames, height, width = (len(places[:, axis].unique()) for axis in range(3))
        return frames, height, width
