"""Dense: every step is computed."""

from .base import Action, StepCachePolicy, StepSignals, compute


class Dense(StepCachePolicy):
    name = "dense"
    memory = 0

    def decide(self, signals: StepSignals) -> Action:
        return compute("dense")
