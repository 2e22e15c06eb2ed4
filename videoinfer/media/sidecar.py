"""The JSON file beside a clip: what was asked, what was made, and with what."""

import json
from pathlib import Path, PurePath
from typing import Any

from ..errors import MediaError
from .images import check_readable
from .publish import published


def write_json(path: str | Path, data: dict[str, Any]) -> Path:
    """Writes `data` as UTF-8 JSON: whole or not at all, and never over an existing file.

    Paths are written as text; NaN and Inf are refused, as JSON has no word for them. Raises MediaError.
    """
    path = Path(path)
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
        content = (text + "\n").encode()
    except (ValueError, TypeError) as error:  # NaN, lone surrogates, an object without a JSON form
        raise MediaError(f"cannot write {path}: {error}") from error
    with published(path) as part:
        part.write_bytes(content)
    return path


def read_sidecar(path: str | Path) -> dict[str, Any]:
    """The object in a sidecar file. Raises MediaError: no such file, not JSON, or JSON that is not an object."""
    path = Path(path)
    check_readable(path, "a JSON sidecar of a clip")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise MediaError(f"{path} is not a JSON sidecar: {error}") from error
    if not isinstance(data, dict):
        raise MediaError(f"{path} is not a JSON sidecar: expected an object, found {type(data).__name__}")
    return data


def _plain(value: object) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
