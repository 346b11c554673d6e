"""Cell values as a spreadsheet shows them: number formats of SpreadsheetML applied to numbers, dates and booleans."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

_LOCALE = re.compile(r"\[\$([^\]-]*)(?:-[^\]]*)?\]")
_BRACKETS = re.compile(r"\[[^\]]*\]")  # colours, conditions
_LITERAL = re.compile(r'"([^"]*)"|\\(.)|_.|\*.')
_PLACES = re.compile(r"\.?[0#?](?:[0#?,.]*[0#?])?,*")
_BLANKS = re.compile(r"\s+")
_MAX_PLACES = 15
_MAX_FORMAT = 255  # characters of a format code, as the format itself allows


def shown(value: object, code: str) -> str:
    """``value`` as the number format ``code`` shows it; a code that is not understood changes nothing.

    Dates and times are ISO 8601 whatever the code's order is, booleans TRUE and FALSE, text stays as it is.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, dt.datetime | dt.date | dt.time | dt.timedelta):
        return _moment(value)
    if isinstance(value, int | float):
        return _number(value, code)
    return str(value)


def plain_number(value: int | float) -> str:
    """A number as a spreadsheet shows it without a format: fifteen digits that count."""
    if isinstance(value, int) and abs(value) < 10**15:
        return str(value)
    text = f"{value:.15g}"
    if "e" not in text:
        return text
    exponent = int(text.partition("e")[2])
    return format(Decimal(text), "f") if -10 <= exponent <= 20 else text.upper()


def _moment(value: dt.datetime | dt.date | dt.time | dt.timedelta) -> str:
    if isinstance(value, dt.timedelta):
        seconds = round(value.total_seconds())
        sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
        clock = f"{sign}{seconds // 3600}:{seconds // 60 % 60:02d}"
        return f"{clock}:{seconds % 60:02d}" if seconds % 60 else clock
    if isinstance(value, dt.datetime):
        value = _whole_seconds(value)
        if value.time() == dt.time():
            return value.date().isoformat()
        return f"{value.date().isoformat()} {_clock(value.time())}"
    if isinstance(value, dt.time):
        return _clock(_whole_seconds(dt.datetime.combine(dt.date.min, value)).time())
    return value.isoformat()


def _whole_seconds(value: dt.datetime) -> dt.datetime:
    """Serial numbers are binary fractions of a day: a time of day is a few microseconds off."""
    try:
        return (value + dt.timedelta(microseconds=500_000)).replace(microsecond=0)
    except OverflowError:
        return value.replace(microsecond=0)


def _clock(value: dt.time) -> str:
    return value.strftime("%H:%M:%S") if value.second else value.strftime("%H:%M")


def _number(value: int | float, code: str) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    sections = _sections(code)
    if not sections:
        return plain_number(value)
    if len(sections) > 1 and value < 0:
        section, value = sections[1], -value
    elif len(sections) > 2 and value == 0:
        section = sections[2]
    else:
        section = sections[0]
    text = _apply(value, section)
    return plain_number(value) if text is None else text


@lru_cache(maxsize=4096)
def _sections(code: str) -> tuple[str, ...]:
    """Sections for positive, negative and zero; empty for General and what cannot be a format."""
    if len(code) > _MAX_FORMAT or code.strip().lower() in ("", "general", "@"):
        return ()
    parts, quoted, current = [], False, ""
    skip = False
    for char in code:
        if skip:
            skip = False
        elif char == "\\":
            skip = True
        elif char == '"':
            quoted = not quoted
        elif char == ";" and not quoted:
            parts.append(current)
            current = ""
            continue
        current += char
    return tuple([*parts, current][:3])


@dataclass(frozen=True)
class _Plan:
    """One section of a format, taken apart. ``lead`` and ``tail`` stand around the digits."""

    lead: str
    tail: str
    digits: bool = True
    general: bool = False
    whole: str = ""
    decimals: str = ""
    factor: Decimal = Decimal(1)
    exponent: int = 0  # digits of the exponent, 0 for none


def _apply(value: int | float, section: str) -> str | None:
    """The number in one section of a format; None for fractions and what is not understood."""
    plan = _plan(section)
    if plan is None:
        return None
    if plan.general:
        return plan.lead + plain_number(value) + plan.tail
    if not plan.digits:
        return plan.lead
    amount = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    try:
        if plan.exponent:
            body = _scientific(amount, len(plan.decimals), plan.exponent)
        else:
            body = _fixed(amount * plan.factor, plan.whole, plan.decimals)
    except InvalidOperation:
        return None
    sign = "-" if body.startswith("-") else ""
    return sign + plan.lead + body.removeprefix("-") + plan.tail


@lru_cache(maxsize=4096)
def _plan(section: str) -> _Plan | None:
    spoken = _BRACKETS.sub("", _LOCALE.sub(lambda found: f'"{found[1]}"', section))
    literals: list[str] = []

    def keep(found: re.Match[str]) -> str:
        literals.append(found[1] or found[2] or "")
        return "\x00"

    def around(lead: str, tail: str) -> tuple[str, str]:
        count = lead.count("\x00")
        before, after = _with_literals(lead, literals[:count]), _with_literals(tail, literals[count:])
        return before.lstrip(), after.rstrip()

    bare = _LITERAL.sub(keep, spoken)
    if "general" in bare.lower():
        start = bare.lower().index("general")
        return _Plan(*around(bare[:start], bare[start + 7 :]), general=True)
    found = _PLACES.search(bare)
    if found is None:
        return _Plan(*around(bare, ""), digits=False) if "@" not in bare else None
    lead, pattern, tail = bare[: found.start()], found[0], bare[found.end() :]
    if "/" in tail or _PLACES.search(tail.removeprefix("E+").removeprefix("E-").lstrip("0#?")):
        return None
    whole, _, decimals = pattern.rstrip(",").partition(".")
    exponent = re.match(r"E[+-](0+)", tail)
    factor = Decimal(100) ** (lead + tail).count("%") / Decimal(1000) ** (len(pattern) - len(pattern.rstrip(",")))
    lead, tail = around(lead, tail[exponent.end() :] if exponent else tail)
    return _Plan(lead, tail, True, False, whole, decimals, factor, len(exponent[1]) if exponent else 0)


def _fixed(amount: Decimal, whole: str, decimals: str) -> str:
    places = min(len(decimals), _MAX_PLACES)
    rounded = amount.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)
    body = f"{rounded:,.{places}f}" if "," in whole else f"{rounded:.{places}f}"
    optional = len(decimals) - len(decimals.rstrip("#?"))
    for _ in range(optional):
        if not body.endswith("0") or "." not in body:
            break
        body = body[:-1]
    body = body.rstrip(".")
    if not rounded:
        body = body.removeprefix("-")
    width = whole.replace(",", "").count("0")
    sign, digits = ("-", body[1:]) if body.startswith("-") else ("", body)
    front, dot, back = digits.partition(".")
    return sign + front.rjust(width, "0") + dot + back


def _scientific(amount: Decimal, places: int, width: int) -> str:
    mantissa, _, power = f"{amount:.{min(places, _MAX_PLACES)}E}".partition("E")
    return f"{mantissa}E{power[0]}{power[1:].rjust(width, '0')}"


def _with_literals(text: str, literals: list[str]) -> str:
    parts = text.split("\x00")
    return _BLANKS.sub(" ", "".join(a + b for a, b in zip(parts, [*literals, ""], strict=True)))
