"""Cache sessions on a real denoise loop: against diffusers' own caches, the bare pipeline, and what can go wrong."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from diffusers import ModularPipelineBlocks
from diffusers.hooks import (
    FirstBlockCacheConfig,
    MagCacheConfig,
    SeaCacheConfig,
    apply_first_block_cache,
    apply_mag_cache,
    apply_sea_cache,
)
from diffusers.hooks.hooks import CacheContext, HookRegistry, _set_cache_context

from videoinfer.cache_policies import Action, StepCachePolicy, StepSignals, compute, make_policy, reuse
from videoinfer.cache_policies.magcache import MagCacheCalibration
from videoinfer.denoise import CacheSession, cached, make_session, observed
from videoinfer.denoise.cache_dit import CacheDitSession
from videoinfer.engine import VideoEngine
from videoinfer.errors import Cancelled, RequestError
from videoinfer.request import GenerationRequest
from videoinfer.result import Latents

STEPS = 8


@dataclass
class Bench:
    """The denoise stage of the smallest model, run with a session or with hooks that a test puts on."""

    engine: VideoEngine
    steps: int = STEPS

    def __post_init__(self) -> None:
        self.resolved = self.engine.resolve(GenerationRequest(prompt="a small red circle", steps=self.steps, seed=3))
        self.conditioning = self.engine.encode(self.resolved)
        model = self.engine.model
        self.pipeline = model.stage("t2va", "denoise")
        self.loop = model.family.denoise_loop(self.pipeline._blocks)
        self.transformer = self.pipeline.transformer

    def inputs(self) -> dict[str, Any]:
        generator = torch.Generator("cpu").manual_seed(self.resolved.seed)
        family = self.engine.model.family
        return family.denoise_inputs(self.conditioning, self.resolved, generator, self.pipeline)

    def session(self, policy: StepCachePolicy | str) -> CacheSession:
        self.inputs()  # sets the schedulers to this run's steps
        target = self.engine.model.family.cache_target(self.pipeline)
        policy = make_policy(policy) if isinstance(policy, str) else policy
        return CacheSession(target, policy, target.sigmas(self.pipeline))

    def run(self, session: CacheSession | None = None, **observer: Any) -> Latents:
        inputs = self.inputs()
        with cached(self.loop, session), observed(self.loop, **observer):
            outputs = self.engine.model.run(self.pipeline, "denoise", inputs)
        return self.engine.model.family.latents(outputs, self.resolved)


@pytest.fixture(scope="module")
def bench(tiny_engine) -> Bench:
    return Bench(tiny_engine)


@pytest.fixture(scope="module")
def dense(bench) -> Latents:
    return bench.run()


def equal(one: Latents, other: Latents) -> bool:
    return torch.equal(one.video, other.video) and torch.equal(one.audio, other.audio)


def close(one: Latents, other: Latents) -> None:
    torch.testing.assert_close(one.video, other.video, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one.audio, other.audio, atol=1e-5, rtol=1e-5)


def pattern(session: CacheSession) -> str:
    """C for a computed step, . for an answered one."""
    return "".join("C" if step["computed"] else "." for step in session.report.steps)


class Counter(ModularPipelineBlocks):
    """Sets the context that diffusers' caches ask for, and counts forwards of the last block."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench, self.pattern, self._ran = bench, "", False

    @property
    def description(self) -> str:
        return "context"

    def ran(self, *_: Any) -> None:
        self._ran = True

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        self.flush(i)
        sigma = float(components.scheduler.sigmas[i])
        context = CacheContext("cond", step_index=i, num_inference_steps=self.bench.steps, sigma=sigma)
        _set_cache_context(self.bench.transformer, context)
        return components, block_state

    def flush(self, i: int) -> None:
        if i:
            self.pattern += "C" if self._ran else "."
        self._ran = False


@contextmanager
def diffusers_cache(bench: Bench, apply: Callable[[Any], None], names: tuple[str, ...]) -> Iterator[Counter]:
    """One of diffusers' own caches on the transformer; `pattern` says afterwards what it computed."""
    counter = Counter(bench)
    handle = bench.transformer.transformer_blocks[-1].ff.register_forward_hook(counter.ran)
    apply(bench.transformer)
    bench.loop.sub_blocks.insert("context", counter, 0)
    try:
        yield counter
        counter.flush(1)
    finally:
        bench.loop.sub_blocks.pop("context")
        handle.remove()
        registry = HookRegistry.check_if_exists_or_initialize(bench.transformer)
        for name in names:
            registry.remove_hook(name, recurse=True)
        registry.invalidate_child_registries_cache()


