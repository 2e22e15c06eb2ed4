"""The base of every model of the schema: frozen, closed, and with errors that a user can act on."""

import difflib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ..errors import RequestError

UNION_TAGS = ("text", "parts")  # pydantic puts the chosen form of a union (see `prompt`) into the place of an error


class Schema(BaseModel):
    """Frozen pydantic model; every way of building one raises `RequestError` with the reason in plain words."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise RequestError(explain(error)) from error

    # pydantic calls a custom __init__ for nested models too, and would wrap the error twice; this keeps the fast path.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise RequestError(explain(error)) from error

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise RequestError(explain(error)) from error

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            valid = list(cls.model_fields)
            unknown = [str(key) for key in data if key not in valid]
            if unknown:
                raise ValueError(f"{_name_unknown(unknown, valid)}. Valid keys: {', '.join(valid)}")
        return data


def _name_unknown(unknown: list[str], valid: list[str]) -> str:
    named = []
    for key in unknown:
        near = difflib.get_close_matches(key, valid, n=1)
        named.append(f"{key!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return f"unknown key{'s' if len(named) > 1 else ''} {', '.join(named)}"


def explain(error: ValidationError) -> str:
    """One line for each thing that is wrong, `place: reason (got value)`, without pydantic's own wording around it."""
    lines = []
    for item in error.errors(include_url=False):
        place = ".".join(str(part) for part in item["loc"] if part not in UNION_TAGS)
        reason = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            reason = "is required"
        elif item["type"] != "value_error":
            reason = f"{reason[0].lower()}{reason[1:]} (got {_short(item['input'])})"
        lines.append(f"{place}: {reason}" if place else reason)
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
