"""YAML front matter of Markdown bodies: ``---`` lines around ``key: value`` pairs at the very beginning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

MAX_LENGTH = 65_536  # characters
MAX_BRACKETS = 1000  # a parser's time grows faster than their number
_BLOCK = re.compile(r"\ufeff?---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:[ \t]*(.*)$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALIASES = {"lang": "language"}


@dataclass(frozen=True)
class FrontMatter:
    """``values`` with the known keys normalised, the ``body`` after the block, and what was wrong with it."""

    values: Mapping[str, object] = field(default_factory=dict)
    body: str = ""
    warnings: tuple[str, ...] = ()

    def string(self, key: str) -> str | None:
        """A known textual value, or None."""
        value = self.values.get(key)
        return value if isinstance(value, str) and value else None


def front_matter(text: str) -> dict[str, object]:
    """Values of the front matter, empty without one.

    ``title``, ``language`` and ``product`` are strings, ``effective_from`` and ``effective_until`` microseconds since
    the epoch (UTC; an instant at which the document begins, and one at which it no longer applies: the end of the day
    for a bare date). Known keys with unusable values are left out; other keys come as YAML gives them.
    """
    return dict(split(text).values)


def split(text: str) -> FrontMatter:
    """Separate front matter and body. Nothing raises: what cannot be read is warned about."""
    match = _BLOCK.match(text[: MAX_LENGTH + 8])
    if match is None:
        return FrontMatter(body=text)
    raw, warnings = _parse(match.group(1))
    if raw is None:  # a thematic break and prose, not front matter
        return FrontMatter(body=text)
    values = _normalise(raw, warnings)
    return FrontMatter(values=values, body=text[match.end() :], warnings=tuple(warnings))


def _parse(block: str) -> tuple[dict[str, object] | None, list[str]]:
    import yaml

    try:
        if block.count("[") + block.count("{") > MAX_BRACKETS:
            raise ValueError("nested beyond reason")
        loaded = yaml.safe_load(block)
    except (yaml.YAMLError, ValueError, RecursionError):
        lines = {m.group(1): m.group(2) for line in block.split("\n") if (m := _LINE.match(line))}
        if not lines:
            return None, []
        # "title: Leave: a guide" is the usual slip; line by line it still says what was meant.
        plain: dict[str, object] = {k: v.strip().strip("\"'") for k, v in lines.items()}
        return plain, ["front matter: not valid YAML; read line by line as 'key: value'"]
    if loaded is None:
        return {}, []
    if not isinstance(loaded, dict):
        return None, []
    return {str(key): value for key, value in loaded.items()}, []


def _normalise(raw: dict[str, object], warnings: list[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in raw.items():
        name = _ALIASES.get(key, key)
        if name in ("title", "language", "product"):
            if isinstance(value, str | int | float | date) and str(value).strip():
                values[name] = str(value).strip()
            elif value is not None:
                warnings.append(f"front matter: {key} is not a text; left out")
        elif name in ("effective_from", "effective_until"):
            moment = _micros(value, end=name == "effective_until")
            if moment is not None:
                values[name] = moment
            elif value is not None:
                warnings.append(f"front matter: {key} is not a date (YYYY-MM-DD or ISO 8601); left out")
        else:
            values[name] = value
    return values


def _micros(value: object, *, end: bool) -> int | None:
    if isinstance(value, str):
        value = _read_date(value.strip())
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    elif isinstance(value, date):
        try:
            day = value + timedelta(days=1) if end else value
        except OverflowError:
            return None
        moment = datetime.combine(day, time.min, tzinfo=UTC)
    else:
        return None
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    return micros if micros >= 0 else None


def _read_date(text: str) -> date | datetime | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
