"""What is wrong with a field, in the words of JSON: pydantic speaks of Python's types, which no sender has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SAID = {
    "extra_forbidden": "this field is not known here; remove it",
    "missing": "this field is required",
    "tuple_type": 'give a list, as in ["…"]',
    "list_type": 'give a list, as in ["…"]',
    "string_type": "give a text in quotes",
    "string_unicode": "must be valid Unicode",
    "dict_type": "give an object, as in {…}",
    "model_type": "give an object, as in {…}",
    "model_attributes_type": "give an object, as in {…}",
    "mapping_type": "give an object, as in {…}",
}
_OF_PYTHON = {
    "Tuple should": "The list should",
    "List should": "The list should",
    "String should": "The text should",
    "None": "null",
}


def plainly(item: Mapping[str, Any]) -> str:
    """One of a ``ValidationError.errors()``: what to correct, without the value that was given."""
    said = _SAID.get(str(item["type"]))
    if said is not None:
        return said
    text = str(item["msg"]).removeprefix("Value error, ").removesuffix(" after validation")
    for theirs, ours in _OF_PYTHON.items():
        text = text.replace(theirs, ours)
    return text.replace(" after validation,", ",")
