"""Reading a finished clip back: what is in it, and is it what was written."""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from ..errors import MediaError


def probe_mp4(path: str | Path) -> dict[str, Any]:
    """Reads a clip back, packet by packet, and decodes its first frame.

    Keys: frames, width, height, fps (float), duration (s, of the video), pix_fmt, video_codec; audio_codec,
    sample_rate, channels, audio_duration (s), which are None without sound; metadata (dict, of the `comment` tag).
    Raises MediaError when it cannot be played.
    """
    path = Path(path)
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise MediaError(f"{path} holds no video")
            video = container.streams.video[0]
            sound = container.streams.audio[0] if container.streams.audio else None
            frames, samples_end, decoded = 0, Fraction(0), False
            for packet in container.demux([video] if sound is None else [video, sound]):
                if not packet.size:
                    continue
                if packet.stream is video:
                    frames += 1
                    decoded = decoded or bool(packet.decode())
                elif packet.pts is not None and packet.time_base is not None:
                    samples_end = max(samples_end, (packet.pts + (packet.duration or 0)) * packet.time_base)
            if not decoded and not video.decode(None):
                raise MediaError(f"{path} is damaged: no frame can be decoded")
            fps = video.average_rate or Fraction(0)
            return {
                "frames": frames,
                "width": video.width,
                "height": video.height,
                "fps": float(fps),
                "duration": float(frames / fps) if fps else 0.0,
                "pix_fmt": video.pix_fmt,
                "video_codec": video.codec_context.name,
                "audio_codec": sound.codec_context.name if sound else None,
                "sample_rate": sound.rate if sound else None,
                "channels": sound.channels if sound else None,
                "audio_duration": float(samples_end) if sound else None,
                "metadata": _comment(container.metadata),
            }
    except av.FFmpegError as error:
        raise MediaError(f"{path} cannot be played: {error}") from error


def verify(
    path: Path,
    found: Mapping[str, Any],
    frames: int,
    size: tuple[int, int],
    rate: Fraction,
    samples: np.ndarray | None,
    sample_rate: int | None,
) -> None:
    """Raises MediaError unless `found` (of probe_mp4) is what was to be written to `path`.

    samples: float32 (C, N) at sample_rate Hz, or None for a clip without sound.
    """
    expected: dict[str, Any] = {"frames": frames, "width": size[0], "height": size[1], "pix_fmt": "yuv420p"}
    if samples is not None:
        expected |= {"sample_rate": sample_rate, "channels": samples.shape[0]}
    wrong = [f"{key} is {found[key]}, expected {value}" for key, value in expected.items() if found[key] != value]
    if abs(found["fps"] - float(rate)) > 1e-3:
        wrong.append(f"fps is {found['fps']}, expected {float(rate)}")
    if samples is None:
        if found["audio_codec"]:
            wrong.append("there is a soundtrack, expected none")
    elif sample_rate and abs(found["audio_duration"] - samples.shape[1] / sample_rate) > 3 * 1024 / sample_rate:
        # AAC works in blocks of 1024 samples, with one block of run-in
        wrong.append(
            f"the sound lasts {found['audio_duration']:.3f} s, expected {samples.shape[1] / sample_rate:.3f} s"
        )
    if wrong:
        raise MediaError(f"{path} was encoded, but does not read back as written: {'; '.join(wrong)}")


def _comment(tags: Mapping[str, str]) -> dict[str, Any]:
    """Our own JSON of the comment tag; a file of another maker has something else there, or nothing."""
    try:
        value = json.loads(tags.get("comment", "{}"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
