"""What one instance of a model takes: weights by stage, working memory, host memory."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from ..request.grid import Grid

HOST = 1_500_000_000  # bytes of a worker process besides weights: torch, CUDA's context, buffers of frames
PIXEL_BYTES = 400  # working memory of the decoder per pixel of a clip's frame window; an estimate
GIB = 2**30


@dataclass(frozen=True)
class Footprint:
    """Bytes of one instance. `measured` False: an estimate.

    `shared` weights are used by encode and decode alike (a video VAE), and are counted in both. `working` is what comes
    on top of the weights while stages run: of denoising and of decoding, since the two may run side by side.
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


# MiniMax-H3 as published (reference/engines.md, sections 0 and 5; gathered from the model's README and config, and the
# recipes of SGLang and vLLM-Omni). bfloat16: text encoder Qwen3-VL-32B about 62 GB, DiT of 33 B parameters 66 GB, VAEs
# about 5.5 GB. int8 with precomputed modulation: text encoder 25.3 GiB, DiT 19.5 GiB; the VAEs stay as they are.
# Working memory of a 768p clip: a guess, until it is measured on a card.
_VIDEO_VAE, _VAES, _WORKING = 4_900_000_000, 5_500_000_000, 8_000_000_000
H3_BF16 = Footprint("MiniMax-H3 bfloat16", 62_000_000_000 + _VAES, 66_000_000_000, _VAES, _VIDEO_VAE, _WORKING)
H3_INT8 = Footprint("MiniMax-H3 int8", int(25.3 * GIB) + _VIDEO_VAE, int(19.5 * GIB), _VAES, _VIDEO_VAE, _WORKING)


def video_rows(grid: Grid, pixels: int, frames: int, transformer: Mapping[str, Any], vae: Mapping[str, Any]) -> int:
    """Rows that the transformer sees of a clip of `frames` frames of `pixels` pixels, from the two configurations.

    A chunk of frames is encoded on its own, so its last latent may stand for fewer frames than the others.
    """
    temporal = prod(vae["temporal_downsample_factors"])
    chunks, tail = divmod(frames, grid.frames_per_chunk)
    latents = chunks * ceil(grid.frames_per_chunk / temporal) + ceil(tail / temporal)
    depth, height, width = transformer["patch_size"]
    return latents // depth * pixels // (prod(vae["spatial_downsample_factors"]) ** 2 * height * width)


def row_bytes(transformer: Mapping[str, Any], itemsize: int) -> int:
    """Working memory of one row where a block is widest; an estimate.

    The residual stream and its normalised copy, and either gate, value and product of the feed-forward part, or
    queries, keys, values and their answer.
    """
    attention = 4 * transformer["num_attention_heads"] * transformer["attention_head_dim"]
    return itemsize * (2 * transformer["hidden_size"] + max(3 * transformer["ffn_dim"], attention))


def estimate_footprint(engine: Any, workflow: str = "t2va") -> Footprint:
    """Of an open engine's model: weights from the files' headers; working memory of the longest and largest clip.

    Working memory is an estimate: rows times the memory of a row while denoising (not counted where the model's
    configuration does not name these sizes as MiniMax-H3's does), and the frames and a window of them while decoding.
    """
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
    pixels = max(width * height for width, height in grid.allowed_sizes) if grid.allowed_sizes else grid.max_pixels
    working = pixels * (3 * frames * 4 + PIXEL_BYTES)  # frames as float32, and a window of the decoder
    paths = [folder / name / "config.json" for name in sorted(names["denoise"] | names["decode"])]
    configs = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]
    transformer = next((config for config in configs if "ffn_dim" in config), None)
    vae = next((config for config in configs if "spatial_downsample_factors" in config), None)
    if transformer and vae:
        working += video_rows(grid, pixels, frames, transformer, vae) * row_bytes(transformer, model.dtype.itemsize)
    return Footprint(model.name, total["encode"], total["denoise"], total["decode"], shared, working)
