"""Words of queries: what is content, and what of a generator's text may become a query."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from pipeline import analysis

LONGEST = 300  # characters of a generated query
MOST_WORDS = 48
_STOP = """
a an and any are as at be been both but by can could did do does either else for from had has have he her his how i if
in into is it its just like many may me might much must my no nor not of on or our out shall she should so some such
than that the their them then there these they this those to too us versus vs was we were what when where
whether which while who whom whose why will with would you your until since about between difference differences
compare compared comparison
aber alle als am an auch auf aus bei bis da damit das dass dem den der deren des dessen die dies diese diesem diesen
dieser dieses doch dort durch ein eine einem einen einer eines er es für hat haben hatte hätte ich ihr ihre im in ist
ja kann können man mit muss müssen nach nicht noch nur ob oder sein seine sich sie sind so soll sowie sowohl über um und
uns unser unter vom von vor war waren warum was weder wegen weil welche welchem welchen welcher welches wenn wer werden
wessen wie wieviel wird wir wo wofür womit würde zu zum zur zwischen unterschied unterschiede vergleich entweder
"""
_MARKS = re.compile('["\u201c\u201e\u201d\u00ab\u00bb`]')
_LEAD = re.compile(r"^(?:[-*•–]|\(?\d{1,2}[.):]|\(?[a-z][.)])\s+")
_LABEL = re.compile(r"^(?:query|question|search|follow-?up|anfrage|frage|suche)\s*\d*\s*[:=]\s*", re.IGNORECASE)
_FENCE = re.compile(r"^```[\w-]*\n(.*?)\n?```$", re.DOTALL)
# A model that declines or talks about itself instead of writing queries.
_TALK = re.compile(
    r"^(?:(?:i'?m|i am) (?:sorry|unable|an? ai)|i (?:cannot|can't|can not|won't|apologi[sz]e)|sorry\b|sure\b|"
    r"certainly\b|here (?:are|is)\b|as an ai\b|ich kann (?:das|dir|ihnen|dabei) nicht|"
    r"leider\b|hier (?:sind|ist)\b|gerne?[,!:])|:$",
    re.IGNORECASE,
)
_UNFIT = re.compile(r"[<>{}\[\]|\\]")


@cache
def _stop() -> frozenset[str]:
    return frozenset(analysis.tokens(_STOP))


def content(text: str) -> list[str]:
    """Analysed tokens that say what is asked for, in order, each once."""
    return [t for t in dict.fromkeys(analysis.tokens(text)) if t not in _stop()]


def content_words(text: str) -> list[str]:
    """The same as they are spelt."""
    found: dict[str, None] = {}
    for word in text.split():
        bare = word.strip(".,;:!?()\"'\u201c\u201d\u201e\u00ab\u00bb")
        if bare and any(t not in _stop() for t in analysis.tokens(bare)):
            found.setdefault(bare, None)
    return list(found)


def same(one: str, other: str) -> bool:
    """Whether two queries ask for the same words."""
    return sorted(set(analysis.tokens(one))) == sorted(set(analysis.tokens(other)))


def query_of(text: object) -> str | None:
    """A generator's text as a query: one line without marks; None where it cannot be one.

    Quotation marks go: they would demand a phrase that nobody asked for.
    """
    if not isinstance(text, str) or "\n" in text.strip():
        return None
    shown = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in text)
    line = _LABEL.sub("", _LEAD.sub("", _MARKS.sub("", shown).strip())).strip()
    line = re.sub(r"\s+", " ", line)
    if not line or len(line) > LONGEST or len(line.split()) > MOST_WORDS or _UNFIT.search(line) or talks(line):
        return None
    return line if content(line) else None


def talks(text: str) -> bool:
    """Whether a model speaks of itself, or declines."""
    return _TALK.search(text) is not None


def queries_of(text: str) -> list[str]:
    """Queries in a generator's reply: a JSON list, an object with one, or a line each; empty where it is neither."""
    bare = text.strip()
    if fenced := _FENCE.match(bare):
        bare = fenced[1].strip()
    if bare[:1] in "[{":
        try:
            told = json.loads(bare)
        except (ValueError, RecursionError):
            return []
        if isinstance(told, dict):
            told = next((v for v in told.values() if isinstance(v, list)), list(told.values()))
        return [q for item in told if (q := query_of(item)) is not None] if isinstance(told, list) else []
    return [q for line in bare.splitlines() if (q := query_of(line)) is not None]


def distinct(queries: Iterable[str], than: str) -> list[str]:
    """Those that ask for other words than the query and than each other."""
    found: list[str] = []
    for query in queries:
        if not same(query, than) and not any(same(query, other) for other in found):
            found.append(query)
    return found