def raw_video(bench: Bench) -> Callable[..., list[torch.Tensor]]:
    """The generated video of the packed rows as (C, T, H, W), by the inverse of the pipeline's own patching."""

    def callback(module: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
        rows = kwargs["hidden_states"][0]
        frames, height, width = 37, bench.resolved.height // 32, bench.resolved.width // 32
        grid = rows.reshape(1, frames, height, width, 24, 1, 2, 2).permute(0, 4, 1, 5, 2, 6, 3, 7)
        return [grid.reshape(24, frames, 2 * height, 2 * width)]

    return callback


def test_dense_is_the_bare_pipeline_bit_for_bit(bench, dense):
    session = bench.session("dense")
    assert equal(bench.run(session), dense)
    assert pattern(session) == "C" * STEPS and not session.report.warnings()


@pytest.mark.parametrize("tau", [0.02, 0.05, 0.1, 0.2])
def test_first_block_decides_and_answers_as_in_diffusers(bench, tau):
    names = ("fbc_leader_block_hook", "fbc_block_hook")
    config = FirstBlockCacheConfig(threshold=tau)
    with diffusers_cache(bench, lambda module: apply_first_block_cache(module, config), names) as theirs:
        expected = bench.run()
    session = bench.session(f"first-block@{tau},warmup=0,rows=all")
    assert equal(bench.run(session), expected)
    assert pattern(session) == theirs.pattern


def test_magcache_decides_and_answers_as_in_diffusers(bench):
    calibration = MagCacheCalibration()
    bench.run(bench.session(calibration))
    ratios = calibration.ratios
    assert len(ratios) == STEPS and ratios[0] == 1.0
    patterns = set()
    for delta in (0.0, 0.05, 0.3, 10.0):
        config = MagCacheConfig(threshold=delta, num_inference_steps=STEPS, mag_ratios=ratios)
        names = ("mag_cache_leader_block_hook", "mag_cache_block_hook")
        with diffusers_cache(bench, lambda module, config=config: apply_mag_cache(module, config), names) as theirs:
            expected = bench.run()
        values = ";".join(map(repr, ratios))
        session = bench.session(f"magcache@{delta},ratios={values}")
        assert equal(bench.run(session), expected)
        assert pattern(session) == theirs.pattern
        patterns.add(theirs.pattern)
    assert len(patterns) > 1


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("delta", [0.05, 0.3, 1.0])
def test_seacache_decides_and_answers_as_in_diffusers(bench, delta, order):
    names = ("sea_cache_root", "sea_cache_leader_block", "sea_cache_block")
    config = SeaCacheConfig(threshold=delta, residual_order=order, raw_vision_callback=raw_video(bench))
    with diffusers_cache(bench, lambda module: apply_sea_cache(module, config), names) as theirs:
        expected = bench.run()
    session = bench.session(f"seacache@{delta},order={order}")
    close(bench.run(session), expected)
    assert pattern(session) == theirs.pattern


@pytest.mark.parametrize(
    "setting",
    [
        "fixed-interval@2",
        "fixed-interval@3,level=output",
        "static@0;1;2;4",
        "static@0;1;2;4,order=1",
        "static@0;2;5,order=1,level=output",
        "first-block@0.1",
        "teacache@0.1,polynomial=1;0",
        "easycache@0.5,warmup=2",
        "dicache@0.1",
        "taylorseer@3",
        "taylorseer@3,order=2,level=output",
        "seacache@0.5",
    ],
)
def test_every_policy_serves_a_run_and_leaves_no_trace(bench, dense, setting):
    names = [name for name, _ in bench.transformer.named_modules()]
    keys = list(bench.transformer.state_dict())
    attributes = [set(vars(module)) for module in bench.transformer.modules()]
    session = bench.session(setting)
    latents = bench.run(session)
    assert len(session.report.steps) == STEPS and pattern(session).startswith("C")
    assert "." in pattern(session) and not equal(latents, dense)
    assert not session.report.guards and not session.report.warnings()
    assert [name for name, _ in bench.transformer.named_modules()] == names
    assert list(bench.transformer.state_dict()) == keys
    assert [set(vars(module)) for module in bench.transformer.modules()] == attributes
    # The same once more is the same, and nothing of it is left for a run without it.
    assert equal(bench.run(bench.session(setting)), latents)
    assert equal(bench.run(), dense)


def test_names_and_keys_inside_a_session_are_those_outside(bench):
    names = [name for name, _ in bench.transformer.named_modules()]
    keys = list(bench.transformer.state_dict())
    with bench.session("first-block@0.1").open():
        assert [name for name, _ in bench.transformer.named_modules()] == names
        assert list(bench.transformer.state_dict()) == keys


@pytest.mark.parametrize("level", ["residual", "output", "transform"])
def test_reuse_is_what_its_level_says(bench, level):
    """Two forwards on one grid of sigmas, the second answered: against the formula, from the tensors themselves."""
    seen: list[tuple[dict[str, torch.Tensor], tuple[torch.Tensor, ...]]] = []

    def spy(module: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        rows = {name: kwargs[name].clone() for name in ("hidden_states", "audio_hidden_states")}
        seen.append((rows, tuple(tensor.clone() for tensor in result)))

    handle = bench.transformer.register_forward_hook(spy, with_kwargs=True)
    try:
        bench.run(bench.session(f"static@0;1;2;3;4;5;6,level={level}"))
    finally:
        handle.remove()
    (before, kept), (now, answer) = seen[-2:]
    for name, old, new in zip(before, kept, answer, strict=True):
        if level == "output":
            assert torch.equal(new, old)
        elif level == "transform":
            torch.testing.assert_close(new, now[name] + (old - before[name]), atol=1e-5, rtol=1e-5)
        else:
            assert not torch.equal(new, old)


def test_a_linear_forecast_follows_a_line_in_sigma(bench):
    """`order` 1 at the output level: v2 = v1 + (s2 - s1) / (s1 - s0) (v1 - v0)."""
    seen: list[torch.Tensor] = []
    handle = bench.transformer.register_forward_hook(lambda m, a, result: seen.append(result[0].clone()))
    try:
        session = bench.session("static@0;1;2;3;4;5;6,order=1,level=output")
        bench.run(session)
    finally:
        handle.remove()
    s0, s1, s2 = session.sigmas["video"][5:8]
    torch.testing.assert_close(seen[7], seen[6] + (s2 - s1) / (s1 - s0) * (seen[6] - seen[5]), atol=1e-5, rtol=1e-4)


class Always(StepCachePolicy):
    """Asks for an answer at every step, also where there is none."""

    name = "always"

    def decide(self, signals: StepSignals) -> Action:
        return reuse()


def test_an_answer_that_cannot_be_given_is_computed_and_counted(bench):
    session = bench.session(Always())
    bench.run(session)
    assert pattern(session) == "C" + "." * (STEPS - 1)
    assert session.report.guards == {"nothing kept": 1}
    assert session.report.steps[0]["reason"] == "nothing kept"


class Probing(StepCachePolicy):
    name = "probing"
    stage = "probe"
    needs = frozenset({"probe_change"})

    def decide(self, signals: StepSignals) -> Action:
        return compute("no history") if signals.step == 0 else reuse()


def test_a_probe_that_is_not_finite_is_computed_and_counted(bench, monkeypatch):
    """NaN < tau is false and NaN > tau too: whichever way a rule is written, the session must not let it pass."""
    monkeypatch.setattr(
        "videoinfer.denoise.cache_signals.relative_change", lambda now, before: torch.tensor(float("nan"))
    )
    session = bench.session(Probing())
    bench.run(session)
    assert pattern(session) == "C" * STEPS
    assert session.report.guards == {"not finite: probe_change": STEPS - 1}
    assert "answered no step" in session.report.warnings()[0]


def test_a_block_that_works_in_place_gives_the_same(bench):
    """The residual of a snapshot that was taken by reference is zero, and so is every change of it."""
    session = bench.session("first-block@0.1")
    expected = bench.run(session)
    first = bench.transformer.transformer_blocks[0]
    forward = type(first).forward

    def in_place(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return hidden_states.copy_(forward(self, hidden_states, *args, **kwargs))

    type(first).forward = in_place
    try:
        again = bench.session("first-block@0.1")
        latents = bench.run(again)
    finally:
        type(first).forward = forward
    assert pattern(again) == pattern(session) and equal(latents, expected)


def test_a_threshold_that_never_binds_is_told(bench):
    session = bench.session("first-block@0")
    bench.run(session)
    assert session.report.computed == STEPS
    assert session.report.warnings() == [
        f"the cache first-block answered no step: all {STEPS} were computed (threshold {STEPS - 1}, warm-up 1)."
    ]


def test_a_cancelled_run_leaves_no_trace_in_the_next(bench, dense):
    class AfterThree:
        calls = 0

        def is_set(self) -> bool:
            self.calls += 1
            return self.calls > 3

    attributes = [set(vars(module)) for module in bench.transformer.modules()]
    with pytest.raises(Cancelled):
        bench.run(bench.session("first-block@0.1"), cancel=AfterThree())
    assert [set(vars(module)) for module in bench.transformer.modules()] == attributes
    assert list(bench.loop.sub_blocks) == ["denoiser", "update"]
    assert equal(bench.run(), dense)


def test_a_second_session_on_one_model_is_refused(bench):
    second = bench.session("first-block@0.1")
    with bench.session("first-block@0.1").open(), pytest.raises(RuntimeError, match="one at a time"), second.open():
        pass
    with second.open():
        pass


def test_two_models_of_one_class_do_not_touch_each_other(bench, dense, tiny_h3_folder):
    with VideoEngine.from_pretrained(str(tiny_h3_folder), device="cpu") as engine:
        other = Bench(engine)
        alone = other.run(other.session("first-block@0.1"))
        with bench.session("first-block@0.5").open():
            assert equal(other.run(other.session("first-block@0.1")), alone)
            assert equal(other.run(), dense)


def test_the_engine_takes_a_setting_and_reports_what_it_did(bench, dense, tmp_path):
    engine = bench.engine
    request = bench.resolved.request.model_copy(
        update={"cache": "first-block@0.1", "output": {"path": tmp_path / "clip.mp4"}}
    )
    request = GenerationRequest.model_validate(request.model_dump())
    record = engine.generate(request).record["cache"]
    assert record["policy"] == "first-block" and record["settings"]["tau"] == 0.1
    assert record["forwards"] == STEPS and 0 < record["computed"] < STEPS
    answered = STEPS - record["computed"]
    assert record["block_forwards"] == 2 * record["computed"] + answered
    assert record["block_forwards_at_depth"] == {"depth": 50, "count": 50 * record["computed"] + answered}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("magcache", "calibrate"),
        ("magcache@ratios=1;1", "2 steps"),
        ("teacache@0.1", "polynomial"),
        ("static@0;9", "only 8"),
    ],
)
def test_a_cache_that_cannot_serve_the_run_is_refused_before_it(bench, setting, message):
    request = GenerationRequest(prompt="x", steps=STEPS, cache=setting)
    resolved = bench.engine.resolve(request)
    with pytest.raises(RequestError, match=message):
        bench.engine.denoise(bench.engine.encode(resolved), resolved)


def test_a_cache_that_lacks_its_calibration_is_refused_before_anything_runs(bench, tmp_path):
    begun: list[str] = []
    request = GenerationRequest(prompt="x", steps=STEPS, cache="magcache", output={"folder": tmp_path})
    with pytest.raises(RequestError, match="calibrate"):
        bench.engine.generate(request, on_stage=begun.append)
    assert begun == []


@pytest.fixture(scope="module")
def deep(tmp_path_factory) -> Iterator[Bench]:
    """Four blocks instead of two, so that something is left when one always runs."""
    from videoinfer.demo.architecture import TINY, make_components, write_pipeline_folder

    sizes = replace(TINY, num_layers=4)
    folder = tmp_path_factory.mktemp("deep")
    write_pipeline_folder(folder, make_components(sizes, ("a", "small", "red", "circle")), sizes, dtype=torch.float32)
    with VideoEngine.from_pretrained(str(folder), device="cpu") as engine:
        yield Bench(engine, steps=12)


def cache_dit(bench: Bench, setting: str) -> CacheDitSession:
    bench.inputs()
    target = bench.engine.model.family.cache_target(bench.pipeline)
    session = make_session(target, setting, target.sigmas(bench.pipeline))
    assert isinstance(session, CacheDitSession)
    return session


@pytest.mark.parametrize("tau", [0.05, 0.1, 0.3])
def test_first_block_with_a_limit_is_cache_dits_dbcache(deep, tau):
    pytest.importorskip("cache_dit")
    dense = deep.run()
    attributes = [set(vars(module)) for module in deep.transformer.modules()]
    names = [name for name, _ in deep.transformer.named_modules()]
    theirs = cache_dit(deep, f"cache-dit:F1B0W4MC3R{tau}")
    expected = deep.run(theirs)
    ours = deep.session(f"first-block@{tau},warmup=4,max_skips=3,rows=all")
    close(deep.run(ours), expected)
    assert pattern(ours) == pattern(theirs)
    assert theirs.report.block_forwards(4) == ours.report.block_forwards(4)
    assert [set(vars(module)) for module in deep.transformer.modules()] == attributes
    assert [name for name, _ in deep.transformer.named_modules()] == names
    assert equal(deep.run(), dense)


def test_cache_dit_takes_a_mask_and_a_forecast(deep):
    pytest.importorskip("cache_dit")
    mask = "110100100101"
    session = cache_dit(deep, f"cache-dit:F1B0W0MC0R0.08SCM{mask}")
    masked = deep.run(session)
    assert pattern(session) == mask.replace("1", "C").replace("0", ".")
    forecast = deep.run(cache_dit(deep, f"cache-dit:F1B0W0MC0R0.08TS1SCM{mask}"))
    assert not equal(masked, forecast)


@pytest.mark.parametrize(
    ("setting", "message"),
    [("cache-dit:F4B0W4MC3R0.1", "nothing to skip"), ("cache-dit:F1B0W4MC3R0.1SCM110", "3 digits")],
)
def test_a_setting_of_cache_dit_that_does_not_fit_is_refused(deep, setting, message):
    with pytest.raises(ValueError, match=message):
        cache_dit(deep, setting)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(
    "setting",
    [
        "fixed-interval@2",
        "static@0;,order=1",
        "first-block@9",
        "teacache@9,polynomial=1;0",
        "easycache@9,warmup=2",
        "dicache@9",
        "taylorseer@2,order=2,warmup=1",
        "seacache@9",
    ],
)
def test_a_run_of_few_steps_is_served(bench, setting, steps):
    few = Bench(bench.engine, steps=steps)
    session = few.session(setting)
    latents = few.run(session)
    assert len(session.report.steps) == steps and pattern(session)[0] == "C" and not session.report.guards
    if steps == 1:
        assert equal(latents, few.run())


def test_a_request_of_another_length_in_between_changes_nothing(bench):
    """What is kept belongs to one run: A, then B of another shape, then A again is A."""
    engine = bench.engine
    short = GenerationRequest(prompt="a small red circle", steps=4, seed=3, cache="first-block@0.1")
    long = short.model_copy(update={"num_frames": 141})

    def made(request: GenerationRequest) -> Latents:
        resolved = engine.resolve(request)
        return engine.denoise(engine.encode(resolved), resolved)

    first, between, again = made(short), made(long), made(short)
    assert first.video.shape != between.video.shape
    assert equal(first, again) and first.cache == again.cache and not (between.cache or {})["guards"]


def fed(bench: Bench, session: CacheSession, states: list[torch.Tensor]) -> list[bool]:
    """A session through hidden states of its blocks, as the hooks would call it; whether each step was answered."""
    answered = []
    for step, hidden in enumerate(states):
        session.step = step
        session.enter({})
        answer = session.at_input(hidden, ())
        if answer is None:
            session.at_tail(hidden + 1.0)
        answered.append(answer is not None)
        session.leave((hidden,))
    return answered


def test_states_of_another_shape_or_type_are_computed_and_counted(bench):
    rows, other = torch.ones(1, 4, 8), torch.ones(1, 5, 8)
    session = bench.session(Always())
    assert fed(bench, session, [rows, rows, other, other, other.double()]) == [False, True, False, True, False]
    # Each time the answer does not fit, and then what is kept does not fit either and is given up.
    assert session.report.guards == {"nothing kept": 1, "shape changed": 4}
    assert [step["reason"] for step in session.report.steps] == [
        "nothing kept",
        "reuse",
        "shape changed",
        "reuse",
        "shape changed",
    ]


def test_a_step_out_of_order_is_computed_and_counted(bench):
    rows = torch.ones(1, 4, 8)
    session = bench.session(Always())
    fed(bench, session, [rows, rows])
    session.step = 5
    session.enter({})
    assert session.at_input(rows, ()) is None
    assert session.report.guards["step out of order"] == 1


def test_a_sigma_that_does_not_fall_is_computed_and_counted(bench):
    target = bench.session("dense").target
    session = CacheSession(target, Always(), {name: (1.0, 0.5, 0.5, 0.2, 0.0) for name in target.streams})
    rows = torch.ones(1, 4, 8)
    assert fed(bench, session, [rows] * 4) == [False, True, False, True]
    assert session.report.guards == {"nothing kept": 1, "sigma does not fall": 1}


def test_cache_dit_says_nothing_on_stdout():
    """What `--json` prints is all that may be there."""
    pytest.importorskip("cache_dit")
    program = (
        "import sys; from videoinfer.cache_policies import CacheDitSetting; from types import SimpleNamespace;"
        "from videoinfer.denoise.cache_dit import CacheDitSession;"
        "target = SimpleNamespace(streams=('video',), blocks=[0] * 4);"
        "CacheDitSession(target, CacheDitSetting.parse('F1B0W1MC1R0.1'), {'video': (1.0, 0.5, 0.0)});"
        "import logging; logging.getLogger('CACHE_DIT').info('told'); logging.getLogger('CACHE_DIT').warning('warned')"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "warned" in done.stderr and "told" not in done.stderr
