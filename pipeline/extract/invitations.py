"""Calendar invitations (iCalendar): what, when and where."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from itertools import pairwise

_MAX_EVENTS = 200
_ESCAPED = re.compile(r"\\([\\;,nN])")
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?\Z", re.ASCII)


@dataclass
class Invitation:
    """One event: its name, and its fields as lines ``When: ...``; empty ones are left out."""

    summary: str
    lines: list[str]
    description: str = ""


def read_calendar(text: str) -> list[Invitation]:
    """The events of a calendar, in order. Alarms and time zones' definitions are passed by. Never raises."""
    found: list[Invitation] = []
    inside: list[str] = []
    fields: dict[str, tuple[dict[str, str], str]] = {}
    for line in _unfolded(text):
        name, parameters, value = _property(line)
        if name == "BEGIN":
            inside.append(value.upper())
            if value.upper() in ("VEVENT", "VTODO"):
                fields = {}
        elif name == "END":
            kind = inside.pop() if inside else ""
            if kind in ("VEVENT", "VTODO") and len(found) < _MAX_EVENTS:
                found.append(_invitation(fields))
        elif inside and inside[-1] in ("VEVENT", "VTODO"):
            fields.setdefault(name, (parameters, value))
    return found


def _invitation(fields: dict[str, tuple[dict[str, str], str]]) -> Invitation:
    def plain(name: str) -> str:
        return _unescaped(fields[name][1]).strip() if name in fields else ""

    start, end = (_moment(*fields[name]) if name in fields else "" for name in ("DTSTART", "DTEND"))
    if start and end and start[:10] == end[:10] and len(end) > 10:
        end = end[11:]
    parameters = fields["ORGANIZER"][0] if "ORGANIZER" in fields else {}
    organizer = parameters.get("CN") or plain("ORGANIZER").removeprefix("mailto:").removeprefix("MAILTO:")
    zone = fields["DTSTART"][0].get("TZID", "") if "DTSTART" in fields else ""
    when = f"{start} – {end}" if end else start
    lines = [
        f"When: {when} ({zone})" if zone and when else f"When: {when}" if when else "",
        f"Due: {_moment(*fields['DUE'])}" if "DUE" in fields else "",
        f"Repeats: {plain('RRULE')}" if plain("RRULE") else "",
        f"Where: {plain('LOCATION')}" if plain("LOCATION") else "",
        f"Organizer: {organizer}" if organizer else "",
    ]
    return Invitation(plain("SUMMARY"), [line for line in lines if line], plain("DESCRIPTION"))


def _unfolded(text: str) -> list[str]:
    """Content lines: one that begins with white space goes on with the line before."""
    parts: list[list[str]] = []
    for line in text.split("\n"):
        if line[:1] in (" ", "\t") and parts:
            parts[-1].append(line[1:])
        elif line.strip():
            parts.append([line])
    return ["".join(part) for part in parts]


def _property(line: str) -> tuple[str, dict[str, str], str]:
    """Name, parameters and value; colons and semicolons inside quotation marks part nothing."""
    cuts: list[int] = []
    quoted = False
    colon = len(line)
    for index, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif char == ";" and not quoted:
            cuts.append(index)
        elif char == ":" and not quoted:
            colon = index
            break
    edges = [*cuts, colon]
    parameters = {}
    for start, end in pairwise(edges):
        key, _, value = line[start + 1 : end].partition("=")
        parameters[key.upper()] = value.strip('"')
    return line[: edges[0]].strip().upper(), parameters, line[colon + 1 :].strip()


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], value)


def _moment(parameters: dict[str, str], value: str) -> str:
    """A date or time as ISO 8601; what is neither stays as it is."""
    found = _MOMENT.match(value)
    if found is None:
        return value
    year, month, day, hour, minute, second, utc = found.groups()
    try:
        date = dt.date(int(year), int(month), int(day)).isoformat()
        clock = dt.time(int(hour), int(minute), int(second)) if hour else None
    except ValueError:
        return value
    if clock is None:
        return date
    return f"{date} {clock.strftime('%H:%M')}{' UTC' if utc else ''}"
