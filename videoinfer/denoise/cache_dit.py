"""The real Cache-DiT (extra `peers`) on a denoise loop, with the interface of a cache session.

The library wraps the transformer itself and decides on its own; the session only opens and closes it, puts back what it
leaves behind, and reads its log. Its settings are for models without separate guidance passes.
"""

import inspect
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..cache_policies import CacheDitSetting, compute, reuse
from ..errors import ModelError
from .cache_report import CacheReport
from .target import CacheTarget


def _hush() -> None:
    """The library tells its settings on stdout, which belongs to what `--json` prints: warnings only, on stderr."""
    for handler in logging.getLogger("CACHE_DIT").handlers:
        handler.setLevel(logging.WARNING)
        if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.__stdout__):
            handler.setStream(sys.stderr)


class CacheDitSession:
    """Raises ValueError for a setting that does not fit, ModelError where Cache-DiT is not installed."""

    def __init__(self, target: CacheTarget, setting: CacheDitSetting, sigmas: dict[str, tuple[float, ...]]) -> None:
        num_steps = len(sigmas[target.streams[0]]) - 1
        self.target, self.setting, self.num_steps = target, setting, num_steps
        if setting.first < 1 or setting.first + setting.last >= len(target.blocks):
            raise ValueError(
                f"F{setting.first}B{setting.last} leaves nothing to skip of {len(target.blocks)} blocks, or no first"
            )
        if setting.mask and len(setting.mask) != num_steps:
            raise ValueError(f"SCM has {len(setting.mask)} digits, and the run {num_steps} steps")
        self.report = CacheReport(str(setting), {}, sigmas, len(target.blocks), probes=setting.first + setting.last)
        try:
            import cache_dit
        except ImportError as error:
            raise ModelError("Cache-DiT is not installed: pip install 'videoinfer[peers]'") from error
        _hush()
        self._library: Any = cache_dit

    @contextmanager
    def open(self) -> Iterator["CacheDitSession"]:
        transformer: Any = self.target.transformer
        if "forward" in vars(transformer):
            raise RuntimeError("the model has a session already: one at a time")
        attributes, modules = set(vars(transformer)), dict(transformer._modules)
        adapter = self._adapter()
        try:
            self._library.enable_cache(adapter, cache_config=self._config(), calibrator_config=self._calibrator())
            # The loop asks the forward for its parameters' names, and the library hides them.
            wrapped = transformer.forward
            getattr(wrapped, "__func__", wrapped).__signature__ = inspect.signature(type(transformer).forward)
            yield self
            self._read_log()
        finally:
            self._library.disable_cache(adapter)
            for name in set(vars(transformer)) - attributes:
                delattr(transformer, name)
            transformer._modules.clear()
            transformer._modules.update(modules)

    def enter_step(self, step: int, block_state: Any) -> None:
        """The library counts for itself."""

    def _adapter(self) -> Any:
        return self._library.BlockAdapter(
            transformer=self.target.transformer,
            blocks=self.target.blocks,
            forward_pattern=self._library.ForwardPattern.Pattern_3,
            check_forward_pattern=False,
        )

    def _config(self) -> Any:
        setting = self.setting
        mask = [int(digit) for digit in setting.mask] or None
        return self._library.DBCacheConfig(
            Fn_compute_blocks=setting.first,
            Bn_compute_blocks=setting.last,
            residual_diff_threshold=setting.threshold,
            max_warmup_steps=setting.warmup,
            max_continuous_cached_steps=setting.max_skips or -1,
            enable_separate_cfg=False,
            num_inference_steps=self.num_steps,
            steps_computation_mask=mask,
            steps_computation_policy="static" if mask else "dynamic",
        )

    def _calibrator(self) -> Any:
        if not self.setting.taylor:
            return None
        return self._library.TaylorSeerCalibratorConfig(taylorseer_order=self.setting.taylor)

    def _read_log(self) -> None:
        found = self._library.summary(self.target.transformer, logging=False)
        cached = set(found[0].cached_steps) if found else set()
        for step in range(self.num_steps):
            self.report.add(step, reuse("cache-dit") if step in cached else compute("cache-dit"), {})
