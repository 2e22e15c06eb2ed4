"""Shift and solver of a request: against the formula, and against the order of convergence on a known flow."""

import math
from types import SimpleNamespace

import pytest
import torch

from videoinfer.denoise import AdamsBashforth
from videoinfer.errors import RequestError
from videoinfer.request import GenerationRequest


def end(steps: int, solver: bool) -> float:
    """dx/ds = x * cos(3 s) from s = 1 to 0 in uneven Euler steps; the truth is x(1) exp(-sin(3) / 3)."""
    sigmas = [(1 - k / steps) ** 1.5 for k in range(steps + 1)]
    block = AdamsBashforth(("v",), [sigmas])
    x = torch.ones(1, dtype=torch.float64)
    for i in range(steps):
        state = SimpleNamespace(v=x * math.cos(3.0 * sigmas[i]))
        if solver:
            block(None, state, i, None)
        x = x + (sigmas[i + 1] - sigmas[i]) * state.v
    return abs(float(x) - math.exp(-math.sin(3.0) / 3.0))


def test_the_error_falls_with_the_square_of_the_steps():
    assert 1.8 < end(40, False) / end(80, False) < 2.2
    assert 3.4 < end(40, True) / end(80, True) < 4.6
    assert end(40, True) < end(40, False) / 5


def made(engine, **fields):
    resolved = engine.resolve(GenerationRequest(prompt="a small red circle", steps=4, seed=1, **fields))
    return engine.denoise(engine.encode(resolved), resolved)


def test_a_solver_changes_the_clip_and_leaves_no_trace(tiny_engine):
    plain = made(tiny_engine)
    second = made(tiny_engine, solver="ab2")
    assert not torch.equal(plain.video, second.video) and not torch.equal(plain.audio, second.audio)
    assert torch.equal(made(tiny_engine).video, plain.video)
    assert torch.equal(made(tiny_engine, solver="euler").video, plain.video)


def test_a_shift_moves_the_video_alone_and_only_of_its_own_run(tiny_engine):
    plain, shifted = made(tiny_engine), made(tiny_engine, shift=3.0)
    assert not torch.equal(plain.video, shifted.video)
    scheduler = tiny_engine.model.stage("t2va", "denoise").scheduler
    base = torch.linspace(1.0, 0.0, 5)
    torch.testing.assert_close(scheduler.sigmas.cpu(), 3.0 * base / (1.0 + 2.0 * base))
    assert torch.equal(made(tiny_engine).video, plain.video)
    assert torch.equal(made(tiny_engine, shift=12.0).video, plain.video)


@pytest.mark.parametrize("shift", [0.0, -1.0, float("nan"), 1e12])
def test_an_impossible_shift_is_refused(shift):
    with pytest.raises(RequestError, match="shift"):
        GenerationRequest(prompt="x", shift=shift)


def test_a_cache_and_a_second_order_solver_contradict():
    with pytest.raises(RequestError, match="forecast again"):
        GenerationRequest(prompt="x", cache="first-block@0.1", solver="ab2")
    assert GenerationRequest(prompt="x", cache="first-block@0.1", solver="euler").solver is None
