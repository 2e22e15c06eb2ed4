"""The name of a Cache-DiT setting, `cache-dit:F1B0W4MC3R0.08TS1`: what the library itself calls these numbers."""

import re
from dataclasses import dataclass

PREFIX = "cache-dit:"
USAGE = (
    "Usage: cache-dit:F1B0W4MC3R0.08: the first and last blocks that always run (F, B), warm-up steps (W), skips in a "
    "row at most (MC; 0: no limit), threshold (R), TS1 for TaylorSeer of order 1, and SCM110... to compute the steps "
    "that are marked 1"
)
_FORM = re.compile(
    r"F(?P<first>\d+)B(?P<last>\d+)W(?P<warmup>\d+)MC(?P<max_skips>\d+)R(?P<threshold>\d*\.?\d+)"
    r"(?:TS(?P<taylor>[1-3]))?(?:SCM(?P<mask>[01]+))?"
)


@dataclass(frozen=True)
class CacheDitSetting:
    """`mask`: one digit per step, 1 computes it; the library then decides nothing itself."""

    first: int
    last: int
    warmup: int
    max_skips: int
    threshold: float
    taylor: int = 0
    mask: str = ""

    @classmethod
    def parse(cls, setting: str) -> "CacheDitSetting":
        """Raises ValueError with the usage."""
        form = _FORM.fullmatch(setting.strip().removeprefix(PREFIX))
        if form is None:
            raise ValueError(f"cache {setting!r} is no setting of Cache-DiT. {USAGE}.")
        found = form.groupdict()
        numbers = {name: int(found[name] or 0) for name in ("first", "last", "warmup", "max_skips", "taylor")}
        return cls(**numbers, threshold=float(found["threshold"]), mask=found["mask"] or "")

    def __str__(self) -> str:
        text = f"{PREFIX}F{self.first}B{self.last}W{self.warmup}MC{self.max_skips}R{self.threshold:g}"
        return text + (f"TS{self.taylor}" if self.taylor else "") + (f"SCM{self.mask}" if self.mask else "")
