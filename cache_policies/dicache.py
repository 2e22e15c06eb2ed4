"""DiCache (Bu et al., arXiv:2508.17356): a shallow probe decides, and aligns the residuals of two computed steps.

acc += D, the relative change of the probe since the step before; skip while acc < tau. The answer follows the probe p
along the line through the last two computed steps 1 and 2: R_2 + g (R_1 - R_2), g = |p - p_2| / |p_1 - p_2|, kept in
[1, 2].
"""

from .base import Action, RunContext, StepCachePolicy, StepSignals, combine, compute, reuse


class DiCache(StepCachePolicy):
    name = "dicache"
    stage = "probe"
    memory = 2
    needs = frozenset({"probe_drift", "probe_gain"})

    def __init__(self, tau: float, retention: float = 0.2) -> None:
        if not tau >= 0.0 or not 0.0 <= retention <= 1.0:
            raise ValueError(f"tau {tau} must be 0 or more, and retention {retention} in 0..1")
        self.tau, self.retention = tau, retention

    def begin(self, context: RunContext) -> None:
        self._sum, self._retained = 0.0, int(self.retention * context.num_steps)

    def decide(self, signals: StepSignals) -> Action:
        drift = signals.values.get("probe_drift")
        if signals.step < self._retained or drift is None:
            self._sum = 0.0
            return compute("warm-up")
        self._sum += drift
        if self._sum >= self.tau:
            self._sum = 0.0
            return compute("threshold")
        gain = signals.values.get("probe_gain")
        if gain is None or signals.kept < 2:
            return reuse()
        gain = min(2.0, max(1.0, gain))
        return combine(gain, 1.0 - gain, reason="aligned")

    def settings(self) -> dict[str, object]:
        return {"tau": self.tau, "retention": self.retention}
