"""The best steps to compute, chosen on recorded dense runs by dynamic programming.

Answering steps c+1 .. d-1 by the velocity of the computed step c moves the end of an Euler run by sum_i ds_i (v_i -
v_c), as long as the model answers alike along the way. That sum is exact within a row of answers, where errors point
the same way; the errors of different rows are taken as unrelated, so their squares add up. LeMiCa (NeurIPS 2025) and
BudCache (ICML 2026) choose schedules by the final error too.
"""

from collections.abc import Sequence

import numpy as np


def row_costs(gram: np.ndarray, dsigma: Sequence[float]) -> np.ndarray:
    """Squared error of every row of answers.

    gram    (N, N) inner products of the velocities of a dense run, or a sum of such matrices over streams and runs,
            each divided by the squared norm of what the run made
    dsigma  (N,) sigma[i + 1] - sigma[i]

    Returns (N, N + 1): [c, d] for computing c, answering c+1 .. d-1 with it, and computing d (N: the end); infinite
    where d is not behind c.
    """
    steps, weights = len(gram), np.asarray(dsigma, float)
    if gram.shape != (steps, steps) or weights.shape != (steps,):
        raise ValueError(f"the gram matrix is {gram.shape} and dsigma {weights.shape}: expected (N, N) and (N,)")
    costs = np.full((steps, steps + 1), np.inf)
    for c in range(steps):
        # |sum_i w_i (v_i - v_c)|^2 = w'Gw - 2 (sum w) (w'G)_c + (sum w)^2 G_cc, with one step more in w each time.
        w = np.zeros(steps)
        for d in range(c + 1, steps + 1):
            total = w.sum()
            squared = w @ gram @ w - 2.0 * total * (w @ gram[:, c]) + total * total * gram[c, c]
            costs[c, d] = max(0.0, squared)
            if d < steps:
                w[d] = weights[d]
    return costs


def best_steps(costs: np.ndarray, computed: int) -> list[int]:
    """The `computed` steps, 0 among them, whose rows cost least together. ValueError for an impossible number."""
    steps = len(costs)
    if not 1 <= computed <= steps:
        raise ValueError(f"{computed} computed steps are not possible in a run of {steps}: use 1 to {steps}")
    # least[k][c]: the cheapest way through steps c .. N - 1 that computes c and k - 1 steps behind it.
    least = np.full((computed + 1, steps), np.inf)
    after = np.zeros((computed + 1, steps), int)
    least[1] = costs[:, steps]
    for k in range(2, computed + 1):
        for c in range(steps - k + 1):
            ways = costs[c, c + 1 : steps] + least[k - 1, c + 1 :]
            after[k, c] = c + 1 + int(ways.argmin())
            least[k, c] = ways.min()
    chosen, c = [0], 0
    for k in range(computed, 1, -1):
        c = int(after[k, c])
        chosen.append(c)
    return chosen


def schedule_cost(costs: np.ndarray, chosen: Sequence[int]) -> float:
    """The squared error of a schedule, its steps in order."""
    ends = [*chosen[1:], len(costs)]
    return float(sum(costs[c, d] for c, d in zip(chosen, ends, strict=True)))
