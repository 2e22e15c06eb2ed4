"""What a report compares: names as a user gives them, and the requests that they stand for.

`dense`, `fewer-steps@25` (the same request with 25 forwards; also `fewer-steps@25,shift=6,solver=ab2`), every cache
setting as a request takes it, `static@25` (the best 25 steps to compute, from a calibration) and `cache-dit:...SCM@25`
(the same steps for Cache-DiT).
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...cache_policies import CacheDitSetting, RunContext, make_policy, normalise
from ...errors import RequestError
from ...request import GenerationRequest
from .settings import SETTINGS, settings_of

DENSE, FEWER, CACHE_DIT = "dense", "fewer-steps", "cache-dit"


@dataclass(frozen=True)
class Method:
    """What is compared in one workflow. All but the name are fields of a request; None leaves them as they are."""

    name: str
    steps: int
    cache: str | None = None
    shift: float | None = None
    solver: str | None = None

    @property
    def setting(self) -> str:
        """Everything that sets it apart from other methods."""
        if self.cache is not None:
            return self.cache
        shift = "" if self.shift is None else f",shift={self.shift:g}"
        return f"steps={self.steps}{shift}" + (f",solver={self.solver}" if self.solver else "")


def base(name: str) -> str:
    """The method of a name, without its setting."""
    return re.split("[@:]", name, maxsplit=1)[0]


def split_names(text: str) -> list[str]:
    """The names of a list with commas; `max_skips=2` and a number on its own belong to the setting before them."""
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if names and (not part[0].isalpha() or "=" in re.split("[@:]", part)[0]):
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def expand(names: Iterable[str], steps: int, sweep: bool) -> list[str]:
    """The names with their settings, `dense` first, each once. RequestError lists every unknown one and the known."""
    names = list(names)
    if unknown := [name for name in names if base(name) not in SETTINGS]:
        raise RequestError(f"there is no method {', '.join(map(repr, unknown))}. Known: {', '.join(SETTINGS)}.")
    found = [DENSE]
    for name in names:
        found += settings_of(name, steps, sweep) if name in SETTINGS else [name]
    return list(dict.fromkeys(found))


def resolve(
    names: Iterable[str],
    steps: int,
    calibration: Mapping[str, Any] | None,
    missing: str,
    blocks: int | None = None,
) -> list[Method]:
    """The methods of one workflow on runs of `steps` forwards; of those that are equal the first.

    calibration  the entry of a calibration file for this model, workflow and number of steps, if there is one
    missing      what to tell a user whose method needs one that is not there
    blocks       of the model's transformer, as far as it is known

    Raises RequestError with everything that is wrong.
    """
    methods: dict[str, Method] = {}
    problems = []
    for name in names:
        try:
            method = _resolved(name, steps, calibration, missing)
            _check(method, blocks)
        except ValueError as error:
            problems.append(f"{name}: {error}")
        else:
            methods.setdefault(method.setting, method)
    if problems:
        raise RequestError("these methods cannot be measured:\n" + "\n".join(problems))
    return list(methods.values())


def _resolved(name: str, steps: int, calibration: Mapping[str, Any] | None, missing: str) -> Method:
    if name == DENSE:
        return Method(name, steps)
    if base(name) == FEWER:
        return _fewer(name)
    if known := re.fullmatch(r"static@(\d+)((?:,.*)?)", name):
        mask = ";".join(map(str, _static(int(known[1]), calibration, missing)))
        return Method(name, steps, normalise(f"static@{mask};{known[2]}"))
    if known := re.fullmatch(r"(cache-dit:.*SCM)@(\d+)", name):
        computed = _static(int(known[2]), calibration, missing)
        return Method(name, steps, normalise(known[1] + "".join("01"[step in computed] for step in range(steps))))
    setting = normalise(name)
    for policy, key in (("magcache", "ratios"), ("teacache", "polynomial")):
        if base(name) == policy and getattr(make_policy(setting), key) is None:
            values = _measured(policy, calibration, missing)
            setting = normalise(f"{setting},{key}={''.join(f'{float(value)!r};' for value in values)}")
    return Method(name, steps, setting)


def _fewer(name: str) -> Method:
    given = re.fullmatch(r"fewer-steps@([1-9]\d*)(?:,shift=([^,]+))?(?:,solver=(\w+))?", name)
    if given is None:
        raise ValueError("give a number of forwards, for example fewer-steps@25, or fewer-steps@25,shift=6,solver=ab2.")
    chosen = {"shift": given[2], "solver": given[3]}
    asked = GenerationRequest.model_validate({"prompt": name, **{k: v for k, v in chosen.items() if v is not None}})
    return Method(name, int(given[1]), shift=asked.shift, solver=asked.solver)


def _measured(key: str, calibration: Mapping[str, Any] | None, missing: str) -> Any:
    if calibration is None or key not in calibration:
        raise ValueError(missing)
    return calibration[key]


def _static(count: int, calibration: Mapping[str, Any] | None, missing: str) -> list[int]:
    schedules = _measured("static", calibration, missing)
    if str(count) not in schedules:
        numbers = sorted(map(int, schedules))
        raise ValueError(f"the calibration holds the best {numbers[0]} to {numbers[-1]} steps, not {count}.")
    return schedules[str(count)]


def _check(method: Method, blocks: int | None) -> None:
    """Raises ValueError for a cache that cannot serve runs of so many steps on a model of so many blocks."""
    if method.cache is None:
        return
    if base(method.cache) != CACHE_DIT:
        sigmas = tuple(1.0 - step / method.steps for step in range(method.steps + 1))
        make_policy(method.cache).begin(RunContext(method.steps, {"video": sigmas}))
        return
    setting = CacheDitSetting.parse(method.cache)
    if setting.mask and len(setting.mask) != method.steps:
        raise ValueError(f"SCM has {len(setting.mask)} digits, and the run {method.steps} steps.")
    if setting.first < 1 or (blocks is not None and setting.first + setting.last >= blocks):
        raise ValueError(f"of {blocks or 'all'} blocks, F must leave some to skip, and be 1 or more.")
    if importlib.util.find_spec("cache_dit") is None:
        raise ValueError("Cache-DiT is not installed: pip install 'videoinfer[peers]'.")
