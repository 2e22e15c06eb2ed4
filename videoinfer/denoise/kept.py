"""The tensors of the last computed steps, and answers made of them."""

from collections import deque
from collections.abc import Sequence

import torch

Bundle = tuple[torch.Tensor, ...]


class Kept:
    """Up to `memory` bundles of tensors, newest first. Shapes, types and device of all are those of the newest."""

    def __init__(self, memory: int) -> None:
        self._bundles: deque[Bundle] = deque(maxlen=max(memory, 1))
        self.memory = memory

    def __len__(self) -> int:
        return len(self._bundles)

    def clear(self) -> None:
        self._bundles.clear()

    def add(self, bundle: Bundle) -> bool:
        """Keep a bundle. False when it is of another shape than those before, which are then given up."""
        fits = not self._bundles or all(map(same_kind, bundle, self._bundles[0]))
        if not fits:
            self._bundles.clear()
        if self.memory:
            self._bundles.appendleft(bundle)
        return fits

    def fits(self, bundle: Bundle, exactly: bool = True) -> bool:
        """Whether what is kept has the shapes of `bundle`; `exactly`: and its types and devices."""
        if not self._bundles:
            return False
        pairs = zip(bundle, self._bundles[0], strict=True)
        return all(same_kind(a, b) if exactly else a.shape == b.shape for a, b in pairs)

    def combined(self, weights: Sequence[float]) -> Bundle:
        """sum_k weights[k] * the k-th newest bundle. A single weight of 1 gives that bundle itself, bit for bit."""
        if tuple(weights) == (1.0,):
            return self._bundles[0]
        answers = []
        for tensors in zip(*list(self._bundles)[: len(weights)], strict=True):
            answer = tensors[0] * weights[0]
            for tensor, weight in zip(tensors[1:], weights[1:], strict=True):
                answer = answer.add(tensor, alpha=weight)
            answers.append(answer)
        return tuple(answers)


def same_kind(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
