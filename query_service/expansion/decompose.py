"""A question in parts, by rules: no generator, the same parts each time, and no word that the question lacks.

    several questions ▸ joined clauses ▸ comparisons ▸ relative clauses

English and German. Where no rule fits there are no parts, and the question is asked as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline import analysis
from query_service.expansion.words import content, content_words, distinct

LONGEST = 500  # characters of a question that is looked at: the time of the rules grows with a power of its length
LEAST_CONTENT = 2  # words of a part that is no identifier
CONTEXT = 3  # content words that a part with a pronoun borrows from the first one
_FLAGS = re.IGNORECASE
_QUOTED = re.compile('["\u201c\u201e\u00ab][^"\u201c\u201d\u201e\u00ab\u00bb]+["\u201c\u201d\u00bb]')
_HIDDEN = re.compile("\ue000(\\d+)\ue001")

_ASKS = (
    r"who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|can|could|may|must|should|will|would|"
    r"until\s+when|since\s+when|(?:in|on|at|by|for|from|to|with|under|of)\s+(?:which|what|whom|whose)|"
    r"wer|wen|wem|wessen|was|welche[rsmn]?|wann|wo|woher|wohin|warum|wieso|weshalb|wie|wieviele?|womit|wofür|wodurch|"
    r"ist|sind|war|waren|hat|haben|kann|können|darf|dürfen|muss|müssen|soll|sollen|wird|werden|"
    r"(?:bis|seit|ab)\s+wann|(?:in|an|auf|bei|mit|von|zu|für|aus|unter)\s+(?:welche[rsmn]?|wem|wen|was)"
)
_AND = r"and(?:\s+also|\s+then)?|or|but|as\s+well\s+as|und(?:\s+auch)?|oder|sowie|aber"
_SENTENCES = re.compile(r"(?<=[?\uff1f])\s*|;\s+|(?<=[.!])\s+(?=[A-ZÄÖÜ])")
_JOINED = re.compile(rf"\s*,?\s+(?:{_AND})\s+(?=(?:{_ASKS})\b)|\s*,\s+(?=(?:{_ASKS})\b[^,]+\?)", _FLAGS)

_VERSUS = re.compile(r"^(?P<head>.*?)(?P<a>[^,:]+?)\s+(?:vs\.?|versus|gegenüber)\s+(?P<b>[^,?]+)(?P<tail>.*)$", _FLAGS)
_BETWEEN = re.compile(
    r"^(?P<head>.*?)\b(?:between|zwischen)\s+(?P<a>.+?)\s+(?:and|und)\s+(?P<b>.+?)"
    r"(?P<tail>\s+(?:in|for|when|regarding|with|at|bei|für|im|wenn|hinsichtlich)\s.*)?[?.!]*$",
    _FLAGS,
)
_COMPARE = re.compile(
    r"^(?P<head>.*?)\b(?:compare[sd]?|vergleiche?)\s+(?P<a>.+?)\s+(?:with|to|and|against|mit|und)\s+(?P<b>.+?)"
    r"(?P<tail>\s+(?:in|for|when|regarding|bei|für|hinsichtlich)\s.*)?[?.!]*$",
    _FLAGS,
)
_THAN = re.compile(
    r"^(?P<head>(?:is|are|was|were|does|do|ist|sind|war|hat)\s+)(?P<a>.+?)\s+"
    r"(?P<tail>(?:more\s+|less\s+)?[\w-]+)\s+(?:than|als)\s+(?P<b>[^,?]+)[?.!]*$",
    _FLAGS,
)
_BOTH = re.compile(
    r"^(?P<head>.*?)\b(?:both|either|sowohl|entweder)\s+(?P<a>.+?)\s+(?:and|or|als\s+auch|oder|und)\s+(?P<b>[^,?]+)"
    r"(?P<tail>)[?.!]*$",
    _FLAGS,
)
_CHOICE = re.compile(r"^(?P<head>.+?[,:])\s*(?P<a>[^,:]+?)\s*,?\s+(?:or|oder)\s+(?P<b>[^,?]+)(?P<tail>)[?.!]*$", _FLAGS)
_EACH = re.compile(
    r"^(?P<head>.+?)\b(?P<p>for|of|in|on|at|from|with|für|von|in|bei|mit|aus)\s+(?P<a>[^,]+?)\s+(?:and|or|und|oder)\s+"
    r"(?P=p)\s+(?P<b>[^,?]+)(?P<tail>)[?.!]*$",
    _FLAGS,
)
_COMPARED = (_VERSUS, _BETWEEN, _COMPARE, _THAN, _BOTH, _CHOICE, _EACH)

_PREPOSITION = r"(?:(?:in|on|of|for|to|from|with|by|at|under|about)\s+)?"
_ENGLISH = re.compile(
    rf"\b(?:the|a|an|those|any|every|each)\s+(?P<noun>(?:[\w-]+\s+){{0,2}}?[\w-]+),?\s+"
    rf"{_PREPOSITION}(?:which|who|whom|whose|that|where)\s+(?P<clause>[^,?;:]+)",
    _FLAGS,
)
_GERMAN = re.compile(
    r"\b(?:der|die|das|dem|den|des|ein\w{0,2}|jene\w?|diejenige\w?)\s+(?P<noun>(?:[\w-]+\s+){0,2}?[\w-]+),\s+"
    r"(?:(?:in|auf|an|mit|von|zu|für|bei|aus|über|durch|unter)\s+)?"
    r"(?:der|die|das|dem|den|deren|dessen|denen|welche[rsmn]?)\s+(?P<clause>[^,?;:]+)",
    _FLAGS,
)
_PRONOUN = re.compile(
    r"\b(?:it|its|they|their|them|he|his|him|she|her|this|that|these|those|there|one|ones|"
    r"er|sie|es|ihr|ihre[nrms]?|seine?[nrms]?|diese[nrms]?|dort|damit|dafür|davon|daran)\b",
    _FLAGS,
)


def parts(query: str, limit: int) -> list[str]:
    """At most ``limit`` parts of a question, each asking for less than all of it, in its own words; none of one that is
    longer than LONGEST. Pure."""
    query = " ".join(query.split())  # long gaps would cost the rules minutes
    if len(query) > LONGEST:
        return []
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match.group())
        return f"\ue000{len(hidden) - 1}\ue001"

    text = _QUOTED.sub(hide, query.replace("\ue000", " ").replace("\ue001", " "))
    fit: list[str] = []
    for part, least in _all(text):
        shown = _trimmed(_HIDDEN.sub(lambda m: hidden[int(m[1])], part))
        if len(content(shown)) >= least or analysis.identifiers(shown):
            fit.append(shown)
    return distinct(fit, query)[:limit]


def _all(text: str) -> Iterator[tuple[str, int]]:
    """Parts, each with the content words that it must have at least: a side of a comparison may be one name."""
    sentences = [s.strip() for s in _SENTENCES.split(text) if content(s)]
    clauses = [c.strip() for s in sentences for c in _JOINED.split(s) if content(c)]
    first = content_words(clauses[0])[:CONTEXT] if clauses else []
    if len(clauses) > 1:
        for number, clause in enumerate(clauses):
            yield _in_context(clause, first) if number else clause, LEAST_CONTENT
    for clause in clauses:
        yield from ((part, 1) for part in _compared(clause))
    for clause in clauses:
        yield from ((part, LEAST_CONTENT) for part in _relative(clause))


def _in_context(clause: str, first: list[str]) -> str:
    """The clause, with the subject's words where it only points at them or says little by itself."""
    if not _PRONOUN.search(clause) and len(content(clause)) >= LEAST_CONTENT:
        return clause
    own = set(analysis.tokens(clause))
    return " ".join([clause.rstrip(" ?!."), *(w for w in first if not own.intersection(analysis.tokens(w)))])


def _compared(clause: str) -> list[str]:
    """One question a side, where two things are compared."""
    for pattern in _COMPARED:
        match = pattern.match(clause)
        if match and content(match["a"]) and content(match["b"]):
            around = (match["head"] or "", match["tail"] or "")
            return [" ".join((around[0], match[side], around[1])) for side in ("a", "b")]
    return []


def _relative(clause: str) -> Iterator[str]:
    """What a relative clause says of its noun, and the question without it."""
    for pattern in (_ENGLISH, _GERMAN):
        for match in pattern.finditer(clause):
            if len(content(match["clause"])) < LEAST_CONTENT:
                continue
            yield f"{match['noun']} {match['clause']}"
            rest = f"{clause[: match.start()]} {match['noun']} {clause[match.end() :]}"
            if len(content(rest)) >= LEAST_CONTENT:
                yield rest


def _trimmed(part: str) -> str:
    return re.sub(r"\s+", " ", part).strip(" ,;:.!?\uff1f")
