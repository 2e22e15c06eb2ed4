"""The embedded model's world: one coloured shape that moves on a plain background, told in one English sentence.

A `Scene` is everything that a clip shows. Its words come from the prompt; its four `chance` numbers in [0, 1) place the
object where the words leave a choice, as a seed does for a generative model. Positions are pixels on the 160 x 96
canvas, times are seconds, the frame rate is 24 per second.

Motions are functions of absolute time, the same for every clip length, and keep the whole object on the canvas. Their
speeds are constant, so that two frames tell a motion whenever and wherever they are taken: a DiT with rotary positions
learns such relations first.
"""

import hashlib
import itertools
import math
import re
from dataclasses import dataclass

import torch

WIDTH, HEIGHT, FPS = 160, 96, 24

SIZES = {"small": 14.0, "large": 22.0}  # radius in pixels
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 90, 230),
    "yellow": (240, 210, 40),
    "purple": (150, 60, 190),
    "white": (240, 240, 240),
    "orange": (245, 140, 30),
    "cyan": (50, 210, 220),
}
SHAPES = ("circle", "square", "triangle")
MOTIONS = (
    "moves right",
    "moves left",
    "moves up",
    "moves down",
    "bounces around",
    "orbits around",
    "grows bigger",
    "stands still",
)
BACKGROUNDS = {"black": (16, 16, 16), "gray": (120, 120, 120), "navy": (16, 24, 80), "brown": (100, 62, 34)}

SPEEDS = (12.0, 5.0)  # pixels per second along x and y; what moves rests when it arrives
GROWTH = (0.6, 0.1, 1.3)  # of the radius: at first, per second, at most
BOUNCE_PERIODS = (4.0, 2.6)  # seconds for one way and back, in x and y
ORBIT_PERIOD = 5.0

TEMPLATES = (
    "a {size} {colour} {shape} {motion} on a {background} background",
    "a {size} {colour} {shape} that {motion}, on a {background} background",
    "on a {background} background, a {size} {colour} {shape} {motion}",
    "A video of a {size} {colour} {shape}. It {motion} on a {background} background.",
)
FRAME_TEMPLATES = ("the shape {motion}", "it {motion}", TEMPLATES[0])
REFERENCE_TEMPLATES = (
    "the shape of <Picture 1> {motion} on a {background} background",
    "the {shape} of <Picture 1> {motion} on a {background} background",
)


@dataclass(frozen=True)
class Scene:
    size: str
    colour: str
    shape: str
    motion: str
    background: str
    chance: tuple[float, float, float, float] = (0.5, 0.5, 0.5, 0.5)

    def prompt(self, template: str = TEMPLATES[0]) -> str:
        """The sentence that tells this scene."""
        words = {name: getattr(self, name) for name in ("size", "colour", "shape", "motion", "background")}
        return template.format(**words)

    @property
    def held_out(self) -> bool:
        """About one combination of words in ten never appears in training."""
        words = f"{self.size} {self.colour} {self.shape} {self.motion} {self.background}"
        return hashlib.sha256(words.encode()).digest()[0] < 26


def all_scenes() -> list[Scene]:
    """Every combination of words, 1,536 in all, with the object in the middle of what its words allow."""
    return [Scene(*words) for words in itertools.product(SIZES, COLOURS, SHAPES, MOTIONS, BACKGROUNDS)]


def random_scene(generator: torch.Generator, *, held_out: bool | None = False) -> Scene:
    """Draw a scene; `held_out` False: only combinations for training, True: only the others, None: any."""

    def pick(choices) -> str:
        return list(choices)[int(torch.randint(len(choices), (), generator=generator))]

    while True:
        chance = torch.rand(4, generator=generator).tolist()
        words = (pick(SIZES), pick(COLOURS), pick(SHAPES), pick(MOTIONS), pick(BACKGROUNDS))
        scene = Scene(*words, chance=(chance[0], chance[1], chance[2], chance[3]))
        if held_out is None or scene.held_out == held_out:
            return scene


