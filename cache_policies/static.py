"""Static: an explicit list of the steps that are computed."""

from collections.abc import Iterable, Mapping

from .base import Action, Level, RunContext, StepCachePolicy, StepSignals, combine, compute, reuse


class Static(StepCachePolicy):
    """`steps` are computed, counted from 0; a number alone means the best so many of the calibration (`static`).

    The others reuse (`order` 0) or continue the line through the last two computed ones over sigma (`order` 1).
    """

    name = "static"

    def __init__(self, steps: Iterable[int] | int, order: int = 0, level: Level = "residual") -> None:
        self.count = steps if isinstance(steps, int) else None
        self.steps: frozenset[int] = frozenset() if isinstance(steps, int) else frozenset(steps)
        if self.count is not None and self.count < 1:
            raise ValueError(f"{self.count} computed steps are too few: use 1 or more")
        if self.count is None and (0 not in self.steps or min(self.steps) < 0):
            raise ValueError(f"steps {sorted(self.steps)} must hold 0, the first step, and nothing below")
        if order not in (0, 1):
            raise ValueError(f"order {order} is not allowed: use 0 (reuse) or 1 (linear forecast)")
        self.order, self.level, self.memory = order, level, order + 1

    def begin(self, context: RunContext) -> None:
        if self.count is not None:
            schedules = context.calibration.get("static")
            if not isinstance(schedules, Mapping) or str(self.count) not in schedules:
                raise ValueError(
                    f"static@{self.count} needs the best {self.count} steps of this model: calibrate first (videoinfer "
                    "cache calibrate), or list the steps, as in static@0;1;2;5"
                )
            self.steps = frozenset(schedules[str(self.count)])
        if max(self.steps) >= context.num_steps:
            raise ValueError(f"step {max(self.steps)} is to be computed, and the run has only {context.num_steps}")
        (self._sigmas, *_) = context.sigmas.values()
        self._computed: list[int] = []

    def decide(self, signals: StepSignals) -> Action:
        if signals.step in self.steps:
            self._computed = [signals.step, *self._computed[:1]]
            return compute("listed")
        if self.order and signals.kept > 1:
            newest, before = (self._sigmas[k] for k in self._computed)
            r = (self._sigmas[signals.step] - newest) / (newest - before)
            return combine(1.0 + r, -r)
        return reuse()

    def settings(self) -> dict[str, object]:
        return {
            "steps": sorted(self.steps) if self.count is None else self.count,
            "order": self.order,
            "level": self.level,
        }
