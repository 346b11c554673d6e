"""Front matter of Markdown bodies, at the very beginning: YAML between ``---`` lines, TOML between ``+++`` lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

MAX_LENGTH = 65_536  # characters
MAX_BRACKETS = 1000  # a parser's time grows faster than their number
_MAX_DOTS = 1000  # in a line of TOML, where they may be one key, for the same reason
_BLOCK = re.compile(r"\ufeff?---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_TOML = re.compile(r"\ufeff?\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_TOML_LINE = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*=[ \t]*(.*)$")
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
    head = text[: MAX_LENGTH + 8]
    toml = _TOML.match(head)
    match = toml or _BLOCK.match(head)
    if match is None:
        return FrontMatter(body=text)
    raw, warnings = _parse_toml(match.group(1)) if toml else _parse(match.group(1))
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
    # PyYAML trusts explicit tags: "!!bool maybe" is a KeyError, "!!int ''" an IndexError.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
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
    return {_said(key): value for key, value in loaded.items()}, []


def _parse_toml(block: str) -> tuple[dict[str, object] | None, list[str]]:
    import tomllib

    try:
        if block.count("[") + block.count("{") > MAX_BRACKETS:
            raise ValueError("nested beyond reason")
        if any(line.count(".") > _MAX_DOTS for line in block.split("\n")):
            raise ValueError("a key of too many parts")
        return dict(tomllib.loads(block)), []
    except (ValueError, RecursionError):  # a TOMLDecodeError is a ValueError
        lines = {m.group(1): m.group(2) for line in block.split("\n") if (m := _TOML_LINE.match(line))}
    if not lines:
        return None, []
    plain: dict[str, object] = {key: value.strip().strip("\"'") for key, value in lines.items()}
    return plain, ["front matter: not valid TOML; read line by line as 'key = value'"]


def _normalise(raw: dict[str, object], warnings: list[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in raw.items():
        name = _ALIASES.get(key, key)
        if name in ("title", "language", "product"):
            said = _said(value)
            if said and name == "language" and value is False:
                said = "no"  # what YAML takes for a denial is Norwegian
            if said:
                values[name] = said
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


def _said(value: object) -> str:
    """A scalar as a text, empty for anything else and for an integer of thousands of digits."""
    try:
        return str(value).strip() if isinstance(value, str | int | float | date) else ""
    except ValueError:
        return ""


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
