"""What a question wants to know, and the words by which statements oppose or limit each other: opposites, remarks on
other pages, names of places, products and years. English and German well, French and Spanish in part. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from pipeline import analysis
from query_service.text.amounts import MONEY, Quantity, quantities
from query_service.text.topics import stem

# Sides of one coin: words of one row and the other on two sides are an opposition.
_OPPOSITES: tuple[tuple[str, str], ...] = (
    ("allowed permitted may can possible erlaubt zulässig darf dürfen",
     "forbidden prohibited banned disallowed verboten untersagt unzulässig"),
    ("required mandatory must obligatory compulsory needed verpflichtend pflicht muss müssen",
     "optional voluntary unnecessary freiwillig"),
    ("enabled active on", "disabled inactive off deactivated"),
    ("always immer", "never nie niemals"),
    ("supported", "unsupported deprecated discontinued"),
    ("included inclusive", "excluded exclusive"),
    ("free gratis kostenlos", "charged paid chargeable kostenpflichtig"),
    ("open opened", "closed"),
    ("public", "private confidential secret"),
    ("automatic automatically automated automatisch", "manual manually manuell"),
    ("accepted accept approve approved", "rejected reject refused declined"),
    ("before vor", "after nach"),
    ("encrypted", "unencrypted plaintext"),
    ("valid gültig", "invalid expired ungültig"),
    ("increase increased rises", "decrease decreased falls"),
)  # fmt: skip
# A page that says of another one that it differs.
_DECLARED = re.compile(
    r"\b(?:gives?|says?|asks? for|names?|shows?|states?|works? with|lists?|mentions?)\b[^.]{0,40}\b(?:another|"
    r"a different|a (?:lower|higher|longer|shorter)|(?:some|many)?thing else|otherwise|more|fewer|less)\b|"
    r"\bwhere the (?:two|pages) (?:differ|disagree)|\buntil the (?:two |pages )*(?:agree|match)|"
    r"\b(?:contradicts?|disagrees? with|conflicts? with|in conflict with|is inconsistent with)\b|"
    r"\bwiderspricht\b|\b(?:nennt|gibt|sagt)\b[^.]{0,40}\bandere[rns]?\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\W*(?:if|in case|wenn|falls|si)\b", re.IGNORECASE)
_OTHER_PAGE = re.compile(
    r"\b(?:page|guide|handbook|leaflet|document|schedule|policy|wiki|manual|notice|rules?|table|article|figure|limit|"
    r"seite|handbuch|richtlinie|merkblatt)\b",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^\W*(?:(?:and|so|but)\s+)?(?:is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have|am|need|"
    r"ist|sind|darf|dürfen|kann|können|muss|müssen|soll|hat|haben|gibt|est-ce|peut-on|puede|hay)\b|,\s*(?:may|can|must|do)\b",
    re.IGNORECASE,
)
_HOW_OFTEN = re.compile(r"\bhow (?:often|frequently)|wie oft|à quelle fréquence|cada cuánto", re.IGNORECASE)
_TIME = re.compile(
    r"\bhow (?:long|soon|fast|quickly|old)|\bhow many (?:\w+ )?(?:seconds|minutes|hours|days|nights|weeks|months|"
    r"years)|"
    r"wie (?:lange|schnell|viele (?:\w+ )?(?:tage|stunden|wochen|monate|minuten|jahre))|"
    r"combien de (?:temps|jours|mois)|cuánto tiempo|\bdeadline|notice period|frist",
    re.IGNORECASE,
)
_WHEN = re.compile(r"\bwhen\b|what (?:time|date|day)|which (?:day|date)|\bwann\b|quand|cuándo", re.IGNORECASE)
_MONEY = re.compile(
    r"\bhow much (?:money|does|do|may|can|is|will|goodwill|credit)|\b(?:price|cost|fee|salary|budget|allowance|sum|"
    r"spend|amount)\b|wie ?viel|was kostet|combien|cuánto",
    re.IGNORECASE,
)
_LENGTH = re.compile(
    r"\bhow (?:far|tall|deep|wide|high)|\bhow long (?:is|may|can) the (?:cable|\w*line)|distance|wie (?:weit|hoch)",
    re.IGNORECASE,
)
_ANY = re.compile(
    r"\bhow (?:many|much|large|big|hot|cold|heavy)|\b(?:limit|maximum|minimum|threshold|quota|share|percentage|"
    r"percent|rate|number|size|temperature|range|value|interval|timeout|retention|port)\b|wie ?viele?|"
    r"grenz\w+|höchst\w+|mindest\w+",
    re.IGNORECASE,
)  # fmt: skip
_VERSION = re.compile(r"\b(?:which|what) (?:\w+ )?(?:version|release)|welche version", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_NAMED = re.compile(r"(?<=[a-zäöüß0-9,;(] )[A-ZÄÖÜ][\w’'-]+")
_GERMAN = re.compile(r"\b(?:der|die|das|und|ist|sind|wird|werden|haben|dürfen|kann|im|dauert|gibt|nicht|eine?)\b")
_PLACE = re.compile(r"\b(?:[Ii]n|[Aa]us|[Nn]ach) ([A-ZÄÖÜ][\w-]+)")
_SHORT = re.compile(r"(?<![\w-])[A-Z]{2,4}(?![\w-])")  # EU, US, APAC


_NO_SCOPE = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december eur usd gbp nok
"""
# Kinds of page: two of them about one thing are what contradicts.
_PAGE_KINDS = """
rules rule standard policy guide page handbook leaflet schedule overview faq manual notes note wiki article reference
document instructions procedure runbook old new
"""


