"""The three stages of a generation as plain functions over a model: encode, denoise, decode."""

from dataclasses import replace
from typing import Any

import torch

from .cache_policies import CACHE_DIT, RunContext, make_policy
from .calibration import NAME, Calibration
from .conditioning import Conditioning, conditioning_key
from .denoise import AdamsBashforth, AnySession, CancelEvent, OnStep, cached, make_session, multistep, observed
from .errors import RequestError, VideoInferError
from .media import check_clip, check_finite
from .model import Model
from .request import ResolvedRequest
from .result import Clip, Latents


def key_of(model: Model, resolved: ResolvedRequest) -> str:
    """The key of the conditioning that this model makes of this request."""
    source = model.source(resolved.workflow)
    return conditioning_key(
        resolved, model=source.name, revision=source.revision, dtype=model.dtype, device_type=model.device.type
    )


def encode(model: Model, resolved: ResolvedRequest) -> Conditioning:
    """Run the text and reference encoders."""
    key = key_of(model, resolved)
    # The references are read before the weights: what is wrong with them is then said at once.
    inputs = model.family.encode_inputs(resolved, model.outline(resolved.workflow, "encode"))
    pipeline = model.stage(resolved.workflow, "encode")
    return model.family.conditioning(model.run(pipeline, "encode", inputs), resolved, key)


def denoise(
    model: Model,
    conditioning: Conditioning,
    resolved: ResolvedRequest,
    on_step: OnStep | None = None,
    cancel: CancelEvent | None = None,
) -> Latents:
    """Run the loop over sigmas, under the request's step cache if it names one.

    Raises Cancelled, RequestError for a cache that cannot serve the run, GenerationError when the result is not finite.
    """
    conditioning.check_matches(resolved)
    pipeline = model.stage(resolved.workflow, "denoise")
    # The CPU's generator: the same seed gives the same noise on every device.
    generator = torch.Generator("cpu").manual_seed(resolved.seed)
    inputs = model.family.denoise_inputs(conditioning, resolved, generator, pipeline)
    loop = model.family.denoise_loop(pipeline._blocks)
    session = _cache_session(model, resolved, pipeline)
    solver = None
    if resolved.request.solver is not None:
        sigmas = model.family.cache_target(pipeline).sigmas(pipeline)
        solver = AdamsBashforth(model.family.velocities, list(sigmas.values()))
    with cached(loop, session), multistep(loop, solver), observed(loop, on_step, cancel):
        latents = model.family.latents(model.run(pipeline, "denoise", inputs), resolved)
    _check_finite(latents)
    return latents if session is None else replace(latents, cache=session.report.to_json())


def check_cache(model: Model, resolved: ResolvedRequest) -> None:
    """RequestError when the request's step cache cannot serve a run of this length, known without any weights."""
    setting = resolved.request.cache
    if setting is None or setting.startswith(CACHE_DIT):
        return
    measured = Calibration.read(model.source(resolved.workflow).folder / NAME, model.name, must_exist=False)
    entry = measured.entry(resolved.workflow, resolved.steps)
    sigmas = tuple(1.0 - step / resolved.steps for step in range(resolved.steps + 1))  # of this number, if not these
    try:
        make_policy(setting).begin(RunContext(resolved.steps, {"video": sigmas}, calibration=entry or {}))
    except ValueError as error:
        raise RequestError(f"cache {setting}: {error}.") from error


def _cache_session(model: Model, resolved: ResolvedRequest, pipeline: Any) -> AnySession | None:
    """The session of a request with a cache. RequestError when its policy cannot serve this run."""
    setting = resolved.request.cache
    if setting is None:
        return None
    target = model.family.cache_target(pipeline)
    sigmas = target.sigmas(pipeline)
    measured = Calibration.read(model.source(resolved.workflow).folder / NAME, model.name, must_exist=False)
    entry = measured.entry(resolved.workflow, resolved.steps, sigmas[target.streams[0]])
    try:
        return make_session(target, setting, sigmas, entry)
    except VideoInferError:
        raise
    except ValueError as error:
        raise RequestError(f"cache {setting}: {error}.") from error


def decode(model: Model, latents: Latents) -> Clip:
    """Run the decoders. Raises GenerationError for NaN or Inf before them, and for an all-black clip after them."""
    _check_finite(latents)
    pipeline = model.stage(latents.workflow, "decode")
    inputs = model.family.decode_inputs(latents.to(model.device))
    clip = model.family.clip(model.run(pipeline, "decode", inputs))
    check_clip(clip.frames, clip.audio)
    return clip


def _check_finite(latents: Latents) -> None:
    check_finite("the denoised video", latents.video)
    check_finite("the denoised sound", latents.audio)
