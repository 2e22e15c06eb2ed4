"""Reads a clip of the embedded model's world: what moves, on what, how, and how it sounds.

It sees decoded frames and sound alone, never the prompt or the latents, so it can judge any engine's output.
"""

import math
from dataclasses import dataclass

import torch

from .render import SAMPLE_RATE, TIMBRES, coverage
from .world import BACKGROUNDS, COLOURS, FPS, SHAPES, SIZES, growth

# Triangle: centre of mass below the centre of the box, as a share of the radius; area of each shape over r^2.
_MASS_BELOW_CENTRE = (0.0, 0.0, 0.337)
_AREA = (math.pi, (2 * 0.89) ** 2, 2.02 * 2.02 / math.sqrt(3.0))
_MIN_AREA = 60.0  # pixels; less is no object


@dataclass(frozen=True)
class Reading:
    """What was seen and heard; an attribute is None where nothing could be made out.

    `pan` is True when the sound's balance follows the object's place. `path` holds x, y and radius in pixels of each
    frame looked at, (N, 3), NaN where no object was seen.
    """

    colour: str | None
    background: str
    shape: str | None
    size: str | None
    motion: str | None
    sound: str | None
    pan: bool | None
    path: torch.Tensor


def _nearest(rgb: torch.Tensor, table: dict[str, tuple[int, int, int]]) -> str:
    names = list(table)
    return names[int((torch.tensor([table[n] for n in names]).float() - rgb).square().sum(1).argmin())]


