"""EasyCache (Zhou et al., arXiv:2507.02860): the output changes as the input does, at a rate that lasts.

k = mean|v - v'| / mean|x - x'| of the last two computed steps. At every step err += k mean|x - x_before| / mean|v|;
skip while err < tau. The answer is x + (v_c - x_c): what the model did to the input at the last computed step. No
block runs.
"""

from .base import Action, RunContext, StepCachePolicy, StepOutcome, StepSignals, compute, reuse


class EasyCache(StepCachePolicy):
    name = "easycache"
    level = "transform"
    needs = frozenset({"input_change", "output_norm", "output_change", "input_move"})

    def __init__(self, tau: float, warmup: int = 10, cooldown: int = 1) -> None:
        if not tau >= 0.0 or warmup < 2:
            raise ValueError(f"tau {tau} must be 0 or more, and warmup {warmup} 2 or more: a rate needs two steps")
        self.tau, self.warmup, self.cooldown = tau, warmup, cooldown

    def begin(self, context: RunContext) -> None:
        self._rate: float | None = None
        self._error = 0.0
        self._end = context.num_steps - self.cooldown

    def decide(self, signals: StepSignals) -> Action:
        if signals.step < self.warmup:
            return compute("warm-up")
        if signals.step >= self._end:
            return compute("last")
        change, norm = signals.values.get("input_change"), signals.values.get("output_norm")
        if self._rate is None or change is None or not norm:
            return compute("no history")
        self._error += self._rate * change / norm
        return reuse() if self._error < self.tau else compute("threshold")

    def observe(self, outcome: StepOutcome) -> None:
        if not outcome.action.computes:
            return
        self._error = 0.0
        change, move = outcome.values.get("output_change"), outcome.values.get("input_move")
        if change is not None and move:
            self._rate = change / move

    def settings(self) -> dict[str, object]:
        return {"tau": self.tau, "warmup": self.warmup, "cooldown": self.cooldown}
