"""Numbers, amounts, dates, units and versions, compared by what they mean: 10,000 = 10.000, 5 % = five percent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {
    name: unit
    for unit, names in {
        "ms": "ms millisecond milliseconds millisekunde millisekunden",
        "s": "s sec secs second seconds sekunde sekunden",
        "min": "min mins minute minutes minuten",
        "h": "h hr hrs hour hours stunde stunden uhr",
        "day": "day days tag tage tagen arbeitstag arbeitstage arbeitstagen werktag werktage werktagen",
        "week": "week weeks woche wochen",
        "month": "month months monat monate monaten",
        "year": "year years jahr jahre jahren",
        "%": "% percent prozent",
        "€": "€ eur euro euros",
        "$": "$ usd dollar dollars",
        "£": "£ gbp pound pounds",
        "cent": "cent cents ct",
        "point": "point points punkt punkte punkten prozentpunkt prozentpunkte prozentpunkten pp",
        "kb": "kb kib kilobyte kilobytes",
        "mb": "mb mib megabyte megabytes",
        "gb": "gb gib gigabyte gigabytes",
        "tb": "tb tib terabyte terabytes",
        "mm": "mm millimetre millimetres millimeter",
        "cm": "cm centimetre centimetres centimeter zentimeter",
        "m": "m metre metres meter meters",
        "km": "km kilometre kilometres kilometer kilometers",
        "g": "g gram grams gramm",
        "kg": "kg kilo kilos kilogram kilograms kilogramm",
        "t": "tonne tonnes tonnen",
        "lb": "lb lbs",
        "l": "litre litres liter liters litern",
        "ml": "ml millilitre millilitres milliliter",
        "gallon": "gallon gallons gallone gallonen",
        "mile": "mile miles meile meilen",
        "inch": "inch inches zoll",
        "foot": "foot feet",
        "hectare": "hectare hectares hektar",
        "degree": "° °c degree degrees celsius grad",
        "k": "kelvin",
        "v": "v volt volts",
        "a": "ampere amperes",
        "w": "w watt watts",
        "db": "db decibel",
        "km/h": "kmh kph",
        "mph": "mph",
        "knot": "knot knots knoten",
        "hz": "hz hertz",
        "kw": "kw kilowatt kilowatts",
        "kwh": "kwh",
        "m³": "m³ m3 kubikmeter kubikmetern",
        "times": "times mal x",
    }.items()
    for name in names.split()
}
_SMALL: Final = {
    name: float(value)
    for value, names in enumerate(
        ("zero null", "one eins", "two zwei", "three drei", "four vier", "five funf", "six sechs", "seven sieben",
         "eight acht", "nine neun", "ten zehn", "eleven elf", "twelve zwolf", "thirteen dreizehn", "fourteen vierzehn",
         "fifteen funfzehn", "sixteen sechzehn", "seventeen siebzehn", "eighteen achtzehn", "nineteen neunzehn"))
    for name in names.split()
}  # fmt: skip
_TENS: Final = {
    name: 10.0 * value
    for value, names in enumerate(
        ("twenty zwanzig", "thirty dreissig", "forty vierzig", "fifty funfzig", "sixty sechzig", "seventy siebzig",
         "eighty achtzig", "ninety neunzig"), 2)
    for name in names.split()
}  # fmt: skip
_SCALES: Final = {
    "hundred": 100.0,
    "hundert": 100.0,
    "thousand": 1000.0,
    "tausend": 1000.0,
    "million": 1e6,
    "dozen": 12.0,
}
_ORDINALS: Final = {
    name: value
    for value, names in enumerate(
        ("first 1st erste ersten erster erstes", "second 2nd zweite zweiten zweiter zweites",
         "third 3rd dritte dritten",
         "fourth 4th vierte vierten", "fifth 5th funfte funften", "sixth 6th", "seventh 7th", "eighth 8th", "ninth 9th",
         "tenth 10th"), 1)
    for name in names.split()
}  # fmt: skip
_TIMES: Final = {"once": 1.0, "twice": 2.0, "einmal": 1.0, "zweimal": 2.0, "dreimal": 3.0}
_GROUPED: Final = re.compile(r"\d{1,3}(?:([,.'\u2019\u00a0\u202f])\d{3})(?:\1\d{3})*")
_MEASURE: Final = re.compile(r"(\d+(?:[.,]\d+)?)([a-z°%€$]{1,2})")
_ADVERBS: Final = {
    "hourly": "h", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year", "annually": "year",
    "annual": "year", "stundlich": "h", "taglich": "day", "wochentlich": "week", "monatlich": "month",
    "jahrlich": "year",
}  # fmt: skip
ARTICLES: Final = frozenset(
    [
        "a",
        "an",
        "per",
        "each",
        "every",
        "ein",
        "eine",
        "einer",
        "einem",
        "einen",
        "pro",
        "je",
        "jede",
        "jeden",
        "jeder",
        "jedes",
    ]
)
_QUALIFIERS: Final = frozenset(
    ["working", "business", "full", "paid", "calendar", "whole", "more", "other", "small", "of", "percentage"]
)
ORDINAL: Final = "ordinal"


@dataclass(frozen=True)
class Quantity:
    """A number of a text. ``values``: what it may mean; a version, a time of day or the like is itself alone."""

    values: frozenset[float | str]
    unit: str | None

    def agrees(self, other: Quantity) -> bool:
        """Whether both may be the same number, and no units say otherwise."""
        return bool(self.values & other.values) and (self.unit == other.unit or None in (self.unit, other.unit))


def unit(word: str) -> str | None:
    """The unit that a folded word is."""
    return _UNITS.get(word)


def value(word: str) -> frozenset[float | str]:
    """What a folded word with digits, or a number word, may mean; empty where it is no number."""
    if word in _SMALL:
        return frozenset((_SMALL[word],))
    if word in _TENS:
        return frozenset((_TENS[word],))
    if word in _TIMES:
        return frozenset((_TIMES[word],))
    parts = word.split("-")
    if len(parts) == 2 and parts[0] in _TENS and parts[1] in _SMALL:
        return frozenset((_TENS[parts[0]] + _SMALL[parts[1]],))
    if not word[:1].isdigit():
        return frozenset()
    if word.isdigit():
        return frozenset((float(word),))
    found: set[float | str] = {word}
    if _GROUPED.fullmatch(word):
        found.add(float(re.sub(r"\D", "", word)))
    if re.fullmatch(r"\d+[.,]\d+", word):
        found.add(float(word.replace(",", ".")))
    return frozenset(found) if re.fullmatch(r"[\d.,:/'\u2019\u00a0\u202f-]+", word) else frozenset()


def quantities(words: list[str]) -> dict[int, Quantity]:
    """Quantities of folded words by the index of their first word."""
    found: dict[int, Quantity] = {}
    i = 0
    while i < len(words):
        word, at = words[i], i
        i += 1
        if word in _ORDINALS:
            found[at] = Quantity(frozenset((float(_ORDINALS[word]),)), ORDINAL)
            continue
        if word in _ADVERBS:  # weekly is every week
            found[at] = Quantity(frozenset((1.0,)), _ADVERBS[word])
            continue
        if word in ARTICLES and i < len(words) and len(words[i]) > 1 and words[i] in _UNITS:
            found[at] = Quantity(frozenset((1.0,)), _UNITS[words[i]])
            continue
        measure = _MEASURE.fullmatch(word)
        if measure and measure[2] in _UNITS:
            found[at] = Quantity(value(measure[1]), _UNITS[measure[2]])
            continue
        values = value(word)
        if not values:
            continue
        while i < len(words) and words[i] in _SCALES:
            values = frozenset(v * _SCALES[words[i]] for v in values if isinstance(v, float))
            i += 1
        if word in _TENS and i < len(words) and words[i] in _SMALL:
            values = frozenset((_TENS[word] + _SMALL[words[i]],))
            i += 1
        found[at] = Quantity(values, "times" if word in _TIMES else _unit_near(words, at, i))
    return found


def _unit_near(words: list[str], at: int, after: int) -> str | None:
    if at and words[at - 1] in ("€", "$", "£"):
        return _UNITS[words[at - 1]]
    if words[after : after + 2] in (["km", "h"], ["m", "s"]):  # km/h, taken apart
        return "/".join(words[after : after + 2])
    for word in words[after : after + 2]:
        if word in _UNITS:
            return _UNITS[word]
        if word not in _QUALIFIERS:
            return None
    return None
