"""What one instance of a model takes: weights by stage, working memory, host memory."""

from dataclasses import dataclass
from typing import Any

GB = 1e9
HOST = 1_500_000_000  # bytes of a worker process besides weights: torch, CUDA's context, buffers of frames
PIXEL_BYTES = 400  # working memory of the decoder per pixel of a clip's frame window; an estimate


@dataclass(frozen=True)
class Footprint:
    """Bytes of one instance. `working`: on top of the weights while a stage runs. `measured` False: an estimate.

    `shared` weights are used by encode and decode alike (a video VAE), and are counted in both.
    """

    name: str
    encode: int
    denoise: int
    decode: int
    shared: int
    working: int
    host: int = HOST
    measured: bool = False

    @property
    def together(self) -> int:
        """Everything resident."""
        return self.encode + self.denoise + self.decode - self.shared + self.working

    @property
    def without_encoders(self) -> int:
        return self.denoise + self.decode + self.working

    @property
    def largest_stage(self) -> int:
        return max(self.encode, self.denoise, self.decode) + self.working


# MiniMax-H3 as published: text encoder Qwen3-VL-32B about 62 GB and DiT 33 B parameters about 66 GB in bfloat16, VAEs
# about 5.5 GB; int8 with precomputed modulation: DiT 19.5 GB and text encoder 25.3 GB. Working memory of a 768p clip.
H3_BF16 = Footprint("MiniMax-H3 bfloat16", 67_500_000_000, 66_000_000_000, 5_500_000_000, 4_900_000_000, 8_000_000_000)
H3_INT8 = Footprint("MiniMax-H3 int8", 30_200_000_000, 19_500_000_000, 5_500_000_000, 4_900_000_000, 8_000_000_000)


def estimate_footprint(engine: Any, workflow: str = "t2va") -> Footprint:
    """Of an open engine's model: weights from the files' headers; working memory from the largest canvas, a rough
    estimate (rows of the longest clip times the memory of a row)."""
    from ..families import STAGES
    from ..weights import estimate_memory

    model = engine.model
    folder = model.source(workflow).folder
    names = {stage: set(model.components(workflow, stage)) for stage in STAGES}
    sizes = estimate_memory(folder, sorted(set().union(*names.values())), model.dtype)
    total = {stage: sum(sizes[name] for name in names[stage]) for stage in STAGES}
    shared = sum(sizes[name] for name in names["encode"] & names["decode"])
    grid = model.grid
    frames = max(grid.allowed_frames) if grid.allowed_frames else grid.max_frames
    width, height = grid.default_size or (grid.default_short_edge * 16 // 9, grid.default_short_edge)
    working = width * height * (3 * frames * 4 + PIXEL_BYTES)  # frames as float32, and a window of the decoder
    return Footprint(model.name, total["encode"], total["denoise"], total["decode"], shared, working)
