"""A second-order solver on top of a scheduler's Euler step: the velocity is replaced before the step is taken."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import ModularPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

NAME = "videoinfer_multistep"


class AdamsBashforth(ModularPipelineBlocks):
    """Two-step Adams-Bashforth on an uneven grid: v = (1 + r / 2) v_i - r / 2 v_{i-1}, r = ds_i / ds_{i-1}; the first
    step is Euler's. `velocities`: names in the block state; `sigmas` (N + 1,) for each of them."""

    def __init__(self, velocities: Sequence[str], sigmas: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.velocities, self.sigmas = velocities, sigmas
        self._before: dict[str, torch.Tensor] = {}

    @property
    def description(self) -> str:
        return "Makes the Euler step a second-order one."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        for name, sigmas in zip(self.velocities, self.sigmas, strict=True):
            velocity = getattr(block_state, name)
            if i > 0:
                r = (sigmas[i + 1] - sigmas[i]) / (sigmas[i] - sigmas[i - 1])
                setattr(block_state, name, (1.0 + r / 2.0) * velocity - r / 2.0 * self._before[name])
            self._before[name] = velocity
        return components, block_state


@contextmanager
def multistep(loop: LoopSequentialPipelineBlocks, solver: AdamsBashforth | None) -> Iterator[None]:
    """Puts the solver in front of the loop's last block, which is the scheduler's step, and takes it out again."""
    if solver is None:
        yield
        return
    try:
        loop.sub_blocks.insert(NAME, solver, len(loop.sub_blocks) - 1)
        yield
    finally:
        loop.sub_blocks.pop(NAME, None)
