"""TeaCache (Liu et al., CVPR 2025, arXiv:2411.19108): the timestep-modulated input tells how much the output changes.

acc += p(D), D the relative change of the first block's modulated input since the step before, p a polynomial that was
fitted on the model; skip while acc < delta, and set it to 0 on computing. All blocks are answered by their residual.
"""

from collections.abc import Sequence

from .base import Action, RunContext, StepCachePolicy, StepSignals, compute, reuse


class TeaCache(StepCachePolicy):
    """`polynomial`: coefficients of p, highest power first; None takes those of the calibration (`teacache`)."""

    name = "teacache"
    needs = frozenset({"modulated_change"})

    def __init__(self, delta: float, polynomial: Sequence[float] | None = None, warmup: int = 1) -> None:
        if not delta >= 0.0:
            raise ValueError(f"delta {delta} must be 0 or more")
        self.delta, self.polynomial, self.warmup = delta, polynomial, warmup

    def begin(self, context: RunContext) -> None:
        coefficients = self.polynomial if self.polynomial is not None else context.calibration.get("teacache")
        if not isinstance(coefficients, Sequence):
            raise ValueError(
                "teacache needs the polynomial of this model: calibrate first (videoinfer cache calibrate), or give "
                "polynomial=1;0 to take the change itself"
            )
        self._coefficients = [float(value) for value in coefficients]
        self._sum, self._last = 0.0, context.num_steps - 1

    def decide(self, signals: StepSignals) -> Action:
        change = signals.values.get("modulated_change")
        if signals.step < self.warmup or change is None:
            self._sum = 0.0
            return compute("warm-up")
        if signals.step == self._last:
            return compute("last")
        value = 0.0
        for coefficient in self._coefficients:
            value = value * change + coefficient
        self._sum += value
        if self._sum < self.delta:
            return reuse()
        self._sum = 0.0
        return compute("threshold")

    def settings(self) -> dict[str, object]:
        return {"delta": self.delta, "polynomial": self.polynomial, "warmup": self.warmup}
