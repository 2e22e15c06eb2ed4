"""The block of a denoise loop that tells a cache session where the loop stands."""

from typing import Any, Protocol

from diffusers import ModularPipelineBlocks


class Session(Protocol):
    def enter_step(self, step: int, block_state: Any) -> None: ...


class CacheStep(ModularPipelineBlocks):
    """Goes in front of the denoiser."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    @property
    def description(self) -> str:
        return "Tells the step cache which step begins."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        self.session.enter_step(i, block_state)
        return components, block_state
