"""A denoise loop under a step cache, for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from ..cache_policies import CACHE_DIT, CacheDitSetting, make_policy
from .cache_dit import CacheDitSession
from .cache_session import CacheSession
from .cache_step import CacheStep
from .target import CacheTarget

NAME = "videoinfer_cache"
AnySession = CacheSession | CacheDitSession


def make_session(
    target: CacheTarget,
    setting: str,
    sigmas: dict[str, tuple[float, ...]],
    calibration: dict[str, Any] | None = None,
) -> AnySession:
    """The session of a cache setting, as a request names it. Raises ValueError when it cannot serve the run.

    `calibration`: the entry of a calibration file for runs of this kind.
    """
    if setting.startswith(CACHE_DIT):
        return CacheDitSession(target, CacheDitSetting.parse(setting), sigmas)
    return CacheSession(target, make_policy(setting), sigmas, calibration=calibration)


@contextmanager
def cached(loop: LoopSequentialPipelineBlocks, session: AnySession | None) -> Iterator[None]:
    """Opens the session and tells it each step of the loop; without a session the loop runs as it is."""
    if session is None:
        yield
        return
    if NAME in loop.sub_blocks:
        raise RuntimeError("the denoise loop has a cache session already: one run at a time per model")
    with session.open():
        try:
            loop.sub_blocks.insert(NAME, CacheStep(session), 0)
            yield
        finally:
            loop.sub_blocks.pop(NAME, None)
