"""SeaCache (arXiv:2602.18993): the change of the latents behind a filter that keeps what can be signal at this sigma.

acc += D, the relative change of the Wiener-filtered latents (power spectrum 1 / f^3) since the step before; skip while
acc < delta, at most `max_skips` in a row, not in the first `warmup` and last `cooldown` steps. The answer continues
the line through the last two computed residuals over the step index (`order` 1), or reuses (0).
"""

from .base import Action, RunContext, StepCachePolicy, StepOutcome, StepSignals, combine, compute, reuse


class SeaCache(StepCachePolicy):
    name = "seacache"
    needs = frozenset({"filtered_change"})

    def __init__(
        self, delta: float = 0.25, order: int = 1, warmup: int = 1, cooldown: int = 1, max_skips: int = 2
    ) -> None:
        if not delta >= 0.0 or order not in (0, 1) or warmup < 1 or max_skips < 0:
            raise ValueError(
                f"delta {delta}, max_skips {max_skips} must be 0 or more, order {order} 0 or 1, warmup {warmup} above 0"
            )
        self.delta, self.order, self.warmup, self.cooldown = delta, order, warmup, cooldown
        self.max_skips, self.memory = max_skips, order + 1

    def begin(self, context: RunContext) -> None:
        self._sum, self._end = 0.0, context.num_steps - self.cooldown
        self._computed: list[int] = []

    def decide(self, signals: StepSignals) -> Action:
        change = signals.values.get("filtered_change")
        forced = (
            "warm-up"
            if signals.step < self.warmup or change is None
            else "last"
            if signals.step >= self._end
            else "in a row"
            if self.max_skips and signals.since > self.max_skips
            else ""
        )
        if forced or change is None:
            self._sum = 0.0
            return compute(forced)
        self._sum += change
        if self._sum >= self.delta:
            self._sum = 0.0
            return compute("threshold")
        if self.order and len(self._computed) > 1 and signals.kept > 1:
            newest, before = self._computed
            r = (signals.step - newest) / (newest - before)
            return combine(1.0 + r, -r)
        return reuse()

    def observe(self, outcome: StepOutcome) -> None:
        if outcome.action.computes:
            self._computed = [outcome.step, *self._computed[:1]]

    def settings(self) -> dict[str, object]:
        return {
            "delta": self.delta,
            "order": self.order,
            "warmup": self.warmup,
            "cooldown": self.cooldown,
            "max_skips": self.max_skips,
        }
