"""What a cache session itself costs beside a dense step, at the real block size of MiniMax-H3.

    python -P -m videoinfer.eval.cache_overhead [--rows 256] [--rounds 5]

One block of the released width (hidden 5376, 56 heads of 128, feed-forward 14336; random weights, 1.6 GB in float32) is
timed on `rows` rows, and so is all that a probing session does in a step that is computed: the copies, the residuals
and the values. A step has 50 such blocks. Printed is the session's share of a step, which falls as rows grow, since
attention grows with their square and the session does not.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3RotaryPosEmbed, MiniMaxH3TransformerBlock

from ..cache_policies import make_policy
from ..denoise import CacheSession

DEPTH, WIDTH = 50, 5376


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    block = MiniMaxH3TransformerBlock(WIDTH, 56, 128, 14336, 2688, 1e-5, 1e-5).eval()
    places = torch.zeros(given.rows, 3, dtype=torch.float64)
    places[:, 0] = torch.arange(given.rows)
    rotary = MiniMaxH3RotaryPosEmbed(16, 10000.0)(places)
    hidden, temb = torch.randn(1, given.rows, WIDTH), torch.randn(2, 2688)
    indices = torch.zeros(given.rows, dtype=torch.long)
    with torch.no_grad():
        blocks = timed(lambda: block(hidden, temb, indices, rotary), given.rounds)
        for setting in ("first-block@0.1,max_skips=1", "dicache@0.1", "fixed-interval@4"):
            cost = timed(lambda setting=setting: one_step(setting, hidden), given.rounds)
            print(f"{setting}: {1e3 * cost:.1f} ms of a step of {DEPTH * blocks:.1f} s, {cost / (DEPTH * blocks):.4%}")


def one_step(setting: str, hidden: torch.Tensor) -> None:
    """All that a session does in the second step of a run, which has something to compare with, without the blocks."""
    session = CacheSession(_target(hidden), make_policy(setting), {"video": (1.0, 0.9, 0.8, 0.0)})
    for step in range(2):
        session.enter_step(step, None)
        session.enter({})
        session.at_input(hidden, ())
        session.at_probe(hidden + 1.0)
        session.at_tail(hidden + 2.0)
        session.leave((hidden,))


def _target(hidden: torch.Tensor) -> Any:
    rows = torch.arange(hidden.shape[1])
    return SimpleNamespace(
        streams=("video",),
        blocks=[None] * DEPTH,
        enter=lambda state: None,
        inputs=lambda arguments: (hidden,),
        packed=lambda arguments: rows,
        generated=lambda tensors: tensors,
    )


def timed(run: Callable[[], Any], rounds: int) -> float:
    """Median seconds of a call, after one that is not counted."""
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
