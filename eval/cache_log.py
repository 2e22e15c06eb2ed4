"""What a step cache decided, from a sidecar: told again, judged by another setting, and drawn."""

from typing import Any

from ..cache_policies import RunContext, StepOutcome, StepSignals, make_policy
from ..errors import RequestError

COMPUTED, ANSWERED, FORECAST = "█", "·", "○"


def cache_record(sidecar: dict[str, Any], name: str) -> dict[str, Any]:
    """The cache report of a sidecar's content. RequestError when the clip was made without one."""
    record = sidecar.get("cache")
    if not isinstance(record, dict) or not isinstance(record.get("steps"), list):
        raise RequestError(f"{name} holds no cache report: the clip was made without a step cache.")
    return record


def strip(steps: list[dict[str, Any]]) -> str:
    """One character a step: computed, answered by a kept tensor, or forecast from several."""
    return "".join(COMPUTED if s["computed"] else FORECAST if s.get("weights") else ANSWERED for s in steps)


def replay(record: dict[str, Any], setting: str, sigmas: dict[str, tuple[float, ...]]) -> list[dict[str, Any]]:
    """What `setting` decides on the values of a log, as entries of a report.

    With the setting of the log itself the decisions are those of the log. With another threshold it is an estimate:
    what is compared with the last computed step was measured against that of the logged run, and a clip whose steps are
    answered takes another way. RequestError when the log lacks a value that the policy needs.
    """
    try:
        policy = make_policy(setting)
    except ValueError as error:
        raise RequestError(f"{error}") from error
    logged = set().union(*(entry.get("values", {}) for entry in record["steps"]))
    if missing := sorted(policy.needs - logged):
        raise RequestError(f"the log holds no {', '.join(missing)}, which {policy.name} decides by.")
    steps = len(record["steps"])
    try:
        policy.begin(RunContext(steps, sigmas, num_blocks=2))
    except ValueError as error:
        raise RequestError(f"cache {setting}: {error}.") from error
    entries, kept, last = [], 0, -1
    for step, entry in enumerate(record["steps"]):
        values = entry.get("values", {})
        sigma = {name: s[step] for name, s in sigmas.items()}
        dsigma = {name: s[step + 1] - s[step] for name, s in sigmas.items()}
        action = policy.decide(StepSignals(step, steps, sigma, dsigma, step - last, kept, values))
        policy.observe(StepOutcome(step, action, 0.0, True, values if action.computes else {}))
        if action.computes:
            kept, last = min(kept + 1, policy.memory), step
        entries.append({"step": step, "computed": action.computes, "reason": action.reason})
        if action.weights and action.weights != (1.0,):
            entries[-1]["weights"] = list(action.weights)
    return entries


def sigmas_of(record: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """The noise levels of the run, as its report holds them."""
    return {name: tuple(values) for name, values in record["sigmas"].items()}