@dataclass(frozen=True)
class Asked:
    """``dimensions``: kinds of quantity that answer the question; None is any, empty is none."""

    dimensions: frozenset[str] | None
    often: bool
    yes_no: bool
    quantities: tuple[Quantity, ...]
    scope: frozenset[str]

    @staticmethod
    @cache
    def of(question: str) -> Asked:
        yes_no = bool(_YES_NO.search(question))
        often = bool(_HOW_OFTEN.search(question))
        dimensions: frozenset[str] | None = frozenset()
        if often:
            dimensions = frozenset({"time"})
        elif _LENGTH.search(question):
            dimensions = frozenset({"length"})
        elif _TIME.search(question):
            dimensions = frozenset({"time", "workday", "date", "clock"})
        elif _VERSION.search(question):
            dimensions = frozenset({"version"})
        elif _MONEY.search(question):
            dimensions = MONEY | {"share"}
        elif _WHEN.search(question):
            dimensions = frozenset({"time", "workday", "date", "clock", "weekday"})
        elif _ANY.search(question) or yes_no:
            dimensions = None
        return Asked(dimensions, often, yes_no, tuple(quantities(question)), special(question))


@cache
def _opposites() -> dict[str, int]:
    found: dict[str, int] = {}
    for number, (one, other) in enumerate(_OPPOSITES, 1):
        found.update(dict.fromkeys(analysis.tokens(one), number))
        found.update(dict.fromkeys(analysis.tokens(other), -number))
    return found


def sides(text: str) -> frozenset[int]:
    return frozenset(n for token in analysis.tokens(text) if (n := _opposites().get(token)) is not None)


def names(text: str) -> frozenset[str]:
    """Capitalised words that do not begin it; in German, where nouns have capitals, only what stands like a place."""
    if _GERMAN.search(text):
        return frozenset(token for m in _PLACE.finditer(text) for token in analysis.tokens(m[1])[:1])
    plain = [m.group() for m in _NAMED.finditer(text) if not any(c.isdigit() for c in m.group())]
    found = {token for name in plain for token in analysis.tokens(name)[:1]}
    return frozenset(found - _plain_names())


def special(text: str) -> frozenset[str]:
    """Identifiers and places by their short names."""
    short = {m.group().lower() for m in _SHORT.finditer(text)}
    return frozenset((short - _plain_names()) | set(analysis.identifiers(text)))


@cache
def _plain_names() -> frozenset[str]:
    return frozenset(_NO_SCOPE.split())


@cache
def page_kinds() -> frozenset[str]:
    """Stems of words for kinds of page."""
    return frozenset(stem(word) for word in _PAGE_KINDS.split())


def years(text: str) -> frozenset[str]:
    """Years of four digits."""
    return frozenset(_YEAR.findall(text))


def declares(sentence: str, clause: str) -> bool:
    """Whether a page says of another one that it gives a different answer; "if they differ" says nothing."""
    if _CONDITION.match(sentence):
        return False
    return _DECLARED.search(clause) is not None and _OTHER_PAGE.search(clause) is not None
