"""`--from`: the request in a clip's sidecar, and what of the clip's making is another now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..request import GenerationRequest

# Where a sidecar says what latents depend on, besides the request.
MADE_WITH = (
    ("model", "revision"),
    ("device",),
    ("dtype",),
    ("threads",),
    ("versions", "videoinfer"),
    ("versions", "torch"),
    ("versions", "diffusers"),
)


@dataclass(frozen=True)
class Sidecar:
    """`request` as JSON, and all that the file says; a file that holds a request alone says nothing else."""

    request: dict[str, Any]
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str | None:
        return _at(self.record, "model", "name")

    @property
    def dtype(self) -> str | None:
        return self.record.get("dtype")

    def differences(self, now: Mapping[str, Any]) -> list[str]:
        """What the sidecar says against `now`, the record of the run that is to repeat it."""
        found = []
        for keys in MADE_WITH:
            then, this = _at(self.record, *keys), _at(now, *keys)
            if then is not None and then != this:
                found.append(f"{' '.join(keys)} was {then} and is {this}")
        for then, this in zip(self.record.get("references", ()), now["references"], strict=False):
            if then != this:
                found.append(f"the content of {this['path']} has changed")
        return found


def read_run(path: Path) -> Sidecar:
    """Raises MediaError (no such file, no JSON object) and RequestError (no valid request or model in it)."""
    from ..media.sidecar import read_sidecar

    data = read_sidecar(path)
    held = data.get("request", data)
    request = GenerationRequest.model_validate(held).model_dump(mode="json", exclude_none=True)
    if "request" not in data:
        return Sidecar(request)
    model, dtype, references = data.get("model"), data.get("dtype"), data.get("references", [])
    if isinstance(model, str):  # as a hand would write it
        data = {**data, "model": {"name": model}}
    elif model is not None and not isinstance(_at(data, "model", "name"), str):
        raise RequestError(f"{path}: model {model!r} is neither a name nor an object with one. Give --model.")
    if dtype not in (None, "float32", "bfloat16"):
        raise RequestError(f"{path}: dtype {dtype!r} is not known: float32 and bfloat16 are.")
    if not isinstance(references, list) or not all(isinstance(entry, dict) for entry in references):
        raise RequestError(f"{path}: references is no list of objects.")
    return Sidecar(request, data)


def _at(record: Mapping[str, Any], *keys: str) -> Any:
    value: Any = record
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
