"""What a policy asks to be measured, from the tensors of this step and of those before."""

from collections.abc import Callable
from typing import Any

import torch

from .measures import mean_change, mean_size, read, relative_change, row_ratio
from .target import Rows

Noted = torch.Tensor | Rows


class Signals:
    """Remembers, by name, the tensors of this step (`note`), of the step before and of the last two computed steps.

    Names: `input` and `output` of the model (generated rows, per stream), `probe`, `residual` and `modulated` (hidden
    states), `filtered` (latents).
    """

    def __init__(self, needs: frozenset[str]) -> None:
        self.needs = needs
        self.clear()

    def clear(self) -> None:
        self._now: dict[str, Noted] = {}
        self._before: dict[str, Noted] = {}
        self._computed: list[dict[str, Noted]] = []  # newest first

    def begin(self) -> None:
        """A step begins."""
        self._now = {}

    def note(self, name: str, tensors: Noted) -> None:
        self._now[name] = tensors

    def end(self, computed: bool) -> None:
        """The step is over."""
        self._before |= self._now
        if computed:
            self._computed = [self._now, *self._computed[:1]]

    def values(self) -> dict[str, float]:
        """What can be known before the step is computed."""
        found: dict[str, torch.Tensor] = {}
        last = self._computed[0] if self._computed else {}
        self._compare(found, "probe_change", "probe", last, relative_change)
        self._compare(found, "probe_drift", "probe", self._before, relative_change)
        self._compare(found, "modulated_change", "modulated", self._before, relative_change)
        self._compare(found, "filtered_change", "filtered", self._before, relative_change)
        self._compare(found, "input_change", "input", self._before, mean_change)
        if "probe_gain" in self.needs and len(self._computed) > 1:
            one, two = (_tuple(step["probe"]) for step in self._computed)
            found["probe_gain"] = mean_change(_tuple(self._now["probe"]), two) / mean_change(one, two)
        if "output_norm" in self.needs and "output" in last:
            found["output_norm"] = mean_size(_tuple(last["output"]))
        return read(found)

    def findings(self) -> dict[str, float]:
        """What only a computed step can tell."""
        found: dict[str, torch.Tensor] = {}
        last = self._computed[0] if self._computed else {}
        self._compare(found, "output_change", "output", last, mean_change)
        self._compare(found, "input_move", "input", last, mean_change)
        self._compare(found, "residual_ratio", "residual", last, row_ratio)
        return read(found)

    def _compare(
        self,
        found: dict[str, torch.Tensor],
        signal: str,
        name: str,
        earlier: dict[str, Noted],
        measure: Callable[[Any, Any], torch.Tensor],
    ) -> None:
        if signal in self.needs and name in self._now and name in earlier:
            found[signal] = measure(self._now[name], earlier[name])


def _tuple(value: Noted) -> Rows:
    return value if isinstance(value, tuple) else (value,)
