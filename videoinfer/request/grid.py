"""What a model can make: the frame counts, canvases, steps and references that it accepts."""

from dataclasses import dataclass

from ..errors import RequestError


@dataclass(frozen=True)
class Grid:
    """The limits of one model. A family builds it from the model's own configuration files.

    Frames come as `frames_per_chunk * n + frames_tail` and are snapped **up**. `min_frames` bounds what may be *asked*
    (MiniMax-H3: 5 s = 120 frames, which become 124); `max_frames` bounds what is *made* (362 there). `allowed_frames`
    and `allowed_sizes`, when set, are the only results that are not refused. Sides are in pixels, (width, height).
    """

    fps: int
    frames_per_chunk: int
    frames_tail: int
    min_frames: int
    max_frames: int
    multiple: int
    default_short_edge: int
    max_pixels: int
    default_steps: int
    max_steps: int
    min_aspect: float = 0.25
    max_aspect: float = 4.0
    allowed_frames: tuple[int, ...] | None = None
    allowed_sizes: tuple[tuple[int, int], ...] | None = None
    default_size: tuple[int, int] | None = None
    supports_guidance: bool = False
    supports_negative: bool = False
    why_no_guidance: str = "the model has no guidance"
    max_images: int = 0
    max_videos: int = 0
    max_audios: int = 0
    max_references: int = 0
    audio_alone: bool = False

    def snap_frames(self, frames: int) -> int:
        """The first frame count of the grid that is at least `frames` (>= 1)."""
        return frames + (self.frames_tail - frames) % self.frames_per_chunk

    @property
    def default_frames(self) -> int:
        """The shortest clip: what a request that names no length gets."""
        return min(self.allowed_frames) if self.allowed_frames else self.snap_frames(self.min_frames)


def check_aspect(width: float, height: float, grid: Grid, what: str) -> None:
    """RequestError when width / height lies outside the grid's aspect range."""
    if not grid.min_aspect <= width / height <= grid.max_aspect:
        low, high = f"1:{1 / grid.min_aspect:g}", f"{grid.max_aspect:g}:1"
        raise RequestError(
            f"{what} has the aspect ratio {width:g}:{height:g} ({width / height:.3f}); this model makes {low} to "
            f"{high}. Ask for a ratio in that range."
        )


def canvas_size(aspect_width: float, aspect_height: float, grid: Grid) -> tuple[int, int]:
    """The (width, height) in pixels that a model makes for an aspect ratio.

    The short edge starts at `default_short_edge`, the area is capped at `max_pixels`, and both sides are then rounded
    to the nearest `multiple`: the released MiniMax-H3's own rule, down to the order of the floating point operations.

    Raises:
        RequestError: the ratio lies outside `min_aspect` .. `max_aspect`.
    """
    check_aspect(aspect_width, aspect_height, grid, "the request")
    ratio = aspect_width / aspect_height
    short = grid.default_short_edge
    width, height = (short * ratio, float(short)) if ratio >= 1.0 else (float(short), short / ratio)
    area = width * height
    if area > grid.max_pixels:
        scale = (grid.max_pixels / area) ** 0.5
        width, height = width * scale, height * scale
    return round_side(width, grid), round_side(height, grid)


def round_side(side: float, grid: Grid) -> int:
    """The multiple nearest to a side, never 0."""
    return max(grid.multiple, round(side / grid.multiple) * grid.multiple)
