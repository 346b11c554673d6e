"""Words of questions and passages as strength and contradictions compare them: what says something, how much, and when
two count as the same. No statistics of the corpus take part: those hold documents that the caller may not read."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from pipeline import analysis
from query_service.expansion.words import content

STEM = 7  # letters of a word that are compared: endings differ
NAME, NAMED, VAGUE = 3.0, 1.5, 0.4
_ENDING = re.compile(r"(?:ations?|ings?|ments?|ed|es|s|e|en|er|ly)$")
_CAPITAL = re.compile(r"(?<=[a-z0-9,;:] )[A-Z][\w’'-]+")
# Verbs and nouns that stand in questions about anything.
_VAGUE = """
happen happens happened mean means meant need needs needed get gets got give gives given take takes taken make makes
made use uses used do does done go goes say says said tell know find found want wants keep keeps kept work works let
change changed look looks exactly actually currently now still also often long much many most more less least new old
last next first time times day days week weeks month months year years hour hours minute minutes way thing things kind
type number amount people person somebody someone one anything something please show explain describe list right good
allowed possible old maximum minimum company our s up ones half two three four five six seven eight nine ten
euro euros money every
passieren passiert bedeutet braucht brauche gibt machen gemacht tun geht sagt wissen lange viel viele oft neu alt tag
tage woche monat jahr stunde minute zeit bitte zeige möglich erlaubt
faire fait signifie jour jours semaine mois année heure temps hacer significa día días semana mes año hora tiempo
"""


@cache
def _vague() -> frozenset[str]:
    return frozenset(stem(token) for token in analysis.tokens(_VAGUE))


@lru_cache(maxsize=8192)
def stem(token: str) -> str:
    """The beginning of a word without a usual ending. Numbers and words of other scripts stay whole."""
    if not token.isascii() or not token.isalpha() or len(token) < 4:
        return token[:STEM] if token.isalpha() and len(token) > STEM and token < "\u0530" else token
    bare = _ENDING.sub("", token)
    return (bare if len(bare) >= 3 else token)[:STEM]


def worth(word: str) -> float:
    """Of a stem in a statement: nothing for a figure, little for a vague word."""
    return 0.0 if word[:1].isdigit() else VAGUE if word in _vague() else 1.0


def stems(text: str) -> list[str]:
    """Of the words that say something, each once, in order."""
    return list(dict.fromkeys(stem(token) for token in content(text) if token != "s"))


def weighed(text: str) -> dict[str, float]:
    """What each of a question's words weighs: an identifier most, a name more than a word, a vague word little."""
    named = {stem(t) for m in _CAPITAL.finditer(text) for t in analysis.tokens(m.group())}
    of_names = {stem(t) for name in analysis.identifiers(text) for t in analysis.tokens(name)}
    found: dict[str, float] = {}
    for word in stems(text):
        if word in of_names:
            continue  # weighed as a whole
        found[word] = VAGUE if word in _vague() else NAMED if word in named else 1.0
    return found | dict.fromkeys(analysis.identifiers(text), NAME)
