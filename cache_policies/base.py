"""The protocol between a denoise session and a step-cache policy.

A step cache answers some forwards of a diffusion transformer from earlier ones. The *session* owns the model, the
tensors and the measuring; a *policy* sees numbers only and decides, so that its log can be replayed without a model.
One policy object lives for one trajectory: one sample of one request in one guidance branch.

Rows are tokens of the packed sequence, `generated` rows those that are denoised; sigma is the noise level, 1 at first.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

Level = Literal["residual", "output", "transform"]
Stage = Literal["input", "probe"]


@dataclass(frozen=True)
class Action:
    """`weights` of the kept tensors, newest first, that make the answer; none: compute. `reason` is for the log."""

    weights: tuple[float, ...] = ()
    reason: str = ""

    @property
    def computes(self) -> bool:
        return not self.weights


def compute(reason: str) -> Action:
    return Action(reason=reason)


def reuse(reason: str = "reuse") -> Action:
    """The newest kept tensor as it is."""
    return Action((1.0,), reason)


def combine(*weights: float, reason: str = "forecast") -> Action:
    """A linear combination of the kept tensors, newest first: a linear forecast is (1 + r, -r)."""
    return Action(tuple(weights), reason)


@dataclass(frozen=True)
class RunContext:
    """What is known before the first step.

    num_steps    forwards of the run, N
    sigmas       per stream, N + 1 values, the last one 0
    branch       of the guidance; "cond" without guidance
    num_blocks   length of the block stack
    calibration  numbers measured before on this model (MagCache's ratios, TeaCache's polynomial, a static mask); a
                 policy names those that it needs, and refuses to begin without them
    """

    num_steps: int
    sigmas: Mapping[str, tuple[float, ...]]
    branch: str = "cond"
    num_blocks: int = 1
    calibration: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class StepSignals:
    """What is known when a step is to be decided. `values`: those that the policy `needs`, by name; a value that cannot
    be had yet (there is no step before) is absent. `since`: steps since the last computed one, 1 right after it."""

    step: int
    num_steps: int
    sigma: Mapping[str, float]
    dsigma: Mapping[str, float]
    since: int
    kept: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class StepOutcome:
    """What came of a step. `action` is what was done, which the session may have changed to computing, with its reason.

    values  of computed steps: those that the policy `needs` and that only a computed step can tell
    """

    step: int
    action: Action
    seconds: float
    finite: bool
    values: Mapping[str, float]


class StepCachePolicy(ABC):
    """A rule for when to compute and what to answer otherwise.

    stage   where it decides: at the `input` of the block stack, or behind the first block (the `probe`), which then
            always runs
    level   what is kept and combined: the `residual` that the blocks behind the decision add to the hidden states, the
            model's `output`, or its `transform`, output minus input of the generated rows
    memory  how many computed tensors are kept
    needs   names of the values it wants measured, of `SIGNALS` and `FINDINGS`
    rows    the rows that values about hidden states are measured over
    """

    name: ClassVar[str]
    stage: Stage = "input"
    level: Level = "residual"
    memory: int = 1
    needs: frozenset[str] = frozenset()
    rows: Literal["all", "generated"] = "generated"

    def begin(self, context: RunContext) -> None:  # noqa: B027
        """Raises ValueError when the run is one that this policy cannot serve."""

    @abstractmethod
    def decide(self, signals: StepSignals) -> Action: ...

    def observe(self, outcome: StepOutcome) -> None:  # noqa: B027
        """Told after every step, whoever decided it."""

    def settings(self) -> dict[str, object]:
        """What sets this policy apart from others of its name, for reports."""
        return {}


# Relative change: mean |a - b| / mean |b| in float32; of hidden states over the policy's `rows`.
SIGNALS = {
    "probe_change": "relative, of the first block's residual, against the last computed step",
    "probe_drift": "relative, of the first block's residual, against the step before",
    "probe_gain": "mean |p - p2| / mean |p1 - p2|, p the probe's residual, p1 and p2 at the last two computed steps",
    "modulated_change": "relative, of the first block's modulated input, against the step before",
    "filtered_change": "relative, of the Wiener-filtered video latents, against the step before",
    "input_change": "mean |x - x'| of the generated rows, x' at the step before",
    "output_norm": "mean |v| of the generated rows at the last computed step",
}
# What only a computed step can tell; in `StepOutcome.values`.
FINDINGS = {
    "input_move": "mean |x - x'| of the generated rows, x' at the last computed step",
    "output_change": "mean |v - v'| of the generated rows, v' at the last computed step",
    "residual_ratio": "mean over rows of the norm of the stack's residual over that of the last computed one",
}
