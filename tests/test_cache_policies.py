"""The rules alone: against diffusers' code and against formulas written down a second time; names of settings."""

import math
import random
from itertools import pairwise

import pytest
import torch
from diffusers.hooks.taylorseer_cache import TaylorSeerState

from videoinfer.cache_policies import POLICIES, Action, RunContext, StepOutcome, StepSignals, make_policy, normalise
from videoinfer.cache_policies.base import FINDINGS, SIGNALS

STEPS = 20
SIGMAS = tuple(12 * s / (1 + 11 * s) for s in (1 - k / STEPS for k in range(STEPS + 1)))
FULL = {
    "static": "static@0;3;7",
    "first-block": "first-block@0.1",
    "fixed-interval": "fixed-interval@3",
    "teacache": "teacache@0.1,polynomial=2;0.5;0",
    "easycache": "easycache@0.1,warmup=3",
    "dicache": "dicache@0.1",
    "taylorseer": "taylorseer@3",
    "magcache": "magcache@0.1,ratios=" + ";".join(["1.0"] * STEPS),
}


def play(setting: str, values: list[dict[str, float]], findings: list[dict[str, float]] | None = None) -> list[Action]:
    """Run a policy over given signals, as a session without guards does."""
    policy = make_policy(setting)
    policy.begin(RunContext(STEPS, {"video": SIGMAS}))
    actions, kept, last = [], 0, -1
    for step, now in enumerate(values):
        sigma, dsigma = {"video": SIGMAS[step]}, {"video": SIGMAS[step + 1] - SIGMAS[step]}
        action = policy.decide(StepSignals(step, STEPS, sigma, dsigma, step - last, kept, now))
        actions.append(action)
        if action.computes:
            kept, last = min(kept + 1, policy.memory), step
        policy.observe(StepOutcome(step, action, 0.1, True, findings[step] if findings and action.computes else {}))
    return actions


def pattern(actions: list[Action]) -> str:
    return "".join("C" if action.computes else "." for action in actions)


def drawn(*names: str, seed: int = 0, scale: float = 0.1) -> list[dict[str, float]]:
    draw = random.Random(seed)
    return [{name: draw.random() * scale for name in names if step} for step in range(STEPS)]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_asks_for_values_that_exist_and_computes_first(name):
    setting = FULL.get(name, name)
    policy = make_policy(setting)
    assert policy.needs <= SIGNALS.keys() | FINDINGS.keys()
    assert play(setting, [{}])[0].computes
    assert normalise(normalise(setting)) == normalise(setting)


def test_teacache_is_its_formula():
    values = drawn("modulated_change")
    expected, acc = "", 0.0
    for step, now in enumerate(values):
        if step == 0 or step == STEPS - 1:
            expected, acc = expected + "C", 0.0
            continue
        d = now["modulated_change"]
        acc += 2 * d**2 + 0.5 * d
        expected += "." if acc < 0.1 else "C"
        acc = acc if acc < 0.1 else 0.0
    assert "." in expected[1:-1] and "C" in expected[1:-1]
    assert pattern(play("teacache@0.1,polynomial=2;0.5;0", values)) == expected


def test_easycache_is_its_formula():
    """k from the last two computed steps; the error adds up while steps are answered."""
    values, findings = drawn("input_change", seed=1), drawn("output_change", "input_move", seed=2, scale=1.0)
    for now in values:
        now["output_norm"] = 2.0
    expected, k, err = "", None, 0.0
    for step in range(STEPS):
        if step < 3 or step == STEPS - 1:
            answer = False
        else:
            err += k * values[step]["input_change"] / 2.0
            answer = err < 0.1
        if not answer:
            err = 0.0
            if step:
                k = findings[step]["output_change"] / findings[step]["input_move"]
        expected += "." if answer else "C"
    assert "." in expected and "C" in expected[3:-1]
    assert pattern(play("easycache@0.1,warmup=3", values, findings)) == expected