def _object_alpha(frames: torch.Tensor, background: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """How much each pixel (F, H, W) belongs to the object, and the object's colour; None when nothing stands out."""
    distance = (frames - background).square().sum(-1).sqrt()
    inside = distance > max(45.0, 0.6 * float(distance.quantile(0.995)))
    if int(inside.sum()) < _MIN_AREA:
        return None
    colour = frames[inside].median(0).values
    contrast = colour - background
    return ((frames - background) @ contrast / contrast.square().sum()).clamp(0.0, 1.0), colour


def _track(alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Centre of mass and area of each frame's object: (F, 2), (F,); NaN without an object."""
    solid = torch.where(alpha > 0.25, alpha, torch.zeros(()))
    area = solid.sum((1, 2))
    height, width = alpha.shape[1:]
    x = (solid.sum(1) * (torch.arange(width) + 0.5)).sum(1) / area
    y = (solid.sum(2) * (torch.arange(height) + 0.5)).sum(1) / area
    lost = area < _MIN_AREA
    centre = torch.stack([x, y], 1)
    centre[lost] = math.nan
    return centre, torch.where(lost, torch.full_like(area, math.nan), area)


def _shape(alpha: torch.Tensor, centre: torch.Tensor, area: torch.Tensor) -> int:
    """The shape whose drawing, of the same area at the same place, differs least from what is seen."""
    seen = torch.nonzero(~area.isnan()).flatten()
    seen = seen[:: max(1, len(seen) // 12)]
    height, width = alpha.shape[1:]
    errors = []
    for kind in range(len(SHAPES)):
        r = (area[seen] / _AREA[kind]).sqrt()[None]
        x, y = centre[seen, 0][None], centre[seen, 1][None] - _MASS_BELOW_CENTRE[kind] * r
        drawn = coverage(torch.tensor([kind]), x, y, r, (width, height))[0]
        errors.append(float((drawn - alpha[seen]).abs().sum()))
    return min(range(len(SHAPES)), key=errors.__getitem__)


def _motion(path: torch.Tensor, seconds: torch.Tensor) -> str | None:
    """Name the motion of a path (N, 3) of x, y and radius at `seconds` (N,)."""
    keep = ~path.isnan().any(1)
    if int(keep.sum()) < max(4, len(path) // 2):
        return None
    x, y, r = path[keep].T
    seconds = seconds[keep]
    ends = max(1, len(r) // 10)
    if r[-ends:].median() > 1.3 * r[:ends].median():
        return "grows bigger"
    range_x, range_y = float(x.max() - x.min()), float(y.max() - y.min())
    if max(range_x, range_y) < 8.0:
        return "stands still"
    net_x, net_y = (float(v[-ends:].median() - v[:ends].median()) for v in (x, y))
    if abs(net_x) > 0.75 * range_x and range_y < 0.4 * range_x:
        return "moves right" if net_x > 0 else "moves left"
    if abs(net_y) > 0.75 * range_y and range_x < 0.4 * range_y:
        return "moves down" if net_y > 0 else "moves up"
    # Circle through the path (Kasa's linear fit); an orbit keeps its distance and turns one way.
    system = torch.stack([2 * x, 2 * y, torch.ones_like(x)], 1)
    solution = torch.linalg.lstsq(system, (x * x + y * y)[:, None]).solution.flatten()
    dx, dy = x - solution[0], y - solution[1]
    distance = (dx * dx + dy * dy).sqrt()
    even = float(distance.std() / distance.mean()) < 0.2
    turn = torch.atan2(dy, dx).diff()
    turn = torch.remainder(turn + math.pi, 2 * math.pi) - math.pi
    one_way = float(turn.sum().abs() / turn.abs().sum().clamp(min=1e-6)) > 0.8
    return "orbits around" if even and one_way and distance.mean() < 40.0 else "bounces around"


def _size(path: torch.Tensor, seconds: torch.Tensor, motion: str | None) -> str:
    radius = path[:, 2]
    if motion == "grows bigger":
        radius = radius / growth(seconds)
    return "large" if float(radius.nanmedian()) > sum(SIZES.values()) / 2 else "small"


def _hear(audio: torch.Tensor) -> str | None:
    """The shape whose fundamental is loudest in (2, N) samples at 32 kHz; None in silence."""
    mono = audio.float().mean(0)
    if mono.numel() < SAMPLE_RATE // 4 or float(mono.square().mean().sqrt()) < 1e-3:
        return None
    power = torch.fft.rfft(mono * torch.hann_window(mono.numel())).abs().square()
    bins = mono.numel() / SAMPLE_RATE

    def loudness(pitch: float) -> float:
        centre, reach = round(pitch * bins), max(2, round(8 * bins))
        return float(power[centre - reach : centre + reach + 1].sum())

    return max(TIMBRES, key=lambda name: loudness(TIMBRES[name][0]))


def _follows(audio: torch.Tensor, x: torch.Tensor, seconds: torch.Tensor, width: int) -> bool | None:
    """Whether the balance of the two sides tells the object's x within an eighth of the width, on the median."""
    half = SAMPLE_RATE // 20
    balance = []
    for when in seconds.tolist():
        centre = min(max(round(when * SAMPLE_RATE), half), audio.shape[1] - half)
        left, right = audio[:, centre - half : centre + half].float().square().mean(1).sqrt().tolist()
        balance.append(math.atan2(right, left) / (math.pi / 2.0) * width)
    error = (torch.tensor(balance) - x).abs()
    return None if error.isnan().all() else bool(error.nanmedian() < width / 8)


def read_clip(frames: torch.Tensor, audio: torch.Tensor | None = None, seconds: torch.Tensor | None = None) -> Reading:
    """Read uint8 frames (F, H, W, 3), with sound (2, N) at 32 kHz if there is any.

    `seconds` (F,) are the frames' times, by default 24 per second. At most 64 frames, evenly spread, are looked at.
    """
    if frames.ndim != 4 or frames.shape[-1] != 3 or len(frames) == 0:
        raise ValueError(f"frames must be (F, H, W, 3) with F >= 1, got {tuple(frames.shape)}")
    seconds = torch.arange(len(frames)) / FPS if seconds is None else seconds
    picked = torch.linspace(0, len(frames) - 1, min(64, len(frames))).round().long()
    frames, seconds = frames[picked].float(), seconds[picked]
    background_rgb = frames[:, ::2, ::2].flatten(0, 2).median(0).values
    background = _nearest(background_rgb, BACKGROUNDS)
    sound = None if audio is None else _hear(audio)
    found = _object_alpha(frames, background_rgb)
    if found is None:
        nothing = torch.full((len(frames), 3), math.nan)
        return Reading(None, background, None, None, None, sound, None, nothing)
    alpha, colour = found
    centre, area = _track(alpha)
    if area.isnan().all():
        nothing = torch.full((len(frames), 3), math.nan)
        return Reading(None, background, None, None, None, sound, None, nothing)
    kind = _shape(alpha, centre, area)
    radius = (area / _AREA[kind]).sqrt()
    path = torch.stack([centre[:, 0], centre[:, 1] - _MASS_BELOW_CENTRE[kind] * radius, radius], 1)
    motion = _motion(path, seconds)
    pan = None if audio is None or sound is None else _follows(audio, path[:, 0], seconds, frames.shape[2])
    size = _size(path, seconds, motion)
    return Reading(_nearest(colour, COLOURS), background, SHAPES[kind], size, motion, sound, pan, path)
