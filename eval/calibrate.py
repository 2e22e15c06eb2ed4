"""Measures on dense runs what some step caches must know of a model beforehand.

    videoinfer cache calibrate --model demo --workflow t2va --steps 50 -o calibration.json

magcache   the mean ratio of a row's residual norm to that of the step before, for each step
teacache   the polynomial of degree 4 from the change of the modulated input to the change of the output, and its R^2
static     for every number of computed steps, the best ones
All hold for one model, workflow and number of steps; the entry says which.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from ..cache_policies import Action, RunContext, StepCachePolicy, StepOutcome, StepSignals, compute
from ..denoise import CacheSession, cached, observed
from ..engine import VideoEngine
from ..request import GenerationRequest, ResolvedRequest
from .static_schedule import best_steps, row_costs

DEGREE = 4


class Recorder(StepCachePolicy):
    """Computes every step and keeps what was measured: `ratios` (N,), and `changes`, pairs (modulated input, output) of
    relative changes."""

    name = "recorder"
    needs = frozenset({"residual_ratio", "modulated_change", "output_norm", "output_change"})
    rows = "all"

    def begin(self, context: RunContext) -> None:
        self.ratios: list[float] = []
        self.changes: list[tuple[float, float]] = []
        self._signals: dict[str, float] = {}

    def decide(self, signals: StepSignals) -> Action:
        self._signals = dict(signals.values)
        return compute("recorded")

    def observe(self, outcome: StepOutcome) -> None:
        self.ratios.append(outcome.values.get("residual_ratio", 1.0))
        change, norm = outcome.values.get("output_change"), self._signals.get("output_norm")
        if change is not None and norm:
            self.changes.append((self._signals["modulated_change"], change / norm))


def record(engine: VideoEngine, resolved: ResolvedRequest) -> tuple[Recorder, np.ndarray, tuple[float, ...]]:
    """A dense run: its recorder, the gram matrix of its velocities (N, N) over both streams, each over the
    squared norm of what the run made, and the video's sigmas."""
    model = engine.model
    conditioning = engine.encode(resolved)
    pipeline = model.stage(resolved.workflow, "denoise")
    inputs = model.family.denoise_inputs(
        conditioning, resolved, torch.Generator("cpu").manual_seed(resolved.seed), pipeline
    )
    target = model.family.cache_target(pipeline)
    recorder = Recorder()
    session = CacheSession(target, recorder, target.sigmas(pipeline))
    velocities: list[list[torch.Tensor]] = []

    def keep(_module: Any, _args: Any, result: Any) -> None:
        rows = target.generated(target.outputs(result))
        velocities.append([row.detach().float().flatten().cpu() for row in rows])

    loop = model.family.denoise_loop(pipeline._blocks)
    handle = target.transformer.register_forward_hook(keep)
    try:
        with cached(loop, session), observed(loop):
            latents = model.family.latents(model.run(pipeline, "denoise", inputs), resolved)
    finally:
        handle.remove()
    gram = np.zeros((len(velocities), len(velocities)))
    for stream, made in zip(zip(*velocities, strict=True), (latents.video, latents.audio), strict=True):
        stacked = torch.stack(stream).double()
        gram += (stacked @ stacked.T).numpy() / float(made.double().square().sum())
    return recorder, gram, session.sigmas[target.streams[0]]


def calibrate(
    engine: VideoEngine, requests: Iterable[GenerationRequest], say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """One entry of a calibration file, from dense runs of `requests`, which must share workflow and number of steps."""
    ratios, changes, gram = [], [], None
    resolved: ResolvedRequest | None = None
    sigmas: tuple[float, ...] = ()
    for request in requests:
        one = engine.resolve(request)
        if resolved is not None and (one.workflow, one.steps) != (resolved.workflow, resolved.steps):
            raise ValueError("the requests of a calibration must share workflow and number of steps")
        resolved = one
        recorder, products, sigmas = record(engine, one)
        ratios.append(recorder.ratios)
        changes += recorder.changes
        gram = products if gram is None else gram + products
        say(f"recorded {len(ratios)}: {request.prompt_text!r}")
    if resolved is None or gram is None:
        raise ValueError("a calibration needs at least one request")
    coefficients, r2 = fit_changes(changes)
    costs = row_costs(gram / len(ratios), np.diff(sigmas).tolist())
    static = {str(count): best_steps(costs, count) for count in range(2, resolved.steps)}
    return {
        "workflow": resolved.workflow,
        "steps": resolved.steps,
        "runs": len(ratios),
        "sigmas": [float(f"{value:.7g}") for value in sigmas],
        "magcache": [float(f"{value:.6g}") for value in np.mean(ratios, axis=0)],
        "teacache": coefficients,
        "teacache_r2": r2,
        "static": static,
    }


def fit_changes(changes: list[tuple[float, float]]) -> tuple[list[float], float]:
    """The polynomial of `DEGREE` (fewer for few points) through (input change, output change), highest power first, and
    its R^2."""
    x, y = np.array(changes).T if changes else (np.zeros(0), np.zeros(0))
    if len(x) < 2:
        return [1.0, 0.0], math.nan
    coefficients = np.polyfit(x, y, min(DEGREE, len(x) - 1))
    spread = float(((y - y.mean()) ** 2).sum())
    residue = float(((y - np.polyval(coefficients, x)) ** 2).sum())
    return [float(f"{value:.8g}") for value in coefficients], 1.0 - residue / spread if spread else math.nan
