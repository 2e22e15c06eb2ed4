"""Training examples of the DiT: whole clips with their conditioning, each drawn several times before it is forgotten.

Every draw takes other frames, other noise and another noise level of an example, and making one (rendering, the text
encoder) costs as much as training on it. Held-out combinations of words never appear.
"""

from dataclasses import dataclass

import torch

from .latents import Basis, audio_latents, latent_frame_groups, scene_latents
from .train_conditions import Conditioning, TextStates, condition
from .world import Scene, random_scene

WORKFLOWS = ("t2va", "t2va", "fl2va", "ref2va")
CLIPS, CONDITIONED_CLIPS = 14, 8  # conditioning rows cost as much as generated ones
REUSE = 24  # draws per example, on average
HARD, HARD_SHARE = ("bounces around", "orbits around"), 0.25  # motions that get this share of all clips on top
KEPT = (2, 40)  # examples of one workflow and length: at least before one is reused, at most


@dataclass(frozen=True)
class Example:
    """Clips of one workflow: latents as the DiT sees them, video (B, L, 6, 10, 24) and audio (B, 2, T, 32), float16."""

    video: torch.Tensor
    audio: torch.Tensor
    given: Conditioning


class ExamplePool:
    """Examples by workflow and length; one in `REUSE` draws adds a fresh one."""

    def __init__(self, states: TextStates, basis: Basis, generator: torch.Generator):
        self.states, self.basis, self.generator = states, basis, generator
        self.kept: dict[tuple[str, int], list[Example]] = {}

    def _below(self, limit: int) -> int:
        return int(torch.randint(limit, (), generator=self.generator))

    def draw(self, num_frames: int) -> Example:
        """An example of `num_frames` frames, of a workflow chosen at random."""
        workflow = WORKFLOWS[self._below(len(WORKFLOWS))]
        kept = self.kept.setdefault((workflow, num_frames), [])
        if len(kept) >= KEPT[0] and self._below(REUSE):
            return kept[self._below(len(kept))]
        kept.append(self._make(workflow, num_frames))
        del kept[: -KEPT[1]]
        return kept[-1]

    def _make(self, workflow: str, num_frames: int) -> Example:
        count = CLIPS if workflow == "t2va" else CONDITIONED_CLIPS
        scenes = [self._scene() for _ in range(count)]
        given = condition(workflow, scenes, num_frames, self.states, self.basis, self.generator)
        video = scene_latents(scenes, latent_frame_groups(num_frames), self.basis) * self.basis.scale
        audio = audio_latents(scenes, given.layout.audio.shape[1])
        return Example(video.half(), audio.half(), given)

    def _scene(self) -> Scene:
        hard = float(torch.rand((), generator=self.generator)) < HARD_SHARE
        while True:
            scene = random_scene(self.generator)
            if not hard or scene.motion in HARD:
                return scene
