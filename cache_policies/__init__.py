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
from .cache_dit_setting import CacheDitSetting
from .names import POLICIES, make_policy, normalise

__all__ = [
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
