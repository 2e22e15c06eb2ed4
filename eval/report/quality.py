"""The quality pass: every clip against the dense clip of its prompt, on the frames that the decoders give."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ...demo.world import HEIGHT, WIDTH
from ...errors import MediaError
from ...latents_file import STREAMS, read_latents
from ...result import Clip as DecodedClip
from ...result import Latents
from ..metrics.latent_error import stream_rhos, worst_frame_rho
from ..metrics.lost import lost_and_gained, right_attributes
from ..metrics.moving import motion_ratio, object_psnr
from ..metrics.picture import PSNR_CAP, psnr, ssim, worst_frame_psnr
from ..metrics.sound import log_spectral_distance, waveform_error
from ..metrics.summary import ClipQuality
from .clips import Clip
from .examples import example_path, write_example
from .methods import DENSE
from .quality_file import Measured, QualityFile

if TYPE_CHECKING:
    from ...engine import VideoEngine


@dataclass(frozen=True)
class Shown:
    """A clip as it was made, not as an mp4 keeps it. `right`: which attributes it shows as expected; None where its
    world is not the checker's."""

    latents: Latents
    clip: DecodedClip
    right: dict[str, bool] | None


def measure_clips(
    clips: Iterable[Clip],
    folder: Path,
    pictures: Path,
    open_engine: Callable[[], "VideoEngine"],
    say: Callable[[str], None],
) -> list[Measured]:
    """The measures of all clips that `folder` holds; only those that were not measured before are decoded.

    The clips must come prompt by prompt. Left out are those that are not made, and those of a prompt whose dense clip
    is not made. Pictures of the first prompts go into `pictures`. The engine is opened only when there is something to
    decode. Raises MediaError when the latents of a clip are gone.
    """
    kept, found = QualityFile(folder / "quality.jsonl"), []
    engine = None
    try:
        for prompt, group in groupby(clips, lambda clip: clip.prompt):
            made = [(clip, sidecar) for clip in group if (sidecar := clip.sidecar(folder)) is not None]
            reference, dense = next(((c, s) for c, s in made if c.method.name == DENSE), (None, None))
            if reference is None or dense is None:
                continue
            shown_dense = None
            for clip, sidecar in made:
                measured, picture = kept.find(clip, sidecar, dense), example_path(pictures, clip)
                if measured is None or (picture is not None and not picture.exists()):
                    engine = engine or open_engine()
                    say(f"measuring {clip.name}: {prompt.request.prompt_text!r}")
                    shown_dense = shown_dense or show(engine, reference, folder)
                    shown = shown_dense if clip is reference else show(engine, clip, folder)
                    if picture is not None and not picture.exists():
                        write_example(picture, shown.clip.frames, shown_dense.clip.frames)
                    if measured is None:
                        measured = Measured(clip, sidecar, compare(shown, shown_dense), shown.right)
                        kept.add(measured, dense)
                found.append(measured)
    finally:
        if engine is not None:
            engine.close()
    return found


def show(engine: "VideoEngine", clip: Clip, folder: Path) -> Shown:
    """Decodes the latents of a clip. Raises MediaError when they are gone."""
    try:
        latents = read_latents(clip.latents(folder))
    except MediaError as error:
        raise MediaError(f"{error} Remove {folder / clip.name}.mp4, and the next run makes it anew.") from error
    decoded = engine.decode(latents)
    judged = clip.prompt.expected and decoded.frames.shape[1:3] == (HEIGHT, WIDTH)
    right = right_attributes(decoded.frames, decoded.audio, clip.prompt.expected) if judged else None
    return Shown(latents, decoded, right)


def compare(ours: Shown, dense: Shown) -> ClipQuality:
    """All measures of one clip against the dense one. A PSNR above PSNR_CAP dB is PSNR_CAP, as JSON has no infinity."""
    frames, theirs = ours.clip.frames, dense.clip.frames
    lost, gained = lost_and_gained(ours.right or {}, dense.right or {})
    inside, moves = object_psnr(frames, theirs)
    mine, reference = ({name: getattr(side.latents, name) for name in STREAMS} for side in (ours, dense))
    return {
        "rho": stream_rhos(mine, reference),
        "rho_worst_frame": worst_frame_rho(ours.latents.video, dense.latents.video),
        "psnr": min(PSNR_CAP, psnr(frames, theirs)),
        "psnr_worst_frame": min(PSNR_CAP, worst_frame_psnr(frames, theirs)),
        "psnr_object": min(PSNR_CAP, inside),
        "object_moves": moves,
        "ssim": ssim(frames, theirs),
        "motion_ratio": motion_ratio(frames, theirs),
        "audio_error": waveform_error(ours.clip.audio, dense.clip.audio),
        "audio_distance": log_spectral_distance(ours.clip.audio, dense.clip.audio),
        "lost": lost,
        "gained": gained,
    }