def test_dicache_aligns_within_its_limits():
    values = drawn("probe_drift", seed=3, scale=0.05)
    gains = [0.5, 1.0, 1.25, 2.0, 7.0]
    for step, now in enumerate(values):
        now["probe_gain"] = gains[step % len(gains)]
    actions = play("dicache@0.1,retention=0.1", values)
    answered = [(step, action) for step, action in enumerate(actions) if not action.computes]
    assert len(answered) > 5
    for step, action in answered:
        gain = min(2.0, max(1.0, gains[step % len(gains)]))
        assert action.weights == pytest.approx((gain, 1.0 - gain))
    acc, expected = 0.0, ""
    for step, now in enumerate(values):
        acc = 0.0 if step < 2 else acc + now["probe_drift"]
        expected += "C" if step < 2 or acc >= 0.1 else "."
        acc = 0.0 if expected[-1] == "C" else acc
    assert pattern(actions) == expected


@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("interval", [2, 3, 5])
def test_taylorseer_forecasts_as_diffusers_does(order, interval):
    """The combination of the kept tensors against diffusers' own factors, on tensors that follow no polynomial."""
    state = TaylorSeerState(taylor_factors_dtype=torch.float64, max_order=order)
    truth = [torch.sin(torch.arange(5, dtype=torch.float64) + 0.3 * step) for step in range(STEPS)]
    actions = play(f"taylorseer@{interval},order={order}", [{}] * STEPS)
    kept: list[torch.Tensor] = []
    for step, action in enumerate(actions):
        state.current_step = step
        if action.computes:
            state.update((truth[step],))
            kept = [truth[step], *kept][: order + 1]
            continue
        (expected,) = state.predict()
        answer = sum(weight * tensor for weight, tensor in zip(action.weights, kept, strict=False))
        torch.testing.assert_close(answer, expected, atol=1e-9, rtol=0)
    assert "." in pattern(actions)


@pytest.mark.parametrize("interval", [1, 2, 4])
def test_a_fixed_interval_computes_one_in_n_and_the_last(interval):
    computed = [step for step, action in enumerate(play(f"fixed-interval@{interval}", [{}] * STEPS)) if action.computes]
    assert computed[0] == 0 and computed[-1] == STEPS - 1
    assert {b - a for a, b in pairwise(computed[:-1])} == {interval}


def test_a_first_block_cache_obeys_warm_up_and_the_limit_in_a_row():
    values = [{"probe_change": 0.0} if step else {} for step in range(STEPS)]
    assert pattern(play("first-block@0.1,warmup=4,max_skips=3", values)) == "CCCC" + "...C" * 4
    values[9]["probe_change"] = 0.2
    assert pattern(play("first-block@0.1,warmup=4", values)) == "CCCC.....C.........."
    values[9]["probe_change"] = math.inf
    assert pattern(play("first-block@1e9,warmup=4", values)) == "CCCC.....C.........."


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("nothing", ("no policy 'nothing'", "first-block", "magcache")),
        ("first-block", ("lacks tau", "Usage: first-block@tau")),
        ("first-block@a", ("tau must be a number",)),
        ("first-block@-1", ("0 or more",)),
        ("first-block@nan", ("0 or more",)),
        ("first-block@0.1,0.2", ("warmup must be a whole number",)),
        ("first-block@tau=0.1,tau=0.2", ("twice",)),
        ("first-block@0.1,speed=2", ("'speed'", "Usage")),
        ("first-block@0.1,rows=some", ("all or generated",)),
        ("first-block@0.1,1,2,all,9", ("Usage",)),
        ("magcache@retention=2", ("0..1",)),
        ("static@1;2", ("must hold 0",)),
        ("static@0;1,order=2", ("order 2",)),
        ("static@0", ("too few",)),
        ("fixed-interval@0", ("1 or more",)),
        ("fixed-interval@2,level=pixels", ("level", "residual, output, transform")),
        ("taylorseer@3,order=9", ("0..3",)),
        ("dense@1", ("Usage: dense",)),
        ("cache-dit:F1", ("no setting of Cache-DiT", "F1B0W4MC3R0.08")),
        ("static@/etc/passwd", ("neither a number nor a word",)),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(setting, parts):
    with pytest.raises(ValueError) as caught:
        normalise(setting)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_two_spellings_of_one_setting_are_equal():
    assert normalise(" first-block@0.10 ") == normalise("first-block@tau=0.1") == normalise("first-block@0.1,1,0")
    assert normalise("cache-dit:F1B0W4MC3R0.080") == "cache-dit:F1B0W4MC3R0.08"
    assert normalise("first-block@0.1") != normalise("first-block@0.2")
