"""What kind of thing a question asks for, and how far a sentence holds such a thing. English, German, French, Spanish;
other languages ask for nothing in particular. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from query_service.answer.units import Unit

Asked = Literal[
    "duration", "when", "how_many", "money", "who", "where", "how_to", "why", "yes_no", "definition", "which", "other"
]  # fmt: skip
_F = re.IGNORECASE

# Of several the first one that fits: "how long" before "how".
_KINDS: tuple[tuple[Asked, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, _F))  # type: ignore[misc]
    for kind, pattern in (
        ("duration", r"\b(?:how (?:long|quickly|fast|soon|often|frequently)|for how (?:long|many (?:days|weeks|months|"
         r"years|hours|minutes))|how many (?:seconds|minutes|hours|(?:working )?days|weeks|months|years)|"
         r"within how many|wie (?:lange|oft|schnell)|combien de temps|cuánto tiempo|с какой частотой|как долго)\b"),
        ("money", r"\b(?:how much (?:does|do|is|was|did|money|may|can|will|goodwill|reduction|credit)|what (?:does|"
                  r"do) .+ "
         r"cost|(?:list )?price|cost of|salary|earn|what sum|which amount|wie ?viel kostet|was kostet|combien coûte|"
         r"cuánto cuesta)\b"),
        ("how_many", r"\b(?:how (?:many|much|large|big|far|high|old|heavy|deep|wide)|what (?:share|percentage|number|"
         r"maximum|is the (?:maximum|minimum|limit))|which (?:number|percentage)|wie ?viele?|wie (?:groß|hoch|weit)|"
         r"combien|cuánt[oa]s?|сколько)\b"),
        ("when", r"\b(?:when|since when|until when|by when|(?:at|on|in) (?:what|which) (?:time|date|day|year|month|"
         r"moment|century|era|decade)|what (?:year|date|day|time|century)|during (?:what|which)|wann|seit wann|bis "
         r"wann|"
         r"quand|à quelle heure|cuándo|когда)\b"),
        ("who", r"\b(?:who|whom|whose|which (?:person|people|team|company|firm|supplier|outside firm)|wer|wen|wem|"
                r"wessen|"
         r"qui|quién(?:es)?|кто|кому)\b"),
        ("where", r"\b(?:where|in (?:what|which) (?:\w+ )?(?:place|country|city|room|town|region|location|court)|wo|"
                  r"woher|"
         r"wohin|où|dónde|где|куда)\b"),
        ("why", r"\b(?:why|for what reason|what (?:is|was) the (?:\w+ )?(?:reason|cause)|cause of|warum|weshalb|wieso|"
         r"wozu|pourquoi|por qué|почему|зачем)\b|なぜ|为什么"),
        ("how_to", r"\b(?:how (?:do|does|can|should|to|must|may|could)|what (?:should|must|do|can) (?:i|we|one|you)|"
                   r"what now|"
         r"what to do|steps?|procedure|instructions?|(?:re)?set ?up|factory reset|runbook|wie (?:kann|muss|soll|richte|"
         r"installiere|mache|geht)|wie (?!viel|lange|oft|hoch)\w+ (?:ich|man|wir)|was tun|"
         r"was (?:muss|soll|ist) .* (?:tun|machen)|comment|cómo|como hago|как)\b|怎么办|どう"),
        ("definition", r"^\W*(?:what(?:'s| is| are| was| were| does) (?:an? |the )?[^?]{1,60}(?:mean|stand "
                       r"for)?\s*\??\s*$|"
         r"define\b|meaning of\b|was (?:ist|sind|bedeutet)\b|qu'est-ce qu|que (?:es|significa)\b|qué (?:es|"
         r"significa)\b)"),
        ("yes_no", r"^\W*(?:(?:and|so|but)\s+)?(?:is|are|was|were|do|does|did|can|could|may|must|should|will|would|"
                   r"has|have|"
         r"had|am|need|ist|sind|darf|dürfen|kann|können|muss|müssen|soll|hat|haben|gibt|est-ce|peut-on|puede|pueden|"
         r"hay)\b|,\s*(?:may|can|must|do|should|is|are)\b"),
        ("which", r"\b(?:which|what|welche[rsmn]?|quel(?:le)?s?|cuál(?:es)?|какой|какая)\b"),
    )
)  # fmt: skip

_NUMBER = (
    r"(?:\d[\d.,  ]*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|"
    r"fifty|sixty|ninety|hundred|thousand|million|billion|half|quarter|dozen|once|twice|zero|none|no|several|both|"
    r"first|second|third|"
    r"ein(?:e[nrms]?)?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|zwanzig|dreißig|hundert|tausend|"
    r"einmal|zweimal|dreimal|halb|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|dos|tres|cuatro|cinco|seis|siete|ocho|"
    r"nueve|diez)\b|[一二三四五六七八九十百千]+)"
)
_TIME = (
    r"(?:(?:milli)?seconds?|ms|minutes?|min|hours?|days?|nights?|weeks?|months?|quarters?|years?|decades?|"
    r"centur(?:y|ies)|"
    r"sekunden?|minuten?|stunden?|tage?n?|wochen?|monate?n?|jahre?n?|schicht|secondes?|heures?|jours?|semaines?|"
    r"mois|ans?|"
    r"années?|segundos?|minutos?|horas?|días?|semanas?|meses|mes|años?)\b"
)
_MONTHS = (
    r"january|february|march|april|may|june|july|august|september|october|november|december|spring|summer|autumn|"
    r"winter|"
    r"januar|februar|märz|mai|juni|juli|oktober|dezember|janvier|février|mars|avril|juin|juillet|août|septembre|"
    r"octobre|"
    r"novembre|décembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
_DAYS = "".join(
    (
        r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|",
        r"montags?|dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?",
    )
)
_HAS: dict[Asked, re.Pattern[str]] = {
    kind: re.compile(pattern, _F)  # type: ignore[misc]
    for kind, pattern in {
        "duration": rf"{_NUMBER}[\s-]*(?:\w+\s+){{0,2}}{_TIME}|\b(?:daily|weekly|monthly|yearly|hourly|every|each|"
        rf"never|once|"
        rf"twice|immediately|at once|täglich|wöchentlich|monatlich|jährlich|sofort|nie)\b|\d+\s*(?:[一-龥]|時間|分|日)",
        "how_many": _NUMBER,
        "money": r"\d[\d.,  ]*\s*(?:€|\$|£|%|eur|usd|euros?|dollars?|pounds?|francs?|percent|thousand|million)\b|"
        r"[€$£]\s*\d|"
        r"\b(?:free|gratis|kostenlos)\b|:\s*\d[\d.,]*(?:;|\.$)",
        "when": rf"\b(?:1\d{{3}}|20\d\d)\b|\b\d{{1,2}}(?:[:.]\d{{2}}\b|(?:st|nd|rd|th)\b)|\b(?:{_MONTHS}|{_DAYS})\b|"
        rf"\b(?:after|before|until|as soon as|when|once|during|since|century|centuries|nach|vor|bis|sobald|wenn|"
        rf"quand|lorsque|après|cuando|después)\b|{_NUMBER}[\s-]*{_TIME}",
        "why": r"\b(?:because|since|so that|therefore|due to|owing to|in order|reasons?|caused?|otherwise|as a result|"
        r"that is why|prevents?|to avoid|weil|da|denn|damit|deshalb|daher|sonst|grund|parce|pour que|afin|car|porque|"
        r"para que|debido|потому|чтобы|так как|иначе)\b|ため|から|因为|以免",
        "where": r"\b(?:in|at|on|under|behind|near|from|inside|locker|room|floor|street|north|south|east|west|im|am|"
        r"auf|"
        r"unter|bei|dans|sous|en|chez)\s+(?:the\s+|der\s+|dem\s+|le\s+|la\s+)?\w+",
        "yes_no": r"\b(?:not|never|no|may|must|can|cannot|allowed|permitted|only|always|needs?|required|forbidden|"
        r"nor|without|"
        r"nicht|nie|kein\w*|darf|muss|nur|erlaubt|verboten|ne|jamais|pas|peut|doit|no|nunca|puede|debe|solo)\b",
        "definition": r"\b(?:is|are|was|were|means?|stands? for|refers? to|called|denotes?|describes?|ist|sind|"
        r"bedeutet|heißt|"
        r"est|sont|désigne|es|son|significa)\b|:",
        "how_to": r"^\s*(?!(?:the|a|an|this|that|these|it|we|they|there|in|on|at|for|if|when|"
        r"our)\b)[a-z]+\b(?!\s+(?:is|are|was|were|has|"
        r"have|can|will|may|does)\b)|\b(?:must|should|then|first|press|hold|open|select|choose|click|run|set|wait|"
        r"switch|call|ring|ask|muss|soll|zuerst|dann|il faut|debe|hay que)\b",
    }.items()
}
# Two capitalised words in a row, or one that does not begin the sentence.
_NAME = re.compile(
    r"(?<![.!?:]\s)(?<!^)\b[A-ZÄÖÜÀ-ÞА-ЯΑ-Ω][\w'’-]+|^\W*[A-ZÄÖÜÀ-ÞА-Я][\w'’-]+\s+[A-ZÄÖÜÀ-ÞА-Я][\w'’-]+"
)
_ROLE = re.compile(
    r"\b(?:lead|manager|officer|team|office|owner|director|engineer|customer|colleagues?|company|gmbh|ltd|inc)\b", _F
)


@lru_cache(maxsize=256)
def asked_for(question: str) -> tuple[Asked, ...]:
    """The kinds of thing that a question asks for, at most two, the plainest first; ``other`` where none is told."""
    found = [kind for kind, pattern in _KINDS if pattern.search(question)]
    return tuple(found[:2]) or ("other",)


def holds(unit: Unit, kind: Asked) -> float:
    """How far the piece holds such a thing, 0 to 1."""
    if kind in ("other", "which"):
        return 0.0
    if kind == "who":
        return 1.0 if _NAME.search(unit.text) else 0.5 if _ROLE.search(unit.text) else 0.0
    if kind == "how_to" and unit.kind in ("step", "code"):
        return 1.0
    if kind == "definition" and unit.kind == "row":
        return 1.0
    return 1.0 if _HAS[kind].search(unit.text) else 0.0
