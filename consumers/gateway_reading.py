"""Bodies of requests as JSON and as changes. Nothing of what was sent is in the errors."""

from __future__ import annotations

import json

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json

from consumers.gateway_errors import Refused, of_validation
from consumers.gateway_writer import AnyChange
from schemas.api_changes import CHANGES


class _Twice(Exception):
    """A field is there twice: which of its values was meant is not for us to guess."""


def _each_once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _Twice


def read_json(body: bytes, what: str = "body") -> JsonValue:
    """JSON in UTF-8 whose objects name each field once. Raises Refused (400)."""
    try:
        data: JsonValue = from_json(body)
        json.loads(body, object_pairs_hook=_each_once)
    except _Twice:
        raise Refused(400, "Not understood", "An object names a field twice; say which of the two is meant.") from None
    except (ValueError, RecursionError):
        raise Refused(400, "Not understood", f"The {what} is not valid JSON in UTF-8.") from None
    return data


def parse(body: bytes) -> list[AnyChange]:
    """The changes of a body, one or an array. Raises Refused (400, 422)."""
    data = read_json(body)
    single = not isinstance(data, list)
    try:
        return list(CHANGES.validate_python([data] if single else data))
    except ValidationError as error:
        raise of_validation(error, single=single) from None
