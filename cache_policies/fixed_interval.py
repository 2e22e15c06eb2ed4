"""Fixed interval: every n-th step is computed (FORA, arXiv:2407.01425, at the level of the whole stack)."""

from .base import Action, Level, RunContext, StepCachePolicy, StepSignals, compute, reuse


class FixedInterval(StepCachePolicy):
    """Computes the first `warmup` steps, then one in `interval`, and the last one."""

    name = "fixed-interval"

    def __init__(self, interval: int, warmup: int = 1, level: Level = "residual") -> None:
        if interval < 1 or warmup < 1:
            raise ValueError(f"interval {interval} and warmup {warmup} must both be 1 or more")
        self.interval, self.warmup, self.level = interval, warmup, level

    def begin(self, context: RunContext) -> None:
        self._last = context.num_steps - 1

    def decide(self, signals: StepSignals) -> Action:
        if signals.step < self.warmup:
            return compute("warm-up")
        if signals.step == self._last:
            return compute("last")
        return compute("interval") if (signals.step - self.warmup + 1) % self.interval == 0 else reuse()

    def settings(self) -> dict[str, object]:
        return {"interval": self.interval, "warmup": self.warmup, "level": self.level}
