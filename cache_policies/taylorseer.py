"""TaylorSeer (Liu et al., ICCV 2025, arXiv:2503.06923): a Taylor series over the step index forecasts skipped steps.

At computed steps f_0 is the tensor and f_{j+1} = (f_j - f_j of the computed step before) / gap; the forecast k steps
on is sum_j k^j / j! f_j. Here at the level of the whole stack's residual (or of the output) instead of every module.
"""

from math import factorial

from .base import Action, Level, RunContext, StepCachePolicy, StepOutcome, StepSignals, combine, compute

Row = tuple[float, ...]  # a factor f_j as weights of the kept tensors, newest first


class TaylorSeer(StepCachePolicy):
    """Computes the first `warmup` steps, then one in `interval`, as diffusers' TaylorSeerCacheConfig does."""

    name = "taylorseer"

    def __init__(self, interval: int, order: int = 1, warmup: int = 3, level: Level = "residual") -> None:
        if interval < 1 or not 0 <= order <= 3 or warmup < 1:
            raise ValueError(f"interval {interval} and warmup {warmup} must be 1 or more, order {order} in 0..3")
        self.interval, self.order, self.warmup, self.level = interval, order, warmup, level
        self.memory = order + 1

    def begin(self, context: RunContext) -> None:
        self._factors: list[Row] = []
        self._computed: int | None = None

    def decide(self, signals: StepSignals) -> Action:
        if signals.step < self.warmup:
            return compute("warm-up")
        if (signals.step - self.warmup - 1) % self.interval == 0:
            return compute("interval")
        if self._computed is None:
            return compute("no history")
        ahead = signals.step - self._computed
        weights = [0.0] * len(self._factors)
        for j, factor in enumerate(self._factors):
            for k, weight in enumerate(factor):
                weights[k] += ahead**j / factorial(j) * weight
        return combine(*weights)

    def observe(self, outcome: StepOutcome) -> None:
        if not outcome.action.computes:
            return
        factors: list[Row] = [(1.0,)]
        if self._computed is not None:
            gap = outcome.step - self._computed
            for before in self._factors[: self.order]:
                older = (0.0, *before)  # what was newest then is second now
                newest = factors[-1] + (0.0,) * (len(older) - len(factors[-1]))
                factors.append(tuple((a - b) / gap for a, b in zip(newest, older, strict=True)))
        self._factors, self._computed = factors, outcome.step

    def settings(self) -> dict[str, object]:
        return {"interval": self.interval, "order": self.order, "warmup": self.warmup, "level": self.level}
