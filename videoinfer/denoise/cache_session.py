"""One run under a step-cache policy: measures, asks the policy, and lets the blocks run or answers for them."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..cache_policies import Action, RunContext, StepCachePolicy, StepOutcome, StepSignals, compute
from .attach import attached
from .cache_hooks import session_hooks
from .cache_report import CacheReport
from .cache_signals import Signals
from .kept import Kept
from .measures import wiener_filtered
from .target import CacheTarget, Rows


class CacheSession:
    """Raises ValueError when the policy cannot serve this run. Use `open()` around the denoise loop, and let a
    `CacheStep` block tell it each step.

    Whatever is unexpected is computed and its reason counted: a value that is not finite, tensors of another shape,
    type or device than those kept, a step that does not follow the last one, a sigma that does not fall.
    """

    def __init__(
        self,
        target: CacheTarget,
        policy: StepCachePolicy,
        sigmas: dict[str, tuple[float, ...]],
        branch: str = "cond",
        calibration: dict[str, object] | None = None,
    ) -> None:
        self.target, self.policy, self.sigmas = target, policy, sigmas
        self.num_steps = len(sigmas[target.streams[0]]) - 1
        probes = int(policy.stage == "probe")
        self.report = CacheReport(policy.name, policy.settings(), sigmas, len(target.blocks), probes)
        policy.begin(RunContext(self.num_steps, sigmas, branch, len(target.blocks), calibration or {}))
        self.kept, self.signals = Kept(policy.memory), Signals(policy.needs)
        self.step = self._last_step = self._last_computed = -1
        self._action: Action | None = None  # of this step; None until it is decided
        self._values: dict[str, float] = {}
        self._anchor: torch.Tensor | None = None  # hidden states in front of what is probed or answered
        self._arguments: Mapping[str, Any] = {}
        self._began = 0.0

    @contextmanager
    def open(self) -> Iterator["CacheSession"]:
        """Hooks the transformer for the length of the block. RuntimeError when it has a session already."""
        try:
            with attached(self.target.transformer, session_hooks(self)):
                yield self
        finally:
            self.kept.clear()
            self.signals.clear()
            self._anchor, self._arguments = None, {}

    def enter_step(self, step: int, block_state: Any) -> None:
        """Told by the loop before each forward."""
        self.step = step
        self.target.enter(block_state)

    @property
    def answers(self) -> bool:
        """Whether this step is answered, and its blocks are not to run."""
        return self._action is not None and not self._action.computes

    # What the hooks ask, in the order of a forward.

    def enter(self, arguments: Mapping[str, Any]) -> Rows | None:
        """The forward begins; returns the answer of the whole model, or None when blocks are to run."""
        self._began, self._arguments, self._action, self._anchor = time.perf_counter(), arguments, None, None
        self.signals.begin()
        if {"input_change", "input_move"} & self.policy.needs:
            rows = self.target.generated(self.target.inputs(arguments))
            self.signals.note("input", tuple(row.clone() for row in rows))  # the loop writes into its latents
        if "filtered_change" in self.policy.needs:
            sigma = self.sigmas[self.target.streams[0]][self.step]
            self.signals.note("filtered", wiener_filtered(self.target.video_latents(arguments), sigma))
        if self.policy.level == "residual":
            return None
        inputs = self.target.inputs(arguments)
        if self._decide(inputs).computes:
            return None
        answer = self.kept.combined(self._decided.weights)
        if self.policy.level == "transform":
            answer = tuple(row.float() + change for row, change in zip(inputs, answer, strict=True))
        return answer

    def at_input(self, hidden_states: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor | None:
        """In front of the first block; returns its answer for the whole stack, or None when it is to run."""
        if self._action is None and self.policy.stage == "input":
            if "modulated_change" in self.policy.needs:
                modulated = self.target.modulated(self.target.blocks[0], hidden_states, arguments)
                self.signals.note("modulated", self._rows(modulated))
            if not self._decide((hidden_states,)).computes:
                return hidden_states + self.kept.combined(self._decided.weights)[0]
        if self.policy.stage == "probe" or self._measures_residual:
            self._anchor = hidden_states.clone()  # a block may work in place
        return None

    def at_probe(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Behind the first block, where a probing policy decides; returns its answer, or None when the rest runs."""
        if self.policy.stage != "probe" or self._anchor is None:
            return None
        self.signals.note("probe", self._rows(hidden_states - self._anchor))
        if not self._decide((hidden_states,)).computes:
            return hidden_states + self.kept.combined(self._decided.weights)[0]
        self._anchor = hidden_states.clone()
        return None

    def at_tail(self, hidden_states: torch.Tensor) -> None:
        """Behind the last block of a computed step."""
        if self._anchor is None or not self._measures_residual:
            return
        residual = hidden_states - self._anchor
        if "residual_ratio" in self.policy.needs:
            self.signals.note("residual", self._rows(residual))
        if self.policy.level == "residual":
            self._keep((residual,))

    def leave(self, outputs: Rows) -> None:
        """The forward has returned, computed or answered."""
        action, findings = self._decided, {}
        if action.computes:
            if self.policy.level == "output":
                self._keep(tuple(row.clone() for row in outputs))
            elif self.policy.level == "transform":
                inputs = self.target.inputs(self._arguments)
                self._keep(tuple(row.float() - x.float() for row, x in zip(outputs, inputs, strict=True)))
            if {"output_change", "output_norm"} & self.policy.needs:
                self.signals.note("output", tuple(row.clone() for row in self.target.generated(outputs)))
            findings = self.signals.findings()
            self._last_computed = self.step
        self.signals.end(action.computes)
        finite = all(map(math.isfinite, findings.values()))
        seconds = time.perf_counter() - self._began
        self.policy.observe(StepOutcome(self.step, action, seconds, finite, findings))
        self.report.add(self.step, action, {**self._values, **findings})
        self._last_step, self._anchor = self.step, None

    # Deciding.

    def _decide(self, states: Rows) -> Action:
        """Measures and asks. `states`: what an answer would be added to, or stand for."""
        self._values = self.signals.values()
        bad = [name for name, value in self._values.items() if not math.isfinite(value)]
        signals = StepSignals(
            self.step,
            self.num_steps,
            {name: sigmas[self.step] for name, sigmas in self.sigmas.items()},
            {name: sigmas[self.step + 1] - sigmas[self.step] for name, sigmas in self.sigmas.items()},
            self.step - self._last_computed,
            len(self.kept),
            {name: value for name, value in self._values.items() if name not in bad},
        )
        action = self.policy.decide(signals)
        guard = self._guard(action, bad, states)
        if guard is not None:
            self.report.guard(guard)
            action = compute(guard)
        self._action = action
        return action

    def _guard(self, action: Action, bad: list[str], states: Rows) -> str | None:
        """Why this step has to be computed whatever the policy says, or None."""
        video = self.sigmas[self.target.streams[0]]
        if bad:
            return f"not finite: {bad[0]}"
        if self.step != self._last_step + 1:
            return "step out of order"
        if self.step > 0 and not video[self.step] < video[self.step - 1]:
            return "sigma does not fall"
        if action.computes:
            return None
        if len(self.kept) < len(action.weights):
            return "nothing kept"
        return None if self.kept.fits(states, exactly=self.policy.level == "residual") else "shape changed"

    @property
    def _decided(self) -> Action:
        return self._action if self._action is not None else compute("undecided")

    @property
    def _measures_residual(self) -> bool:
        keeps = self.policy.level == "residual" and self.policy.memory > 0
        return keeps or "residual_ratio" in self.policy.needs

    def _rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.policy.rows == "all":
            return hidden_states
        return hidden_states.index_select(1, self.target.packed(self._arguments))

    def _keep(self, bundle: Rows) -> None:
        if not self.kept.add(bundle):
            self.report.guard("shape changed")
