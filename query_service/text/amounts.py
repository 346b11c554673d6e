"""Quantities in a clause: amounts, durations, distances, shares, counts, dates, times of day, versions; and when two of
them cannot both be true. English and German well, French and Spanish units too. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from query_service.text.topics import stem

Bound = Literal["exact", "most", "least"]
EQUAL = 0.02  # relative: 90 days are three months
ROUGHLY = 0.25  # where the clause says "about"
NEVER = float("inf")

_DAY = 86_400.0
_UNITS: dict[str, tuple[str, float]] = {
    name: (dimension, factor)
    for dimension, factor, names in (
        ("time", 0.001, "ms millisecond milliseconds"),
        ("time", 1.0, "s sec secs second seconds sekunde sekunden seconde secondes segundo segundos"),
        ("time", 60.0, "min mins minute minutes minuten minuto minutos"),
        ("time", 3600.0, "h hr hrs hour hours stunde stunden heure heures hora horas"),
        ("time", _DAY, "d day days night nights tag tage tagen jour jours día días dia dias"),
        ("time", 7 * _DAY, "week weeks woche wochen semaine semaines semana semanas"),
        ("time", 14 * _DAY, "fortnight fortnights"),
        ("time", 30.4375 * _DAY, "month months monat monate monaten mois mes meses"),
        ("time", 91.3125 * _DAY, "quarter quarters quartal quartale"),
        ("time", 365.25 * _DAY, "year years jahr jahre jahren an ans année années año años"),
        ("workday", 1.0, "workday workdays arbeitstag arbeitstage arbeitstagen werktag werktage werktagen"),
        ("eur", 1.0, "€ eur euro euros"),
        ("usd", 1.0, "$ usd dollar dollars"),
        ("gbp", 1.0, "£ gbp pound pounds"),
        ("nok", 1.0, "nok kroner kronor"),
        ("chf", 1.0, "chf francs franken"),
        ("length", 0.001, "mm"),
        ("length", 0.01, "cm centimetre centimetres centimeter centimeters zentimeter"),
        ("length", 1.0, "m metre metres meter meters metern mètre mètres metro metros"),
        ("length", 1000.0, "km kilometre kilometres kilometer kilometers kilometern kilomètres kilómetros"),
        ("length", 1609.344, "mile miles"),
        ("length", 0.3048, "ft foot feet"),
        ("share", 1.0, "% percent prozent pourcent"),
        ("celsius", 1.0, "°c celsius degree degrees grad"),
        ("mass", 1.0, "g gram grams gramm"),
        ("mass", 1000.0, "kg kilo kilos kilogram kilograms kilogramm"),
        ("bytes", 1e3, "kb kib kilobyte kilobytes"),
        ("bytes", 1e6, "mb mib megabyte megabytes"),
        ("bytes", 1e9, "gb gib gigabyte gigabytes"),
        ("bytes", 1e12, "tb tib terabyte terabytes"),
    )
    for name in names.split()
}
MONEY = frozenset({"eur", "usd", "gbp", "nok", "chf"})
_WORDS: dict[str, float] = {
    word: value
    for value, words in (
        (0.5, "half halbe halben"), (1, "one ein eine einen einem einer un une uno una"), (2, "two zwei deux dos both"),
        (3, "three drei trois tres"), (4, "four vier quatre cuatro"), (5, "five fünf cinq cinco"),
        (6, "six sechs seis"), (7, "seven sieben sept siete"), (8, "eight acht huit ocho"), (9, "nine neun neuf nueve"),
        (10, "ten zehn dix diez"), (11, "eleven elf onze once_"), (12, "twelve zwölf douze doce dozen dutzend"),
        (13, "thirteen dreizehn"), (14, "fourteen vierzehn"), (15, "fifteen fünfzehn quinze quince"),
        (16, "sixteen sechzehn"), (18, "eighteen achtzehn"), (20, "twenty zwanzig vingt veinte"),
        (24, "vierundzwanzig"), (25, "fünfundzwanzig"), (30, "thirty dreißig trente treinta"), (40, "forty vierzig"),
        (45, "fünfundvierzig"), (50, "fifty fünfzig"), (60, "sixty sechzig"), (90, "ninety neunzig"),
        (100, "hundred hundert cent cien"), (1000, "thousand tausend mille mil"),
    )
    for word in words.split()
}  # fmt: skip
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar janvier enero jan", "february februar février febrero feb", "march märz mars marzo mar",
            "april avril abril apr", "may mai mayo", "june juni juin junio jun", "july juli juillet julio jul",
            "august août agosto aug", "september septembre septiembre sep sept", "october oktober octobre octubre oct",
            "november novembre noviembre nov", "december dezember décembre diciembre dec",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_WEEKDAYS = {
    name: number
    for number, names in enumerate(
        ("monday montag", "tuesday dienstag", "wednesday mittwoch", "thursday donnerstag", "friday freitag",
         "saturday samstag", "sunday sonntag")
    )
    for name in names.split()
}  # fmt: skip
_DIGITS = r"(?<![\w.,/\-−])[±]?[-−]?\d+(?:[.,  ]\d{3})*(?:[.,]\d+)?(?![\w]*-[\w])"
_MOST = (
    r"up to|at most|(?:no|not) more than|max(?:imum|imal)?\.?(?: of)?|within|under|below|(?:less|fewer) than|"
    r"limit(?:ed)? (?:to|of|is)|"
    r"(?:not |never )?exceed(?:s|ing)?|no longer than|höchstens|bis zu|innerhalb(?: von)?|binnen|unter|weniger als|"
    r"nicht mehr als|au plus|jusqu'à|moins de|como máximo|hasta|menos de"
)
_LEAST = (
    r"at least|min(?:imum|destens|imal)?\.?(?: of)?|no(?:t)? (?:less|fewer) than|more than|over|above|longer than|"
    r"mehr als|über|wenigstens|au moins|plus de|al menos|como mínimo|más de"
)
_ABOUT = (
    r"about|around|approximately|roughly|some|usually|normally|typically|circa|ca\.|etwa|rund|ungefähr|environ|unos"
)
_EVERY = r"every|each|alle|jede[nrs]?|toutes? les|chaque|tous les|cada"
_PER = re.compile(
    r"\s*(?:(?:a|an|per|each|every|pro|im|je|par|por|al)\s+|/\s*)(second|minute|hour|day|week|month|quarter|year|sekunde|minute|stunde|"
    r"tag|woche|monat|jahr|heure|jour|semaine|mois|an|día|semana|mes|año|person|user|case|head|item|night|fall|nacht)\b",
    re.IGNORECASE,
)
_PERIODS = {
    "hourly": 3600.0, "daily": _DAY, "weekly": 7 * _DAY, "biweekly": 14 * _DAY, "fortnightly": 14 * _DAY,
    "monthly": 30.4375 * _DAY, "quarterly": 91.3125 * _DAY, "yearly": 365.25 * _DAY, "annually": 365.25 * _DAY,
    "stündlich": 3600.0, "täglich": _DAY, "wöchentlich": 7 * _DAY, "monatlich": 30.4375 * _DAY,
    "vierteljährlich": 91.3125 * _DAY, "jährlich": 365.25 * _DAY,
}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """``value`` in the base unit of ``dimension`` (seconds, metres, grams, bytes, days of the year, minutes of the
    day; versions by ``name``). ``every``: how often something happens. ``name`` is what is counted, or the version."""

    dimension: str
    value: float
    bound: Bound = "exact"
    about: bool = False
    every: bool = False
    per: str = ""
    name: str = ""
    start: int = 0


def quantities(text: str) -> list[Quantity]:
    """All of a clause, in order."""
    found: list[Quantity] = []
    taken: list[tuple[int, int]] = []

    def free(match: re.Match[str]) -> bool:
        if any(match.start() < end and start < match.end() for start, end in taken):
            return False
        taken.append(match.span())
        return True

    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that grows: places would not fit
        lowered = text
    for match in _version().finditer(text):
        if free(match):
            found.append(Quantity("version", 0.0, name=match["v"].lower().rstrip("."), start=match.start()))
    for match in _date().finditer(lowered):
        if free(match):
            found.append(_dated(match))
    for match in _clock().finditer(lowered):
        if free(match):
            found.append(_timed(match))
    for match in _often().finditer(lowered):
        if free(match):
            found.append(_frequency(match))
    for match in _numbered().finditer(lowered):
        if free(match) and (one := _measured(lowered, match)) is not None:
            found.append(one)
    for match in re.finditer(rf"\b({'|'.join(_WEEKDAYS)})s?\b", lowered):
        if free(match):
            found.append(Quantity("weekday", float(_WEEKDAYS[match[1]]), start=match.start()))
    return sorted(found, key=lambda q: q.start)


def differ(one: Quantity, other: Quantity) -> bool:
    """Whether both cannot be true of the same thing. Quantities of unlike kinds never differ."""
    if one.dimension != other.dimension or one.every != other.every:
        return False
    if one.per and other.per and one.per != other.per:
        return False
    if one.dimension in ("version", "count"):
        if one.dimension == "version":
            return one.name != other.name
        if not set(one.name.split()) & set(other.name.split()):
            return False
    if equal(one, other):
        return False
    tolerance = 1.0 + (ROUGHLY if one.about or other.about else EQUAL)
    low, high = sorted((one.value, other.value))
    if high <= low * tolerance if low > 0 else high == low:
        return False
    if one.bound == other.bound:
        return True
    if one.bound == "exact" or other.bound == "exact":
        exact, bounded = (one, other) if one.bound == "exact" else (other, one)
        return exact.value > bounded.value if bounded.bound == "most" else exact.value < bounded.value
    most, least = (one, other) if one.bound == "most" else (other, one)
    return most.value < least.value


def equal(one: Quantity, other: Quantity) -> bool:
    """The same value of the same kind."""
    if one.dimension != other.dimension or one.name != other.name:
        return False
    low, high = sorted((one.value, other.value))
    return low == high or (low > 0 and high <= low * (1.0 + EQUAL))


def between(middle: Quantity, one: Quantity, other: Quantity) -> bool:
    """Whether two statements give different answers for a case of this size."""
    if not middle.dimension == one.dimension == other.dimension:
        return False
    low, high = sorted((one.value, other.value))
    return low < middle.value <= high


# ---------------------------------------------------------------- reading


@cache
def _numbered() -> re.Pattern[str]:
    words = "|".join(sorted((w for w in _WORDS if not w.endswith("_")), key=len, reverse=True))
    number = rf"(?P<number>{_DIGITS}|\b(?:{words})(?:[\s-]+(?:and a half|{words}))*\b)"
    units = "|".join(sorted((re.escape(u) for u in _UNITS), key=len, reverse=True))
    return re.compile(
        rf"(?:(?P<before>{_MOST}|{_LEAST}|{_ABOUT})[:\s]+(?:(?:the|a|an|of|is|den|der|die)\s+)?)?(?:(?P<about>{_ABOUT})\s+)?"
        rf"(?:(?P<every>{_EVERY})[:\s]+)?(?P<symbol>[€$£])?\s?{number}"
        rf"(?:\s?(?:-|–|to|bis)\s?(?P<upper>\d+(?:[.,]\d+)?)(?!\w))?(?P<half>\s+(?:and a half|einhalb))?"
        rf"(?:[\s-]?(?P<unit>{units})(?![\w-])|\s+(?P<work>(?:working|business|work)\s+days?)\b|"
        r"(?P<noun>(?:[\s-]+[a-zäöüßéèñáíóú]{3,}){1,3}))?"
        r"(?P<after>\s+(?:or (?:more|less|fewer|older|longer)|at (?:most|least)|maximum|minimum|"
        r"oder mehr|oder weniger)\b)?",
    )


def _measured(text: str, match: re.Match[str]) -> Quantity | None:
    value = _value(match["number"])
    if value is None:
        return None
    if match["half"]:
        value += 0.5
    before, after = match["before"] or "", match["after"] or ""
    bound: Bound = "exact"
    if (before and re.fullmatch(_MOST, before)) or re.search(r"less|fewer|most|maximum|weniger", after):
        bound = "most"
    elif (before and re.fullmatch(_LEAST, before)) or re.search(r"more|least|minimum|longer|older|mehr", after):
        bound = "least"
    if match["upper"]:
        upper = _value(match["upper"])
        value = upper if upper is not None else value
        bound = "most" if bound == "exact" else bound
    about = bool(match["about"]) or bool(before and re.fullmatch(_ABOUT, before))
    end = match.end("unit") if match["unit"] else match.end("work") if match["work"] else match.end("number")
    per = _PER.match(text, end)
    unit = _UNITS.get(match["unit"] or match["symbol"] or "")
    name, every = "", bool(match["every"])
    if match["work"]:
        dimension, factor = "workday", 1.0
    elif unit is not None:
        dimension, factor = unit
    elif match["noun"]:
        dimension, factor = "count", 1.0
        name = " ".join(sorted({stem(w) for w in re.split(r"[\s-]+", match["noun"].strip()) if w not in _no_noun()}))
        if not name or match["number"] in ("one", "un", "une", "ein", "eine", "einen", "einem", "einer", "uno", "una"):
            return None
    else:
        dimension, factor = "number", 1.0
    return Quantity(
        dimension, value * factor, bound, about, every, per[1].lower() if per else "", name, match.start("number")
    )


_NO_NOUN = """
the and for with are was were not but who that this than then per from into over each has have can may must more und die
der das für mit von pro aus bei ist sind
"""


@cache
def _no_noun() -> frozenset[str]:
    return frozenset(_NO_NOUN.split())


def _value(text: str) -> float | None:
    bare = text.strip("± ").replace("−", "-").replace(" ", "").replace(" ", "")
    if re.fullmatch(r"-?\d{1,3}(?:[.,]\d{3})+", bare) and not bare.lstrip("-").startswith("0"):
        return float(re.sub(r"[.,]", "", bare))
    if re.fullmatch(r"-?\d+(?:[.,]\d{3})*[.,]\d+|-?\d+", bare):
        *whole, last = re.split(r"[.,]", bare)
        return float("".join(whole) + "." + last) if whole else float(last)
    total = 0.0
    for word in re.split(r"[\s-]+", text.replace("and a half", "half")):
        value = _WORDS.get(word)
        if value is None:
            return None
        total = total * value if value >= 100 and total else total + value
    return total


@cache
def _version() -> re.Pattern[str]:
    return re.compile(
        r"(?<![\w.])(?:[vV](?:ersion\s)?|[Vv]ersion\s+|[Rr]elease\s+)(?P<v>\d+(?:\.\d+)+[\w.-]*|\d+(?=\b))"
    )


@cache
def _date() -> re.Pattern[str]:
    months = "|".join(sorted(_MONTHS, key=len, reverse=True))
    return re.compile(
        rf"(?<!\d)(?P<y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d)(?!\d)|\b(?P<d2>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?"
        rf"(?P<m2>{months})\b(?:,?\s+(?P<y2>\d{{4}}))?|\b(?P<m3>{months})\s+(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b"
        rf"(?!:)(?:,?\s+(?P<y3>\d{{4}}))?"
    )


def _dated(match: re.Match[str]) -> Quantity:
    """Day of a year of 31-day months; the year in the name is not compared, since often only one side says it."""
    if match["y"]:
        month, day = int(match["m"]), int(match["d"])
    elif match["m2"]:
        month, day = _MONTHS[match["m2"]], int(match["d2"])
    else:
        month, day = _MONTHS[match["m3"]], int(match["d3"])
    return Quantity("date", month * 31.0 + day, start=match.start())


@cache
def _clock() -> re.Pattern[str]:
    return re.compile(
        r"(?<![\d:.])(?P<h>\d{1,2}):(?P<m>\d\d)(?![\d:])(?:\s?(?P<ap>[ap])\.?m\b)?|"
        r"(?<![\d:.])(?P<h2>\d{1,2})\s?(?P<ap2>[ap])\.?m\b|(?<![\d:.])(?P<h3>\d{1,2})\s+uhr\b"
    )


def _timed(match: re.Match[str]) -> Quantity:
    hour = int(match["h"] or match["h2"] or match["h3"])
    half = match["ap"] or match["ap2"]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Quantity("clock", hour * 60.0 + int(match["m"] or 0), start=match.start())


@cache
def _often() -> re.Pattern[str]:
    units = "|".join(sorted((u for u, (d, _) in _UNITS.items() if d == "time" and len(u) > 2), key=len, reverse=True))
    return re.compile(
        rf"\b(?P<adverb>{'|'.join(_PERIODS)})\b|\b(?P<never>never|nie(?:mals)?|jamais|nunca)\b|"
        rf"\b(?:(?P<once>once|einmal)|(?P<twice>twice|zweimal)|(?P<times>\w+)\s+times)\s+(?:a|an|per|each|every|in|pro|im)\s+(?P<of>{units})\b|"
        rf"\b(?:{_EVERY})\s+(?P<other>other\s+|second\s+)?(?P<unit>{units})\b"
    )


def _frequency(match: re.Match[str]) -> Quantity:
    if match["adverb"]:
        value = _PERIODS[match["adverb"]]
    elif match["never"]:
        value = NEVER
    elif match["of"]:
        times = 1.0 if match["once"] else 2.0 if match["twice"] else (_value(match["times"]) or 1.0)
        value = _UNITS[match["of"]][1] / times
    else:
        value = _UNITS[match["unit"]][1] * (2.0 if match["other"] else 1.0)
    return Quantity("time", value, every=True, start=match.start())


def any_differs(some: list[Quantity], others: list[Quantity]) -> list[tuple[Quantity, Quantity]]:
    """The pairs that differ, of two clauses, unless they say the same of that dimension as well."""

    def agree(dimension: str, every: bool) -> bool:
        same = [(c, d) for c, d in product(some, others) if c.dimension == dimension and c.every == every]
        return any(equal(c, d) and c.bound == d.bound for c, d in same)

    return [(a, b) for a, b in product(some, others) if differ(a, b) and not agree(a.dimension, a.every)]
