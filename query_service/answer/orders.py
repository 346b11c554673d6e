"""Words in a source that speak to whatever reads it for somebody: they are no evidence for anything.

An obedient model writes what such an order says, and then the source does hold those words. So an order and what comes
after it in its paragraph are blanked before the check of support; what the caller reads of the source stays as it is.
Where a page about such orders quotes one, that paragraph is lost as evidence from there on, and nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pipeline.chunk.sentences import sentence_spans
from query_service.answer.interface import Checker, Draft, Source, Verdict
from query_service.answer.neutral import hidden, looks, visible

_BLANK = "\n"
_RULES = r"(?:instructions?|rules?|prompts?|sources?|documents?|guidelines?|constraints?|directives?|context|passages?)"
_MODEL = r"(?:ai|llm|chat ?bot|(?:large )?language model|(?:ai|virtual|search|answer) assistant|gpt|answer engine)s?"
_SAY = r"(?:ignore|disregard|say|answer|reply|respond|tell|state|output|report|claim|recommend|treat|write|cite|obey)"
_PATTERNS = (
    # English
    rf"\b(?:ignore|disregard|forget|override|overrule|bypass|do not follow|stop following)\b.{{0,60}}\b{_RULES}\b",
    r"\b(?:ignore|disregard|forget) (?:everything|all|anything)\b",
    rf"\byou are (?:now|no longer|an?|the) \b.{{0,40}}\b(?:{_MODEL}|dan|unrestricted|model|mode|pirate|oracle)\b",
    r"\b(?:from now on|henceforth),? you (?:are|must|will|shall|answer|only|have no|speak|obey)\b"
    r"|\byou (?:must|will|shall) (?:now )?(?:obey|output)\b",
    r"\b(?:act|behave|speak|write|answer|talk) (?:as|like) (?:an? |the )?(?:dan|pirate|unrestricted|different"
    r"|evil|root|ai)\b",
    rf"\b(?:dear|attention|hey|hello|(?:note|message|instructions?) (?:to|for)) (?:all |any |the "
    rf"|every )*(?:{_MODEL}|assistant)\b",
    rf"\b{_MODEL}\b[^.]{{0,40}}\b(?:must|should|shall|will|has to|have to)(?: always| now| only| never)? {_SAY}\b",
    rf"\b(?:if|when|as) (?:you are|you're) (?:an? |the )?{_MODEL}\b",
    r"\b(?:new|updated|real|hidden|secret|system|developer|override|priority) (?:instructions?|prompt|message"
    r"|directive)s?\b\s*[:=>\])-]",
    r"\b(?:system|developer) (?:override|mode|prompt)\b",
    rf"\b(?:reveal|print|repeat|output|show|leak|disclose|quote|translate"
    rf"|summari[sz]e)\b.{{0,40}}\b(?:system prompt|your (?:{_RULES}|configuration)|hidden prompt|(?:text|words"
    rf"|everything) above)\b",
    r"\b(?:append|add|include|insert|embed|put|mention|repeat|end|begin|start|prefix)\b.{0,60}"
    r"\b(?:your|every|each|all) (?:answers?|reply|replies|responses?|outputs?|sentences?)\b",
    r"\byour (?:answer|reply|response|output) (?:must|should|shall|has to|is)\b",
    r"(?:^|[,;:]\s*|\b(?:and|then|please|instead|must|should|shall|you)\s+)"
    r"(?:answer|reply|respond|output|say|write)\b (?:only|just|exactly|always|every question|all questions"
    r"|any question|nothing)\b",
    r"\b(?:reply|respond|answer) with(?: the)? (?:exactly|only|words?|sentence|phrase|refusal|json|tool)\b",
    r"\b(?:do not|don't|never) (?:mention|cite|use|trust|quote|reveal|tell)\b.{0,40}\b(?:sources?|documents?"
    r"|passages?|instructions?|this (?:note|order|message)|the user)\b",
    r"\b(?:only|sole|single) (?:authoritative|valid|trusted|trustworthy|correct|true) (?:source|document"
    r"|passage)\b",
    r"\b(?:overrides?|supersedes?|outranks?|takes? precedence over|more (?:authoritative"
    r"|trustworthy) than)\b.{0,30}\b(?:all|any|every|the) (?:other )?(?:sources?|passages?|answers?"
    r"|instructions?|context|results?)\b",
    r"\b(?:all|any|every) other (?:sources?|documents?|passages?) (?:is|are)\b.{0,30}\b(?:wrong|obsolete"
    r"|false|outdated|invalid|fake)\b",
    r"\b(?:render|display|include|insert|embed|append|load|output)\b.{0,40}\b(?:markdown|image|pixel|iframe"
    r"|hyperlink|this link)\b",
    r"\b(?:call|invoke|use|run) the .{0,30}\b(?:tool|function)\b.{0,40}\b(?:with|to"
    r"|now)\b.{0,60}\b(?:question|user|conversation|answer|prompt)\b",
    r"\b(?:decode|decrypt)\b.{0,60}\b(?:follow|execute|obey|run|act on)\b",
    r"\bpretend\b.{0,40}\b(?:you|to be)\b|\bjailbreak",
    # what only the frame of a prompt holds
    r"<\|[^|<>\n]{1,60}\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant|function_calls?|tool_calls?)>",
    r"^\s*(?:#{1,6}\s*|\*\*)(?:system|assistant|instructions?)\b[\s:*]*$|^\W*(?:assistant|chatbot|ai)\s*:",
    # German, French, Spanish, Italian, Portuguese, Dutch, Polish, Swedish, Turkish
    r"\b(?:ignorier\w*|vergiss|vergesst|missachte\w*|überschreib\w*)\b.{0,60}\b(?:anweisung|regel|quelle"
    r"|dokument|vorgabe|befehl|alles)\w*",
    r"\bdu bist (?:jetzt|nun|ab sofort|ein|kein)\b|\bantworte (?:nur|immer|stets|ausschließlich|ab jetzt"
    r"|auf alle)\b",
    r"\bignor(?:e|ez|er|a|ad|are|ate)\b.{0,40}\b(?:instructions|consignes|règles|instrucciones|reglas"
    r"|istruzioni|regole|instruções|regras|fuentes|fonti)\b",
    r"\b(?:oublie|oubliez|olvida|olvide|dimentica|esqueça)\b.{0,40}\b(?:instructions|consignes|règles"
    r"|instrucciones|reglas|istruzioni|regole|instruções|regras)\b",
    r"\b(?:réponds|répondez|responde|responda|rispondi) (?:seulement|uniquement|toujours|sólo|solo|únicamente"
    r"|siempre|soltanto|sempre|apenas)\b",
    r"\b(?:negeer|vergeet)\b.{0,40}\b(?:instructies|regels|bronnen)\b|\b(?:zignoruj"
    r"|ignoruj)\b.{0,40}\b(?:instrukcje|polecenia|źródła|zasady)",
    r"\b(?:ignorera|glöm)\b.{0,40}\b(?:instruktioner|regler|källor)|\btalimatları\b.{0,30}\b(?:yok say"
    r"|görmezden|unut)",
    # other scripts; letters that look like Latin ones stand as these here
    r"忽略.{0,12}(?:指令|指示|说明|规则|規則|要求|内容)|無視して|(?:指示|命令|ルール).{0,6}(?:無視|忘れ)|(?:지시|명령|규칙).{0,12}무시",
    r"تجاهل.{0,30}(?:التعليمات|الأوامر|القواعد)|התעלם.{0,30}(?:ההוראות|הכללים)",
)  # fmt: skip
_ORDER = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS), re.IGNORECASE | re.DOTALL)
_CYRILLIC = re.compile(
    r"(?:игнориру|забудь|проигнориру).{0,40}(?:инструкц|указани|правил|источник|інструкц|вказівк)", re.IGNORECASE
)
# Who writes marks of a prompt means all that comes after them.
_FORGED = re.compile(r"<<\s*(?:end of\s+)?(?:source|turn)\b[^<>\n]{0,80}>>", re.IGNORECASE)
# Letters of two scripts in one word, some of which only look like Latin ones: no keyboard writes that.
_MIXED = re.compile(r"\b(?=\w*[A-Za-z])(?=\w*[\u0400-\u04ff\u0391-\u03a9])\w{3,}\b")
_BREAK = re.compile(r"\n[ \t]*\n")


def orders(text: str) -> list[tuple[int, int]]:
    """Spans of ``text`` that speak to a model: from the sentence of an order to the end of its paragraph, from
    a forged mark of a prompt to the end."""
    kept = [(at, seen) for at, char in enumerate(text) if (seen := visible(char))]
    shown = "".join(char for _, char in kept)
    found: list[tuple[int, int]] = []
    for start, end in sentence_spans(shown):
        if found and start < found[-1][1]:
            continue
        if not _is_order(shown[start:end]):
            continue
        ends = None if _FORGED.search(looks(shown[start:end])) else _BREAK.search(shown, end)
        found.append((start, ends.start() if ends is not None else len(shown)))
    return [(kept[start][0], kept[end - 1][0] + 1) for start, end in found]


def _is_order(words: str) -> bool:
    if any(kind.search(looks(words)) is not None for kind in (_ORDER, _FORGED)) or _CYRILLIC.search(words) is not None:
        return True
    return any(looks(mixed.group()).isascii() for mixed in _MIXED.finditer(words))


def without_orders(source: Source) -> Source:
    """The same source, with its orders and what is hidden in it blanked, also in title and headings. The text keeps
    its length, so that spans of it hold for the original."""
    passage = source.passage
    spans = [*orders(passage.text), *hidden(passage.text)]
    title = "" if orders(passage.title) else passage.title
    headings = tuple(heading for heading in passage.heading_path if not orders(heading))
    if not spans and title == passage.title and headings == passage.heading_path:
        return source
    text = passage.text
    for start, end in spans:
        text = text[:start] + _BLANK * (end - start) + text[end:]
    return replace(source, passage=passage.model_copy(update={"text": text, "title": title, "heading_path": headings}))


class WaryChecker:
    """A ``Checker`` for which an order in a source is no evidence, whatever the checker within thinks of it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    async def check(
        self, question: str, drafts: Sequence[Draft], sources: Sequence[Source], *, deadline: float
    ) -> list[Verdict]:
        """See ``Checker``."""
        blanked = [without_orders(source) for source in sources]
        verdicts = await self._checker.check(question, drafts, blanked, deadline=deadline)
        texts = {source.number: source.text for source in sources}
        return [_verbatim(verdict, texts) for verdict in verdicts]


def _verbatim(verdict: Verdict, texts: dict[int, str]) -> Verdict:
    """With quotes that stand in the sources: of one that goes across a blank, the longest part."""
    quotes = {
        number: quote if quote in texts.get(number, "") else max(re.split(r"\n+", quote), key=len).strip()
        for number, quote in verdict.quotes.items()
    }
    return verdict if quotes == verdict.quotes else replace(verdict, quotes=quotes)
