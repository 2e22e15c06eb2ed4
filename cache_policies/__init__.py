"""Step-cache policies: rules that decide which forwards of a diffusion transformer are computed."""

from .base import (
    Action,
    RunContext,
    StepCachePolicy,
    StepOutcome,
    StepSignals,
    combine,
    compute,
    reuse,
)
from .cache_dit_setting import PREFIX as CACHE_DIT
from .cache_dit_setting import CacheDitSetting
from .names import POLICIES, make_policy, normalise

__all__ = [
    "CACHE_DIT",
    "POLICIES",
    "Action",
    "CacheDitSetting",
    "RunContext",
    "StepCachePolicy",
    "StepOutcome",
    "StepSignals",
    "combine",
    "compute",
    "make_policy",
    "normalise",
    "reuse",
]
