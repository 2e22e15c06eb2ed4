"""What a user asks of a plan, and the error when it cannot be had."""

from dataclasses import dataclass
from typing import Literal

from ..errors import VideoInferError


class PlacementError(VideoInferError):
    """The wish does not fit the box; the message holds the numbers, and what would fit."""


@dataclass(frozen=True)
class Wish:
    """What a user asks for. None: as the plan finds it best.

    instances  a number, or "auto": one for each card (a second one gains only the time of a card's idle stages), and
               on a CPU one for each core, since small models use one core best
    """

    instances: int | Literal["auto"] = "auto"
    gpus: tuple[int, ...] | None = None
    threads: int | None = None
    two_phase: bool | None = None
    overlap: bool | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.instances != "auto" and self.instances < 1:
            raise PlacementError(f"--instances {self.instances} is too few: write auto, or 1 or more.")
        if self.threads is not None and self.threads < 1:
            raise PlacementError(f"--threads {self.threads} is too few: write 1 or more, or leave it out.")
        if self.device not in ("auto", "cpu", "cuda"):
            raise PlacementError(
                f"instances cannot be placed on --device {self.device}: use auto, cpu or cuda; --gpus names the cards."
            )