def parse(prompt: str) -> dict[str, str]:
    """The attributes that a prompt names, by name; those that it leaves open are absent."""
    found = {}
    for name, words in (
        ("size", SIZES),
        ("colour", COLOURS),
        ("shape", SHAPES),
        ("motion", MOTIONS),
        ("background", BACKGROUNDS),
    ):
        for word in words:
            pattern = rf"\b{word}\b" if name != "background" else rf"\b{word} background\b"
            if re.search(pattern, prompt):
                found[name] = word
    return found


def _triangle_wave(phase: torch.Tensor) -> torch.Tensor:
    """0 at whole phases, 1 half-way between them."""
    return 1.0 - (2.0 * (phase - torch.floor(phase)) - 1.0).abs()


def trajectory(scene: Scene, seconds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Centre x, centre y and radius in pixels at each time; all of the shape of `seconds`."""
    radius = SIZES[scene.size]
    a, b, c, _ = scene.chance
    margin = 1.2 * radius + 2.0
    if scene.motion == "grows bigger":
        margin *= 1.3
    # Where the object may be: the canvas less the margin on every side.
    span_x, span_y = WIDTH - 2.0 * margin, HEIGHT - 2.0 * margin
    x = torch.full_like(seconds, margin + a * span_x)
    y = torch.full_like(seconds, margin + b * span_y)
    r = torch.full_like(seconds, radius)

    if scene.motion in ("moves right", "moves left"):
        way = (margin + a * (span_x - 5.0 * SPEEDS[0]) + SPEEDS[0] * seconds).clamp(max=margin + span_x)
        x = way if scene.motion == "moves right" else WIDTH - way
    elif scene.motion in ("moves down", "moves up"):
        way = (margin + b * (span_y - 5.0 * SPEEDS[1]) + SPEEDS[1] * seconds).clamp(max=margin + span_y)
        y = way if scene.motion == "moves down" else HEIGHT - way
    elif scene.motion == "bounces around":
        x = margin + span_x * _triangle_wave(seconds / BOUNCE_PERIODS[0] + a)
        y = margin + span_y * _triangle_wave(seconds / BOUNCE_PERIODS[1] + b)
    elif scene.motion == "orbits around":
        distance = span_y / 2.0 - 1.0
        angle = 2.0 * math.pi * (seconds / ORBIT_PERIOD + c)
        x = WIDTH / 2.0 + 50.0 * (a - 0.5) + distance * torch.cos(angle)
        y = HEIGHT / 2.0 + distance * torch.sin(angle)
    elif scene.motion == "grows bigger":
        r = radius * growth(seconds)
    return x, y, r


def beginning(scene: Scene) -> tuple[float, float, float, float]:
    """Where the object is at first, x and y in pixels, and the direction that it moves in then: a unit vector, or 0."""
    x, y, _ = (float(value) for value in trajectory(scene, torch.zeros(())))
    a, b, c, _ = scene.chance
    known = {"moves right": (1.0, 0.0), "moves left": (-1.0, 0.0), "moves up": (0.0, -1.0), "moves down": (0.0, 1.0)}
    head_x, head_y = known.get(scene.motion, (0.0, 0.0))
    if scene.motion == "bounces around":
        head_x, head_y = (0.5**0.5 if place < 0.5 else -(0.5**0.5) for place in (a, b))
    elif scene.motion == "orbits around":
        head_x, head_y = -math.sin(2.0 * math.pi * c), math.cos(2.0 * math.pi * c)
    return x, y, head_x, head_y


def growth(seconds: torch.Tensor) -> torch.Tensor:
    """The radius of what grows, as a share of its size's radius."""
    return (GROWTH[0] + GROWTH[1] * seconds).clamp(max=GROWTH[2])


def clip_seconds(num_frames: int) -> torch.Tensor:
    """The time of every frame of a clip, in seconds."""
    return torch.arange(num_frames, dtype=torch.float32) / FPS


def vocabulary() -> list[str]:
    """Every word that the templates and the world can say."""
    templates = (*TEMPLATES, *FRAME_TEMPLATES, *REFERENCE_TEMPLATES)
    fixed = " ".join(re.sub(r"\{\w+\}", " ", template) for template in templates)
    words = [*SIZES, *COLOURS, *SHAPES, *" ".join(MOTIONS).split(), *BACKGROUNDS, *re.findall(r"[A-Za-z]+", fixed)]
    return sorted(set(words))
