"""Static: an explicit list of the steps that are computed."""

from collections.abc import Iterable

from .base import Action, Level, RunContext, StepCachePolicy, StepSignals, combine, compute, reuse


class Static(StepCachePolicy):
    """`steps` are computed, counted from 0; the others reuse (`order` 0) or continue the line through the last two
    computed ones over sigma (`order` 1)."""

    name = "static"

    def __init__(self, steps: Iterable[int], order: int = 0, level: Level = "residual") -> None:
        self.steps = frozenset(steps)
        if 0 not in self.steps or min(self.steps) < 0:
            raise ValueError(f"steps {sorted(self.steps)} must hold 0, the first step, and nothing below")
        if order not in (0, 1):
            raise ValueError(f"order {order} is not allowed: use 0 (reuse) or 1 (linear forecast)")
        self.order, self.level, self.memory = order, level, order + 1

    def begin(self, context: RunContext) -> None:
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
        return {"steps": sorted(self.steps), "order": self.order, "level": self.level}
