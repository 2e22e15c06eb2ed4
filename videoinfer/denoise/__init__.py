"""What the engine does inside a denoise loop: it acts through inserted blocks and hooks and never changes the model."""

from .cache_report import CacheReport
from .cache_session import CacheSession
from .cache_step import CacheStep
from .cached import AnySession, cached, make_session
from .multistep import AdamsBashforth, multistep
from .observer import CancelEvent, OnStep, StepObserver, observed

__all__ = [
    "AdamsBashforth",
    "AnySession",
    "CacheReport",
    "CacheSession",
    "CacheStep",
    "CancelEvent",
    "OnStep",
    "StepObserver",
    "cached",
    "make_session",
    "multistep",
    "observed",
]
