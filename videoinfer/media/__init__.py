"""Pictures, clips and sounds: reading what a user brings, writing what a model made."""

from .checks import check_clip, check_finite, checked_frames
from .clips import VideoClip, load_audio, load_video
from .export import write_frames, write_gif
from .images import Fit, fit_image, load_image
from .mp4 import write_mp4
from .probe import probe_mp4
from .publish import published
from .sidecar import read_sidecar, write_json

__all__ = [
    "Fit",
    "VideoClip",
    "check_clip",
    "check_finite",
    "checked_frames",
    "fit_image",
    "load_audio",
    "load_image",
    "load_video",
    "probe_mp4",
    "published",
    "read_sidecar",
    "write_frames",
    "write_gif",
    "write_json",
    "write_mp4",
]
