"""First-block cache (github.com/chengzeyi/ParaAttention): the first block tells whether the rest changed.

Skip iff mean|r - r_c| / mean|r_c| < tau, r the residual of the first block, r_c that of the last computed step; the
rest of the stack is answered by its residual of that step. DBCache (cache-dit) is the same with warm-up and a limit in
a row.
"""

from .base import Action, StepCachePolicy, StepSignals, compute, reuse


class FirstBlock(StepCachePolicy):
    """`warmup` first steps are computed; at most `max_skips` are skipped in a row (0: no limit)."""

    name = "first-block"
    stage = "probe"
    needs = frozenset({"probe_change"})

    def __init__(self, tau: float, warmup: int = 1, max_skips: int = 0, rows: str = "generated") -> None:
        if not tau >= 0.0:
            raise ValueError(f"tau {tau} must be 0 or more")
        if rows not in ("all", "generated"):
            raise ValueError(f"rows {rows!r} is not allowed: use all or generated")
        self.tau, self.warmup, self.max_skips = tau, warmup, max_skips
        self.rows = rows  # type: ignore[assignment]

    def decide(self, signals: StepSignals) -> Action:
        if signals.step < self.warmup:
            return compute("warm-up")
        if self.max_skips and signals.since > self.max_skips:
            return compute("in a row")
        change = signals.values.get("probe_change")
        if change is None:
            return compute("no history")
        # `not >` as in diffusers: NaN computes there too, since the session never lets one pass.
        return compute("threshold") if change > self.tau else reuse()

    def settings(self) -> dict[str, object]:
        return {"tau": self.tau, "warmup": self.warmup, "max_skips": self.max_skips, "rows": self.rows}
