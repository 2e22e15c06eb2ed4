"""What the engine does inside a denoise loop: it acts through inserted blocks and never changes the model."""

from .observer import CancelEvent, OnStep, StepObserver, observed

__all__ = ["CancelEvent", "OnStep", "StepObserver", "observed"]
