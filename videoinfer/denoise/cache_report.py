"""What a step cache did in one run; part of every sidecar."""

from collections import Counter
from typing import Any

from ..cache_policies import Action

REAL_DEPTH = 50  # blocks of the released MiniMax-H3: a probe of one block costs 2 % of a step there


class CacheReport:
    """`steps`: one entry per forward. `guards`: what was unexpected and so computed, by reason. `probes`: blocks that
    run at every step, answered or not."""

    def __init__(
        self,
        policy: str,
        settings: dict[str, object],
        sigmas: dict[str, tuple[float, ...]],
        num_blocks: int,
        probes: int = 0,
    ) -> None:
        self.policy, self.settings, self.sigmas = policy, settings, sigmas
        self.num_blocks, self.probes = num_blocks, probes
        self.steps: list[dict[str, Any]] = []
        self.guards: Counter[str] = Counter()

    def add(self, step: int, action: Action, values: dict[str, float]) -> None:
        entry: dict[str, Any] = {"step": step, "computed": action.computes, "reason": action.reason}
        if action.weights and action.weights != (1.0,):
            entry["weights"] = [round(weight, 6) for weight in action.weights]
        if values:
            entry["values"] = {name: float(f"{value:.6g}") for name, value in values.items()}
        self.steps.append(entry)

    def guard(self, reason: str) -> None:
        self.guards[reason] += 1

    @property
    def computed(self) -> int:
        return sum(entry["computed"] for entry in self.steps)

    def block_forwards(self, depth: int) -> int:
        """Blocks that would have run in a stack of `depth` blocks."""
        return self.computed * depth + (len(self.steps) - self.computed) * self.probes

    def warnings(self) -> list[str]:
        """What a user should know: a cache that never answered has cost time and gained none."""
        if self.policy == "dense" or not self.steps or self.computed < len(self.steps):
            return []
        reasons = ", ".join(f"{reason} {count}" for reason, count in self._reasons().most_common(3))
        return [f"the cache {self.policy} answered no step: all {len(self.steps)} were computed ({reasons})."]

    def _reasons(self) -> Counter[str]:
        return Counter(entry["reason"] for entry in self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "settings": {name: value for name, value in self.settings.items() if value is not None},
            "forwards": len(self.steps),
            "computed": self.computed,
            "block_forwards": self.block_forwards(self.num_blocks),
            "block_forwards_at_depth": {"depth": REAL_DEPTH, "count": self.block_forwards(REAL_DEPTH)},
            "reasons": dict(self._reasons()),
            "guards": dict(self.guards),
            "warnings": self.warnings(),
            "sigmas": {name: [float(f"{value:.7g}") for value in values] for name, values in self.sigmas.items()},
            "steps": self.steps,
        }
