"""Cache settings as requests, job files and reports write them: `first-block@0.12`, `magcache@0.1,max_skips=2`.

Behind `@` come values by position, then by name; lists are written `0;1;2;5`.
"""

import inspect
from typing import Any

from .base import StepCachePolicy
from .cache_dit_setting import PREFIX, CacheDitSetting
from .dense import Dense
from .dicache import DiCache
from .easycache import EasyCache
from .first_block import FirstBlock
from .fixed_interval import FixedInterval
from .magcache import MagCache
from .seacache import SeaCache
from .static import Static
from .taylorseer import TaylorSeer
from .teacache import TeaCache

LEVELS = ("residual", "output", "transform")
POLICIES: dict[str, type[StepCachePolicy]] = {
    policy.name: policy
    for policy in (
        *(Dense, FixedInterval, Static, FirstBlock, TeaCache),
        *(MagCache, EasyCache, DiCache, TaylorSeer, SeaCache),
    )
}


def make_policy(setting: str) -> StepCachePolicy:
    """A policy for one run. Raises ValueError naming what is wrong, what is allowed, and an example."""
    name, _, text = setting.strip().partition("@")
    if name not in POLICIES:
        raise ValueError(f"cache {setting!r}: there is no policy {name!r}. Known: {', '.join(POLICIES)}.")
    policy = POLICIES[name]
    parameters = inspect.signature(policy).parameters if "__init__" in vars(policy) else {}
    given: dict[str, Any] = {}
    for place, part in enumerate(filter(None, text.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            if place >= len(parameters) or len(given) < place:
                raise ValueError(f"cache {setting!r}: {_usage(name, parameters)}")
            key, value = list(parameters)[place], part
        key = key.strip()
        if key not in parameters or key in given:
            raise ValueError(f"cache {setting!r}: {key!r} is unknown or given twice. {_usage(name, parameters)}")
        given[key] = _value(value.strip(), setting)
    missing = [key for key, p in parameters.items() if p.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise ValueError(f"cache {setting!r} lacks {', '.join(missing)}. {_usage(name, parameters)}")
    if given.get("level", "output") not in LEVELS:
        raise ValueError(f"cache {setting!r}: level must be one of {', '.join(LEVELS)}")
    for key, value in given.items():
        if parameters[key].annotation in (int, "int") and not isinstance(value, int):
            raise ValueError(f"cache {setting!r}: {key} must be a whole number")
        if parameters[key].annotation in (float, "float") and not isinstance(value, int | float):
            raise ValueError(f"cache {setting!r}: {key} must be a number")
    try:
        return policy(**given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"cache {setting!r}: {error}. {_usage(name, parameters)}") from error


def normalise(setting: str) -> str:
    """The same setting without blanks, every value by name: two spellings of one setting become equal. ValueError.

    Settings of Cache-DiT (`cache-dit:...`) are names too, though no policy of ours."""
    if setting.strip().startswith(PREFIX):
        return str(CacheDitSetting.parse(setting))
    policy = make_policy(setting)
    values = ",".join(f"{key}={_text(value)}" for key, value in policy.settings().items() if value is not None)
    return f"{policy.name}@{values}" if values else policy.name


def _value(text: str, setting: str) -> Any:
    if ";" in text:
        return [_value(part.strip(), setting) for part in text.split(";") if part.strip()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if not text.replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"cache {setting!r}: {text!r} is neither a number nor a word")
    return text


def _text(value: object) -> str:
    return "".join(f"{_text(part)};" for part in value) if isinstance(value, list | tuple) else str(value)


def _usage(name: str, parameters: Any) -> str:
    words = [
        key if parameter.default is inspect.Parameter.empty else f"{key}={_text(parameter.default)}"
        for key, parameter in parameters.items()
    ]
    return f"Usage: {name}@{','.join(words)}" if words else f"Usage: {name}"
