"""What a cache session has to know of a model's forward; one per family."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

Rows = tuple[torch.Tensor, ...]  # one tensor (B, R, C) per stream, conditioning rows first


class CacheTarget(ABC):
    """The transformer of one run. A stream is one modality that is denoised; the first one is the video."""

    transformer: nn.Module
    blocks: Sequence[nn.Module]
    streams: tuple[str, ...]

    @abstractmethod
    def sigmas(self, components: Any) -> dict[str, tuple[float, ...]]:
        """Noise levels of each stream, N + 1 values."""

    @abstractmethod
    def enter(self, block_state: Any) -> None:
        """Told before each forward: learns which rows are generated."""

    @abstractmethod
    def inputs(self, arguments: Mapping[str, Any]) -> Rows:
        """All rows of each stream that go in, from the forward's keyword arguments."""

    @abstractmethod
    def outputs(self, result: Any) -> Rows:
        """All rows of each stream that come out."""

    @abstractmethod
    def result(self, outputs: Rows) -> Any:
        """What the forward returns for these outputs."""

    @abstractmethod
    def generated(self, rows: Rows) -> Rows:
        """Those rows of each stream that are denoised."""

    @abstractmethod
    def packed(self, arguments: Mapping[str, Any]) -> torch.Tensor:
        """Where the generated rows are in the hidden states of the block stack, (R,)."""

    @abstractmethod
    def modulated(self, block: Any, hidden_states: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor:
        """The normalised and modulated input of a block, from the block's positional arguments behind the states."""

    @abstractmethod
    def video_latents(self, arguments: Mapping[str, Any]) -> torch.Tensor:
        """The generated video as latents (T, H, W, C)."""
