"""A clip out: H.264 (yuv420p, BT.709) and AAC in an mp4 that starts playing before it is loaded whole."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.container
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc, VideoReformatter

from ..errors import MediaError
from .probe import probe_mp4, verify
from .publish import published, write_error
from .soundtrack import checked_audio, soundtrack


def write_mp4(
    path: str | Path,
    frames: Iterable[np.ndarray],
    fps: float | Fraction,
    audio: np.ndarray | None = None,
    sample_rate: int | None = None,
    *,
    crf: int = 18,
    preset: str = "medium",
    threads: int = 2,
    metadata: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Encodes a clip, verifies it, and publishes it as `path`; returns what `probe_mp4` says of the file.

    frames       uint8 (H, W, 3) RGB, one at a time: the encoder takes each as it comes and keeps none
    fps          frames per second; 23.976 and its like become the exact 24000/1001
    audio        float32 (C, N) in [-1, 1] with C 1 or 2, at `sample_rate` Hz; louder samples are clipped
    crf          H.264 quality, 0 (lossless) to 51; 18 looks like the source
    threads      of the encoder; 0 means 2. The bytes of the file depend on it
    metadata     goes, with these settings, as one JSON object into the file's `comment` tag

    The file appears under its name complete or not at all, and never replaces another one. Raises MediaError: `path`
    exists, is no .mp4 or cannot be written; no frames, odd or changing sizes, wrong types; a sample
    rate that AAC does not know. Exceptions of `frames` itself pass through.
    """
    path = Path(path)
    if path.suffix.lower() != ".mp4":
        raise MediaError(f"{path} is not an mp4: give a name that ends in .mp4")
    rate = _frame_rate(fps)
    if not 0 <= crf <= 51:
        raise MediaError(f"crf={crf} is not allowed: use 0 (lossless) to 51 (worst)")
    samples = None if audio is None else checked_audio(audio, sample_rate)
    settings = {"codec": "libx264", "crf": crf, "preset": preset, "fps": str(rate), "threads": threads or 2}
    comment = json.dumps({"encoder": settings, **(metadata or {})}, ensure_ascii=True)
    with published(path) as part:
        first, frames = _peek(path, frames)
        height, width = first.shape[:2]
        try:
            with av.open(str(part), "w", format="mp4", options={"movflags": "faststart"}) as container:
                container.metadata["comment"] = comment
                count = _encode(container, frames, (width, height), rate, samples, sample_rate, settings)
        except av.FFmpegError as error:
            if isinstance(error, OSError):
                raise write_error(path, error) from error
            raise MediaError(f"cannot encode {path}: {error}") from error
        found = probe_mp4(part)
        verify(path, found, count, (width, height), rate, samples, sample_rate)
    return found


def _encode(
    container: av.container.OutputContainer,
    frames: Iterator[np.ndarray],
    size: tuple[int, int],
    rate: Fraction,
    samples: np.ndarray | None,
    sample_rate: int | None,
    settings: Mapping[str, Any],
) -> int:
    """Muxes the frames, and the sound in step with them, so that no packet waits in memory. Returns the frame count."""
    # With the macroblock tree x264 reads memory that it never wrote: one clip becomes another file every time.
    options = {key: str(settings[key]) for key in ("crf", "preset", "threads")} | {"x264-params": "mbtree=0"}
    video = container.add_stream("libx264", rate=rate, options=options)
    video.width, video.height = size
    video.pix_fmt = "yuv420p"
    # Small pictures without a tag are taken for BT.601 by some players and BT.709 by others: say it.
    context = video.codec_context
    context.colorspace, context.color_range = Colorspace.ITU709, ColorRange.MPEG
    context.color_primaries, context.color_trc = ColorPrimaries.BT709, ColorTrc.BT709
    count = 0
    converter = VideoReformatter()  # one for all frames: setting one up costs more than a small frame
    with soundtrack(container, samples, sample_rate) as track:
        for count, pixels in enumerate(frames, 1):
            _check_frame(pixels, size, count - 1)
            frame = converter.reformat(
                av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24"),
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
                threads=int(settings["threads"]),
            )
            frame.pts, frame.time_base = count - 1, 1 / rate
            container.mux(video.encode(frame))
            container.mux(track.until(count / rate))
        container.mux(video.encode(None))
        container.mux(track.until(None))
    return count


def _peek(path: Path, frames: Iterable[np.ndarray]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """The first frame, which tells the size, and all frames including it."""
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise MediaError(f"cannot write {path}: the clip has no frames")
    if first.ndim != 3:
        raise MediaError(f"frame 0 has shape {first.shape}: expected (height, width, 3)")
    height, width = first.shape[:2]
    if height < 2 or width < 2 or height % 2 or width % 2:
        raise MediaError(f"frame size {width}x{height} is not allowed: H.264 in yuv420p needs even sides of at least 2")
    return first, itertools.chain([first], iterator)


def _check_frame(pixels: np.ndarray, size: tuple[int, int], index: int) -> None:
    width, height = size
    if pixels.shape != (height, width, 3) or pixels.dtype != np.uint8:
        raise MediaError(
            f"frame {index} is {pixels.dtype} of shape {pixels.shape}: expected uint8 of shape ({height}, {width}, 3)"
        )


def _frame_rate(fps: float | Fraction) -> Fraction:
    if not 1 <= fps <= 1000:  # also refuses NaN
        raise MediaError(f"fps={fps} is not allowed: use 1 to 1000")
    ntsc = Fraction(round(fps * 1.001) * 1000, 1001)
    return ntsc if abs(ntsc - fps) < 1e-3 else Fraction(fps).limit_denominator(1001)
