"""The confidence interval of a rate that was counted: k of n."""

import math
from collections.abc import Callable


def clopper_pearson(count: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a probability after `count` of `n` independent trials (Clopper and Pearson 1934, Biometrika
    26, 404-413, doi:10.1093/biomet/26.4.404).

    It ends where the tail of the binomial distribution, P(X >= count) below and P(X <= count) above, is half of
    1 - confidence: the true rate is inside with at least that confidence, whatever it is. Raises ValueError unless
    0 <= count <= n, n >= 1 and 0 < confidence < 1.
    """
    if n < 1 or not 0 <= count <= n:
        raise ValueError(f"a rate needs n >= 1 and a count from 0 to n, got {count} of {n}.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is not between 0 and 1, both excluded.")
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if count == 0 else _root(lambda p: at_most(n - count, n, 1.0 - p) - tail)
    high = 1.0 if count == n else _root(lambda p: tail - at_most(count, n, p))
    return low, high


def at_most(count: int, n: int, p: float) -> float:
    """P(X <= count) of the binomial distribution of n trials with 0 < p < 1, by logarithms, so that n may be large."""
    logs = (
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
        for k in range(count + 1)
    )
    return math.fsum(math.exp(log) for log in logs)


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function on (0, 1) is 0, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):  # to 1e-15; the middle never reaches 0 or 1, where `at_most` has no logarithm
        middle = (low + high) / 2.0
        low, high = (low, middle) if rising(middle) > 0.0 else (middle, high)
    return (low + high) / 2.0
