"""How long a task may take: what the finished ones let expect, with much room."""

from collections import defaultdict

ROOM = 10.0  # times what is expected
AT_LEAST = 600.0  # seconds
UNKNOWN = 86_400.0  # seconds, before anything of its kind is finished


class Pace:
    """Seconds per unit of cost, apart for each kind of task: an encoder's time says nothing of a denoiser's.

    `time_limit` in seconds is used instead when it is given.
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self.time_limit = time_limit
        self.cost: defaultdict[str, float] = defaultdict(float)
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def note(self, kind: str, cost: float, seconds: float) -> None:
        """A task is finished."""
        self.cost[kind] += cost
        self.seconds[kind] += seconds

    def limit(self, kind: str, cost: float) -> float:
        """Seconds after which a task counts as lost. To be asked anew: the first tasks teach it while others run."""
        if self.time_limit is not None:
            return self.time_limit
        if not self.cost[kind]:
            return UNKNOWN
        return max(AT_LEAST, ROOM * cost * self.seconds[kind] / self.cost[kind])
