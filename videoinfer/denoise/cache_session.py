"""One run under a step-cache policy: hooks in the transformer measure, ask the policy, and run or answer the blocks."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.hooks.hooks import ModelHook

from ..cache_policies import Action, RunContext, StepCachePolicy, StepOutcome, StepSignals, compute
from .attach import attached
from .cache_report import CacheReport
from .kept import Kept
from .measures import mean_change, mean_size, read, relative_change, row_ratio, wiener_filtered
from .target import CacheTarget, Rows

HOOK = "videoinfer_cache"


class CacheSession:
    """Raises ValueError when the policy cannot serve this run. Use `session.open()` around the denoise loop, and let a
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
        self.target, self.policy, self.sigmas, self.branch = target, policy, sigmas, branch
        self.num_steps = len(sigmas[target.streams[0]]) - 1
        probes = int(policy.stage == "probe")
        self.report = CacheReport(policy.name, policy.settings(), sigmas, len(target.blocks), probes)
        policy.begin(RunContext(self.num_steps, sigmas, branch, len(target.blocks), calibration or {}))
        self.kept = Kept(policy.memory)
        self.step = self._last_step = -1
        self._last_computed = -1
        self._before: dict[str, torch.Tensor | Rows] = {}  # what signals compare with, by name
        self._now: dict[str, torch.Tensor | Rows] = {}
        self._anchor: torch.Tensor | None = None  # hidden states where the residual begins
        self._action: Action | None = None  # of this step; None until it is decided
        self._values: dict[str, float] = {}
        self._began = 0.0
        self._arguments: dict[str, Any] = {}

    @contextmanager
    def open(self) -> Iterator["CacheSession"]:
        """Hooks the transformer for the length of the block. RuntimeError when it has a session already."""
        blocks = list(self.target.blocks)
        hooks: list[tuple[Any, str, ModelHook]] = [(self.target.transformer, HOOK, _Root(self))]
        hooks.append((blocks[0], HOOK, _Leader(self, tail=len(blocks) == 1)))
        hooks += [(block, HOOK, _Block(self, tail=block is blocks[-1])) for block in blocks[1:]]
        try:
            with attached(self.target.transformer, hooks):
                yield self
        finally:
            self.kept.clear()
            self._before, self._now, self._anchor, self._arguments = {}, {}, None, {}

    # What the loop tells.

    def enter_step(self, step: int, block_state: Any) -> None:
        """A step of the loop begins."""
        self.step = step
        self.target.enter(block_state)

    # What the hooks ask.

    def enter(self, arguments: dict[str, Any]) -> Rows | None:
        """The forward begins; returns the answer of the whole model, or None when blocks are to run."""
        self._began, self._arguments = time.perf_counter(), arguments
        self._action, self._anchor, self._now = None, None, {}
        if {"input_change", "input_move"} & self.policy.needs:
            rows = self.target.generated(self.target.inputs(arguments))
            self._now["input"] = tuple(row.clone() for row in rows)  # the loop writes into its latents
        if self.policy.stage == "input" and self.policy.level != "residual":
            self._decide()
            if not self.decided.computes:
                return self._answer_output(arguments)
        return None

    def leave(self, outputs: Rows) -> None:
        """The forward has returned, computed or answered."""
        action = self.decided
        if action.computes:
            if self.policy.level == "output":
                self._keep(outputs)
            elif self.policy.level == "transform":
                inputs = self.target.inputs(self._arguments)
                self._keep(tuple(out.float() - row.float() for out, row in zip(outputs, inputs, strict=True)))
        findings = read(self._findings(outputs)) if action.computes else {}
        finite = all(map(math.isfinite, findings.values()))
        seconds = time.perf_counter() - self._began
        self.policy.observe(StepOutcome(self.step, action, seconds, finite, findings))
        self.report.add(self.step, action, {**self._values, **findings})
        if action.computes:
            self._last_computed = self.step
        self._before |= self._now
        if action.computes:
            for name in ("input", "probe"):
                if name in self._now:
                    if f"{name} computed" in self._before:
                        self._before[f"{name} computed before"] = self._before[f"{name} computed"]
                    self._before[f"{name} computed"] = self._now[name]
        self._last_step = self.step

    def at_input(self, hidden_states: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor | None:
        """In front of the first block; returns its answer for the whole stack, or None when it is to run."""
        if self.policy.stage == "probe":
            self._probe_input = hidden_states.clone()
            return None
        if self._action is None:  # a residual-level policy decides here
            if "modulated_change" in self.policy.needs:
                self._now["modulated"] = self._rows(
                    self.target.modulated(self.target.blocks[0], hidden_states, arguments)
                )
            self._decide(hidden_states)
        if self.decided.computes:
            if self.kept.memory or "residual_ratio" in self.policy.needs:
                self._anchor = hidden_states.clone()  # a block may work in place
            return None
        return hidden_states + self.kept.combined(self.decided.weights)[0]

    def at_probe(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Behind the first block, where a probing policy decides; returns its answer, or None when the rest runs."""
        if self.policy.stage != "probe":
            return None
        self._now["probe"] = self._rows(hidden_states - self._probe_input)
        del self._probe_input
        self._decide(hidden_states)
        if self.decided.computes:
            self._anchor = hidden_states.clone()
            return None
        return hidden_states + self.kept.combined(self.decided.weights)[0]

    def at_tail(self, hidden_states: torch.Tensor) -> None:
        """Behind the last block of a computed step."""
        if self._anchor is None or not (self.policy.level == "residual" or "residual_ratio" in self.policy.needs):
            return
        residual = hidden_states - self._anchor
        if "residual_ratio" in self.policy.needs:
            self._now["residual"] = self._rows(residual)
        if self.policy.level == "residual":
            self._keep((residual,))
        self._anchor = None

    @property
    def decided(self) -> Action:
        return self._action if self._action is not None else compute("undecided")

    @property
    def answers(self) -> bool:
        """Whether the blocks behind the decision are answered and not run."""
        return self._action is not None and not self._action.computes

    # Measuring and deciding.

    def _decide(self, hidden_states: torch.Tensor | None = None) -> None:
        self._values = read(self._signals())
        video = self.sigmas[self.target.streams[0]]
        signals = StepSignals(
            self.step,
            self.num_steps,
            {name: sigmas[self.step] for name, sigmas in self.sigmas.items()},
            {name: sigmas[self.step + 1] - sigmas[self.step] for name, sigmas in self.sigmas.items()},
            self.step - self._last_computed,
            len(self.kept),
            self._values,
        )
        bad = [name for name, value in self._values.items() if not math.isfinite(value)]
        action = self.policy.decide(signals if not bad else _without(signals, bad))
        guard = None
        if bad:
            guard = f"not finite: {bad[0]}"
        elif self.step != self._last_step + 1:
            guard = "step out of order"
        elif self.step > 0 and not video[self.step] < video[self.step - 1]:
            guard = "sigma does not fall"
        elif not action.computes:
            if len(self.kept) < len(action.weights):
                guard = "nothing kept"
            elif hidden_states is not None and not self.kept.fits((hidden_states,)):
                guard = "shape changed"
        if guard is not None:
            self.report.guard(guard)
            action = compute(guard)
        self._action = action

    def _signals(self) -> dict[str, torch.Tensor]:
        needs, now, before = self.policy.needs, self._now, self._before
        found: dict[str, torch.Tensor] = {}

        def pair(name: str, current: str, earlier: str, measure: Any) -> None:
            if name in needs and current in now and earlier in before:
                found[name] = measure(now[current], before[earlier])

        if "filtered_change" in needs:
            latents = self.target.video_latents(self._arguments)
            self._now["filtered"] = wiener_filtered(latents, self.sigmas[self.target.streams[0]][self.step])
        pair("probe_change", "probe", "probe computed", relative_change)
        pair("probe_drift", "probe", "probe", relative_change)
        pair("modulated_change", "modulated", "modulated", relative_change)
        pair("filtered_change", "filtered", "filtered", relative_change)
        pair("input_change", "input", "input", mean_change)
        if "probe_gain" in needs and "probe computed before" in before:
            far, near = now["probe"], before["probe computed"]
            two = before["probe computed before"]
            found["probe_gain"] = mean_change(_tuple(far), _tuple(two)) / mean_change(_tuple(near), _tuple(two))
        if "output_norm" in needs and "output" in before:
            found["output_norm"] = mean_size(_tuple(before["output"]))
        return found

    def _findings(self, outputs: Rows) -> dict[str, torch.Tensor]:
        needs, now, before = self.policy.needs, self._now, self._before
        found: dict[str, torch.Tensor] = {}
        if {"output_change", "output_norm"} & needs:
            velocity = tuple(row.clone() for row in self.target.generated(outputs))
            if "output_change" in needs and "output" in before:
                found["output_change"] = mean_change(velocity, _tuple(before["output"]))
            now["output"] = velocity
        if "input_move" in needs and "input computed" in before:
            found["input_move"] = mean_change(_tuple(now["input"]), _tuple(before["input computed"]))
        if "residual_ratio" in needs and "residual" in now and "residual" in before:
            found["residual_ratio"] = row_ratio(now["residual"], before["residual"])  # type: ignore[arg-type]
        return found

    def _rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.policy.rows == "all":
            return hidden_states
        return hidden_states.index_select(1, self.target.packed(self._arguments))

    def _keep(self, bundle: tuple[torch.Tensor, ...]) -> None:
        if not self.kept.add(tuple(tensor.clone() if tensor._base is not None else tensor for tensor in bundle)):
            self.report.guard("shape changed")

    def _answer_output(self, arguments: dict[str, Any]) -> Rows:
        answer = self.kept.combined(self.decided.weights)
        if self.policy.level == "output":
            return answer
        inputs = self.target.inputs(arguments)
        return tuple(row.float() + shift for row, shift in zip(inputs, answer, strict=True))


def _tuple(value: torch.Tensor | Rows) -> Rows:
    return value if isinstance(value, tuple) else (value,)


def _without(signals: StepSignals, names: list[str]) -> StepSignals:
    values = {name: value for name, value in signals.values.items() if name not in names}
    return StepSignals(**{**vars(signals), "values": values})


class _Root(ModelHook):
    """Around the whole forward."""

    def __init__(self, session: CacheSession) -> None:
        super().__init__()
        self.session = session

    def new_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        session = self.session
        if args:
            raise RuntimeError("the denoise loop gives the transformer positional arguments: no cache can read them")
        answer = session.enter(kwargs)
        result = session.target.result(answer) if answer is not None else self.fn_ref.original_forward(**kwargs)
        session.leave(session.target.outputs(result))
        return result


class _Leader(ModelHook):
    """Around the first block."""

    def __init__(self, session: CacheSession, tail: bool) -> None:
        super().__init__()
        self.session, self.tail = session, tail

    def new_forward(self, module: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        answer = self.session.at_input(hidden_states, args)
        if answer is not None:
            return answer
        output = self.fn_ref.original_forward(hidden_states, *args, **kwargs)
        answer = self.session.at_probe(output)
        if answer is not None:
            return answer
        if self.tail:
            self.session.at_tail(output)
        return output


class _Block(ModelHook):
    """Around every other block."""

    def __init__(self, session: CacheSession, tail: bool) -> None:
        super().__init__()
        self.session, self.tail = session, tail

    def new_forward(self, module: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.session.answers:
            return hidden_states
        output = self.fn_ref.original_forward(hidden_states, *args, **kwargs)
        if self.tail:
            self.session.at_tail(output)
        return output
