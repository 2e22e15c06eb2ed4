"""Calibration: the schedule against every other one, the fit against numpy's own numbers, a run against its formula."""

import json
import shutil
from itertools import combinations

import numpy as np
import pytest

from videoinfer.cache_policies import normalise
from videoinfer.calibration import NAME
from videoinfer.engine import VideoEngine
from videoinfer.errors import RequestError
from videoinfer.eval.calibrate import calibrate, fit_changes
from videoinfer.eval.static_schedule import best_steps, row_costs, schedule_cost
from videoinfer.request import GenerationRequest


def velocities(steps: int, seed: int) -> tuple[np.ndarray, list[float]]:
    draw = np.random.default_rng(seed)
    walk = draw.normal(size=(steps, 6)).cumsum(0) + 3.0
    sigmas = np.sort(draw.random(steps + 1))[::-1]
    return walk, np.diff(sigmas).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_the_cost_of_a_row_is_the_squared_way_that_its_answers_are_off(seed):
    v, ds = velocities(7, seed)
    costs = row_costs(v @ v.T, ds)
    for c in range(7):
        for d in range(8):
            if d <= c:
                assert costs[c, d] == np.inf
                continue
            off = sum((ds[i] * (v[i] - v[c]) for i in range(c + 1, d)), np.zeros(6))
            assert costs[c, d] == pytest.approx(float(off @ off), abs=1e-9)


@pytest.mark.parametrize("computed", range(1, 8))
def test_no_other_schedule_costs_less(computed):
    v, ds = velocities(7, 11)
    costs = row_costs(v @ v.T, ds)
    chosen = best_steps(costs, computed)
    assert len(chosen) == computed and chosen == sorted(set(chosen)) and chosen[0] == 0
    others = [schedule_cost(costs, (0, *rest)) for rest in combinations(range(1, 7), computed - 1)]
    assert schedule_cost(costs, chosen) == pytest.approx(min(others))


@pytest.mark.parametrize("computed", [0, 8, -1])
def test_an_impossible_number_of_steps_is_named(computed):
    v, ds = velocities(7, 0)
    with pytest.raises(ValueError, match=f"{computed} computed steps"):
        best_steps(row_costs(v @ v.T, ds), computed)


def test_the_fit_finds_a_polynomial_and_tells_how_well_it_fits():
    x = np.linspace(0.0, 1.0, 30)
    y = 2 * x**4 - x**2 + 0.5 * x + 0.1
    coefficients, r2 = fit_changes(list(zip(x, y, strict=True)))
    assert coefficients == pytest.approx([2, 0, -1, 0.5, 0.1], abs=1e-6) and r2 == pytest.approx(1.0)
    noise = np.random.default_rng(0).normal(size=30)
    assert fit_changes(list(zip(x, noise, strict=True)))[1] < 0.5
    assert fit_changes([])[0] == [1.0, 0.0]


def test_a_model_is_calibrated_from_dense_runs(tiny_engine):
    requests = [GenerationRequest(prompt="a small red circle", steps=6, seed=seed) for seed in (0, 1)]
    entry = calibrate(tiny_engine, requests)
    assert (entry["workflow"], entry["steps"], entry["runs"]) == ("t2va", 6, 2)
    assert len(entry["magcache"]) == 6 and entry["magcache"][0] == 1.0 and all(r > 0 for r in entry["magcache"])
    assert len(entry["teacache"]) == 5
    assert {int(count): len(steps) for count, steps in entry["static"].items()} == {k: k for k in range(2, 6)}
    # What was measured serves the policies that need it.
    ratios = ";".join(map(str, entry["magcache"]))
    request = GenerationRequest(prompt="a small red circle", steps=6, cache=f"magcache@10,ratios={ratios}")
    resolved = tiny_engine.resolve(request)
    latents = tiny_engine.denoise(tiny_engine.encode(resolved), resolved)
    assert latents.cache is not None and latents.cache["computed"] < 6


def test_requests_of_different_runs_are_refused(tiny_engine):
    requests = [GenerationRequest(prompt="a small red circle", steps=steps) for steps in (1, 2)]
    with pytest.raises(ValueError, match="share"):
        calibrate(tiny_engine, requests)


def test_a_calibration_in_the_models_folder_serves_its_runs_and_no_others(tiny_h3_folder, tmp_path):
    folder = shutil.copytree(tiny_h3_folder, tmp_path / "model")
    request = GenerationRequest(prompt="a small red circle", steps=6)
    with VideoEngine.from_pretrained(str(folder), device="cpu") as engine:

        def run(**fields) -> dict:
            resolved = engine.resolve(request.model_copy(update=fields))
            return engine.denoise(conditioning, resolved).cache or {}

        conditioning = engine.encode(engine.resolve(request))
        with pytest.raises(RequestError, match="calibrate first"):
            run(cache="static@steps=3,order=0,level=residual")
        entry = calibrate(engine, [request])
        (folder / NAME).write_text(json.dumps({"entries": [entry]}))
        for setting, computed in (("static@3", 3), ("magcache@10", None), ("teacache@100", None)):
            report = run(cache=normalise(setting))
            assert 0 < report["computed"] < 6 and computed in (None, report["computed"])
        assert [step["step"] for step in run(cache=normalise("static@3"))["steps"] if step["computed"]] == entry[
            "static"
        ]["3"]
        for other in ({"steps": 5}, {"shift": 5.0}):
            with pytest.raises(RequestError, match="calibrate first"):
                run(cache=normalise("static@3"), **other)
        (folder / NAME).write_text("{}")
        with pytest.raises(RequestError, match="no calibration file"):
            run(cache=normalise("static@3"))
