"""From the files of a request to the keyframes and references that MiniMax-H3's blocks take.

The blocks stretch whatever is not yet of the size they want. Everything is therefore brought to exactly that size here,
by the fit that the request declares, so that their own resize does nothing.
"""

from typing import Any

import numpy as np
import torch
from diffusers.modular_pipelines.minimax_h3 import (
    MiniMaxH3AudioReference,
    MiniMaxH3ImageReference,
    MiniMaxH3VideoReference,
)
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import resolve_canvas_size
from diffusers.modular_pipelines.minimax_h3.references import MiniMaxH3Reference
from PIL import Image

from ..errors import MediaError
from ..media import fit_image, load_audio, load_image, load_video
from ..request import Reference, ResolvedRequest

FPS = 24
SAMPLE_RATE = 32000
MULTIPLE = 32
# The conditioner reads a clip at 2 fps and merges pairs of frames: the second of the first pair is frame 12.
MIN_REFERENCE_FRAMES = 13


def keyframe_inputs(resolved: ResolvedRequest) -> dict[str, Image.Image]:
    """`image` and/or `last_image`, each exactly the canvas. MediaError when a file cannot be read."""
    canvas = (resolved.width, resolved.height)
    names = {"first_frame": "image", "last_frame": "last_image"}
    return {names[ref.kind]: fit_image(load_image(ref.path), canvas, ref.fit) for ref in resolved.request.references}


def reference_inputs(resolved: ResolvedRequest, config: Any) -> list[MiniMaxH3Reference]:
    """The references in the order of the request, each at its own size and real rate; `config` is the pipeline's.

    A picture gets the short edge that the model encodes pictures at, a clip the canvas of its own ratio. Raises
    MediaError: a file cannot be read, is outside 1:4 .. 4:1, or a clip is shorter than 13 frames at 24 fps.
    """
    return [_reference(ref, resolved.num_frames, config) for ref in resolved.request.references]


def _reference(reference: Reference, num_frames: int, config: Any) -> MiniMaxH3Reference:
    if reference.kind == "image":
        return MiniMaxH3ImageReference(image=_picture(reference, config.reference_image_short_edge))
    if reference.kind == "video":
        return _clip(reference, num_frames, config)
    samples, rate = load_audio(reference.path, sample_rate=SAMPLE_RATE)
    return MiniMaxH3AudioReference(audio=torch.from_numpy(samples), sample_rate=rate)


def _picture(reference: Reference, short_edge: int) -> Image.Image:
    image = load_image(reference.path)
    _check_aspect(reference, *image.size)
    scale = short_edge / min(image.size)
    width, height = (max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in image.size)
    return fit_image(image, (width, height), reference.fit)


def _clip(reference: Reference, num_frames: int, config: Any) -> MiniMaxH3VideoReference:
    clip = load_video(reference.path)
    _check_aspect(reference, clip.frames.shape[2], clip.frames.shape[1])
    if clip.frames.shape[0] / clip.fps * FPS < MIN_REFERENCE_FRAMES - 0.5:
        raise MediaError(
            f"{reference.path} lasts {clip.frames.shape[0] / clip.fps:.2f} s; a reference clip must last at least "
            f"{MIN_REFERENCE_FRAMES / FPS:.2f} s. Use a longer clip, or a picture of it."
        )
    # The model reads no more than the length that it makes; one frame more keeps the last one's duration right.
    frames = clip.frames[: int(num_frames * clip.fps / FPS) + 2]
    height, width = resolve_canvas_size(
        frames.shape[2], frames.shape[1], MULTIPLE, config.canvas_short_edge, config.canvas_max_pixels
    )
    if frames.shape[1:3] != (height, width):
        fitted = (fit_image(Image.fromarray(frame), (width, height), reference.fit) for frame in frames)
        frames = np.stack([np.asarray(image) for image in fitted])
    audio, rate = clip.audio, clip.sample_rate
    if audio is not None and rate != SAMPLE_RATE:
        # The blocks resample with torchaudio, which is not a dependency; ffmpeg does it here.
        audio, rate = load_audio(reference.path, sample_rate=SAMPLE_RATE)
    sound = None if audio is None else torch.from_numpy(audio)
    return MiniMaxH3VideoReference(frames=frames, fps=clip.fps, audio=sound, sample_rate=rate)


def _check_aspect(reference: Reference, width: int, height: int) -> None:
    if not 0.25 <= width / height <= 4:
        raise MediaError(
            f"{reference.path} is {width}x{height}; references must lie between 1:4 and 4:1. Crop it to that range."
        )
