"""Moving pictures and sounds in, through av. A clip keeps the frame rate and the sample rate that its file declares."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import av
import av.container
import numpy as np

from ..errors import MediaError
from .images import check_readable

MAX_BYTES = 4 << 30  # of decoded frames; a reference clip is held in memory as a whole


@dataclass(frozen=True)
class VideoClip:
    frames: np.ndarray  # uint8 (F, H, W, 3), upright RGB
    fps: float  # as the file declares it; the mean for a file of variable rate
    audio: np.ndarray | None  # float32 (C, N) in [-1, 1], C is 1 or 2; None when the file has no sound
    sample_rate: int | None  # Hz


def load_video(path: str | Path, *, max_bytes: int = MAX_BYTES) -> VideoClip:
    """All frames of the first video stream of `path`, with the first audio stream.

    The display rotation (and mirroring) in the file is applied. Nothing is resampled.
    Raises MediaError: no such file, no video in it, damaged, or more than `max_bytes` when decoded.
    """
    path = Path(path)
    frames: list[np.ndarray] = []
    total = 0
    with _opened(path, "a video") as container:
        if not container.streams.video:
            raise MediaError(f"{path} holds no video: expected a video file")
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        for frame in container.decode(stream):
            total += frame.width * frame.height * 3
            if total > max_bytes:
                raise MediaError(
                    f"{path} is too long: its first {len(frames) + 1} frames of {frame.width}x{frame.height} take more "
                    f"than {max_bytes / 1e9:.1f} GB when decoded; cut it or scale it down first"
                )
            frames.append(_upright(frame.to_ndarray(format="rgb24"), frame, path))
        if not frames:
            raise MediaError(f"{path} is damaged or cut off: it declares a video, and no frame can be decoded")
        rate = stream.average_rate or stream.guessed_rate
        if not rate:
            raise MediaError(f"{path} declares no frame rate: convert it to an mp4 first")
        has_audio = bool(container.streams.audio)
    if len({frame.shape for frame in frames}) > 1:
        raise MediaError(f"{path} changes its frame size midway: convert it to one size first")
    audio, sample_rate = load_audio(path) if has_audio else (None, None)
    return VideoClip(np.stack(frames), float(rate), audio, sample_rate)


def load_audio(path: str | Path, *, sample_rate: int | None = None) -> tuple[np.ndarray, int]:
    """The first audio stream of a sound or video file: float32 (C, N) in [-1, 1], and its sample rate in Hz.

    C is 1 for mono; more than two channels are mixed down to stereo. The rate is the file's own, unless `sample_rate`
    asks for another. Raises MediaError: no such file, no sound in it, or damaged.
    """
    path = Path(path)
    blocks: list[np.ndarray] = []
    with _opened(path, "a sound") as container:
        if not container.streams.audio:
            raise MediaError(f"{path} holds no sound: expected an audio file, or a video with a soundtrack")
        stream = container.streams.audio[0]
        rate = sample_rate or stream.rate
        layout = "mono" if stream.channels == 1 else "stereo"
        resampler = av.AudioResampler(format="fltp", layout=layout, rate=rate)
        for frame in container.decode(stream):
            blocks += [block.to_ndarray() for block in resampler.resample(frame)]
        if blocks:
            blocks += [block.to_ndarray() for block in resampler.resample(None)]
    samples = np.concatenate(blocks, axis=1) if blocks else np.empty((0, 0), np.float32)
    if not samples.size:
        raise MediaError(f"{path} is damaged or cut off: it declares a sound, and no sample can be decoded")
    if not np.isfinite(samples).all():
        raise MediaError(f"{path} holds NaN or infinite samples: export the sound again")
    return np.clip(samples, -1.0, 1.0).astype(np.float32, copy=False), rate


@contextmanager
def _opened(path: Path, what: str) -> Iterator[av.container.InputContainer]:
    check_readable(path, what)
    try:
        with av.open(str(path)) as container:
            yield container
    except (av.FFmpegError, OSError) as error:
        raise MediaError(f"{path} is not {what} in a known format, or it is damaged: {error}") from error


def _upright(image: np.ndarray, frame: av.VideoFrame, path: Path) -> np.ndarray:
    """Applies the frame's display matrix: x' = a x + c y, y' = b x + d y (16.16 fixed point, row-major 3x3)."""
    side_data = frame.side_data.get("DISPLAYMATRIX")
    if side_data is None:
        return image
    a, b, _, c, d = (np.sign(round(v / 65536)) for v in np.frombuffer(bytes(side_data), np.int32)[:5])
    if (a, d) == (0, 0) and b and c:
        image, flip_x, flip_y = image.transpose(1, 0, 2), c < 0, b < 0
    elif (b, c) == (0, 0) and a and d:
        flip_x, flip_y = a < 0, d < 0
    else:
        raise MediaError(f"{path} is rotated by {frame.rotation} degrees: only right angles are supported")
    if flip_x:
        image = image[:, ::-1]
    return image[::-1] if flip_y else image
