"""MagCache (NeurIPS 2025, arXiv:2506.09045): the norm of the residual falls in the same way for every prompt.

gamma_t, the mean ratio of a row's residual norm to that of the step before, is measured once. Over a row of skips their
product tells how far the kept residual is off: err += |1 - prod gamma|; skip while err <= delta and at most
`max_skips` in a row, after the first `retention` share of the steps.
"""

from collections.abc import Sequence

from .base import Action, RunContext, StepCachePolicy, StepOutcome, StepSignals, compute, reuse


class MagCache(StepCachePolicy):
    """`ratios`: gamma of each step, 1 for the first; None takes those of the calibration (`magcache`)."""

    name = "magcache"

    def __init__(
        self, delta: float = 0.06, max_skips: int = 3, retention: float = 0.2, ratios: Sequence[float] | None = None
    ) -> None:
        if not delta >= 0.0 or max_skips < 0 or not 0.0 <= retention <= 1.0:
            raise ValueError(f"delta {delta}, max_skips {max_skips} must be 0 or more, retention {retention} in 0..1")
        self.delta, self.max_skips, self.retention, self.ratios = delta, max_skips, retention, ratios

    def begin(self, context: RunContext) -> None:
        ratios = self.ratios if self.ratios is not None else context.calibration.get("magcache")
        if not isinstance(ratios, Sequence):
            raise ValueError("magcache needs the ratios of this model: calibrate first (videoinfer cache calibrate)")
        if len(ratios) != context.num_steps:
            raise ValueError(
                f"magcache has ratios of a run of {len(ratios)} steps, and this one has {context.num_steps}: they "
                "hold for one number of steps; calibrate for this one"
            )
        self._ratios = [float(ratio) for ratio in ratios]
        self._retained = int(self.retention * context.num_steps + 0.5)
        self._restart()

    def _restart(self) -> None:
        self._product, self._skips, self._error = 1.0, 0, 0.0

    def decide(self, signals: StepSignals) -> Action:
        if signals.step < self._retained:
            return compute("warm-up")
        self._product *= self._ratios[signals.step]
        self._skips += 1
        self._error += abs(1.0 - self._product)
        if signals.kept and self._error <= self.delta and self._skips <= self.max_skips:
            return reuse()
        reason = "in a row" if self._skips > self.max_skips else "threshold"
        self._restart()
        return compute(reason)

    def settings(self) -> dict[str, object]:
        return {
            "delta": self.delta,
            "max_skips": self.max_skips,
            "retention": self.retention,
            "ratios": self.ratios,
        }


class MagCacheCalibration(StepCachePolicy):
    """Computes every step and keeps gamma in `ratios`."""

    name = "magcache-calibration"
    needs = frozenset({"residual_ratio"})

    def begin(self, context: RunContext) -> None:
        self.ratios: list[float] = []

    def decide(self, signals: StepSignals) -> Action:
        return compute("calibration")

    def observe(self, outcome: StepOutcome) -> None:
        self.ratios.append(outcome.values.get("residual_ratio", 1.0))
