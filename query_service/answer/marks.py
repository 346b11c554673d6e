"""Marks in what a model wrote: footnotes in the forms that models use, emphasis, code, and what is no prose at all."""

from __future__ import annotations

import re
from functools import cache

from query_service.answer import wording
from query_service.answer.neutral import visible

_N = r"\d{1,6}"
_AND = r"\s*(?:[,;&+]|and|und|et|y)\s*"
_LIST = rf"\^?{_N}(?:(?:{_AND}|\s*[-–]\s*)\^?{_N})*"
_WORD = r"(?:sources?|quellen?|refs?\.?|references?|passages?|documents?|docs?|fuentes?|fonti?)"
FOOTNOTE = re.compile(
    rf"\^?\[\s*\^?\s*(?:{_WORD}\s*)?[:#]?\s*(?P<a>{_LIST})\s*\]|【\s*(?P<b>{_N})(?:[:†][^【】\n]{{0,60}})?\s*】|"
    rf"\(\s*(?:see\s+|siehe\s+)?{_WORD}\s*[:#]?\s*\[?(?P<c>{_LIST})\]?\s*\)|<sup>\s*\[?(?P<d>{_LIST})\]?\s*</sup>",
    re.IGNORECASE,
)
# "According to [^1], …" is left without its object.
ACCORDING = re.compile(
    r"(?:\b(?:according to|as (?:stated|described|noted|explained) in|per|see|laut|gemäß|siehe)\s+(?:the\s+)?"
    rf"(?:{_WORD}\s+)?)$",
    re.IGNORECASE,
)
MOST_CITED = 50


def numbers(match: re.Match[str]) -> list[int]:
    """What a footnote cites, in order; ranges in full."""
    listed = next(group for group in match.group("a", "b", "c", "d") if group is not None)
    found: list[int] = []
    for low, high in re.findall(rf"({_N})(?:\s*[-–]\s*\^?({_N}))?", listed):
        last = int(high) if high else int(low)
        found += range(int(low), min(last, int(low) + MOST_CITED) + 1)
    return found[:MOST_CITED]


def is_year(match: re.Match[str]) -> bool:
    """Whether a bare number in brackets is rather a year or an amount: no answer has so many sources."""
    bare = match.group("a")
    return bare is not None and "^" not in match.group() and bare.isdigit() and int(bare) > 99


def without_footnotes(text: str) -> tuple[str, list[tuple[int, list[int]]]]:
    """The text without footnotes, and where in it each stood with what it cites. Code in backticks keeps its own."""
    parts: list[str] = []
    found: list[tuple[int, list[int]]] = []
    at = length = 0
    for match in FOOTNOTE.finditer(text):
        if is_year(match) or text.count("`", 0, match.start()) % 2:
            continue
        before, after = text[at : match.start()], text[match.end() : match.end() + 1]
        before = ACCORDING.sub("", before)
        if before.endswith(" ") and (not after or after in " .,;:!?…。！？)\n[【"):
            before = before.rstrip(" ")
        elif before[-1:] in (".", "!", "?", "…") and after and not after.isspace() and after not in "[【(<^.,;:!?…)":
            before += " "  # "Text.[^1]Next"
        parts.append(before)
        length += len(before)
        found.append((length, numbers(match)))
        at = match.end()
        if not (parts[-1] or length) and after in (",", " "):
            at += 1
    parts.append(text[at:])
    return "".join(parts), found


def of_code(code: str) -> tuple[str, list[int]]:
    """Code without the footnotes at the ends of its lines, and what they cite. Other brackets are the code's own."""
    cited = [int(n) for n in _IN_CODE.findall(code)]
    return _AT_END.sub("", code), cited


_IN_CODE = re.compile(rf"\[\^({_N})\](?=(?:\[\^{_N}\])*[ \t]*$)", re.MULTILINE)
_AT_END = re.compile(rf"[ \t]*(?:\[\^{_N}\])+[ \t]*$", re.MULTILINE)

# ---------------------------------------------------------------- words

_BOLD = re.compile(r"\*\*|__(?=\S)|(?<=\S)__|~~")
_ITALIC = re.compile(r"(?<![\w*\\])([*_])(?=\S)([^*_\n]{1,300}?)(?<=\S)\1(?![\w*])")
_CODE = re.compile(r"(`+)([^`\n]+)\1")
_QUOTE = re.compile(r"^(?:\s*>)+\s?")
_LEAD = re.compile(
    r"^\s*(?:\*\*)?(?:final answer|answer|antwort|réponse|respuesta|response)(?:\*\*)?\s*:\s*(?:\*\*)?\s*",
    re.IGNORECASE,
)
# "According to the text, …": small models begin so, and no source says it of itself. A bare "document" may be one that
# the source speaks of.
_GIVEN = r"(?:provided|given|supplied|above|cited)"
_PREFACE = re.compile(
    rf"^\s*(?:(?:according to|based on|as (?:stated|described|mentioned|noted) in)\s+(?:the\s+)?"
    rf"(?:{_GIVEN}\s+(?:{_WORD}|texts?|context|documentation|information|excerpts?)|texts?|context|sources?|passages?)"
    rf"(?:\s+{_GIVEN})?\s*,|the\s+(?:{_GIVEN}\s+)?(?:text|source|passage|context)s?\s+(?:says?|states?|mentions?)\s+that)"
    r"\s+(?=\S)",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """The words of a sentence: no emphasis, no backticks, no label or "According to the text," before it, one blank
    between words."""
    text = _LEAD.sub("", _QUOTE.sub("", visible(text)))
    if preface := _PREFACE.match(text):
        text = text[preface.end() :]
        first = text.split(maxsplit=1)[0]
        text = text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match.group(2))
        return f"\0{len(kept) - 1}\0"

    text = _CODE.sub(keep, text)  # what is code has its own stars and underscores
    text = _ITALIC.sub(r"\2", _BOLD.sub("", text))
    text = re.sub(r"\0(\d+)\0", lambda m: kept[int(m.group(1))], text)
    return " ".join(text.split())


def has_words(text: str) -> bool:
    """Whether there is anything to check."""
    return any(char.isalnum() for char in text)


# ---------------------------------------------------------------- what is no prose

REASONING = r"think|thinking|thought|scratchpad|reasoning|reflection|analysis"
_CALLS = r"tool_calls?|tool_use|tool_code|tool_response|function_calls?|function_results?|function|invoke|antml:[\w-]+"
OPENING = re.compile(rf"<(?P<name>{_CALLS}|{REASONING})(?:[\s=][^<>\n]{{0,300}})?>$", re.IGNORECASE)
_GARBAGE = re.compile(
    rf"</?(?:{_CALLS}|system|assistant|instructions?|sources?)\b|<\|[^<>\n]{{0,80}}\|?>|<[|｜][^<>\n]{{0,80}}[|｜]>|\[/?(?:INST|TOOL_CALLS)\]|<</?sys>>|"
    r"<<\s*(?:end of )?(?:source|turn)\b|!\[[^\]\n]{0,500}\]|"
    r"<(?:img|script|iframe|object|embed|svg|form|style|video|audio|link|base)\b|"
    r"\b(?:javascript|vbscript):|\bdata:[\w.+-]+/[\w.+-]+[;,]",
    re.IGNORECASE,
)
_JSON = re.compile(r"\{\s*[\"'][\w -]{1,40}[\"']\s*:")
_ROLE = re.compile(r"^\s*(?:assistant|system|user|human|developer)\s*(?:message|prompt)?\s*:", re.IGNORECASE)
LABEL = re.compile(r"^\s*(?:\*\*)?(?P<label>[A-Za-zÄÖÜäöü][A-Za-zÄÖÜäöü ]{1,22}?)(?:\*\*)?\s*:")
THOUGHTS = frozenset({"thought", "thoughts", "reasoning", "scratchpad", "chain of thought", "my reasoning"})
ACTIONS = frozenset({"action", "action input", "observation", "tool", "tool input", "tool call", "function call"})
REFERENCES = frozenset(
    {
        "sources",
        "source",
        "references",
        "footnotes",
        "citations",
        "quellen",
        "fußnoten",
        "literatur",
        "fuentes",
        "fonti",
    }
)


def is_garbage(text: str) -> bool:
    """Whether a sentence holds a tool call, tokens of a chat template, a role tag, an image or active HTML. JSON may
    stand in backticks, where it is no call."""
    if _GARBAGE.search(text) is not None or _ROLE.match(text) is not None or is_call(text):
        return True
    return "{" in text and _JSON.search(_CODE.sub("", text)) is not None


_CALL = re.compile(r"[\"'](?:name|function|tool|tool_name|action|recipient_name)[\"']\s*:")
_ARGUMENTS = re.compile(r"[\"'](?:arguments|parameters|args|input|tool_input|action_input|kwargs)[\"']\s*:")


def is_call(code: str) -> bool:
    """Whether a block of code is a call of a tool."""
    if OPENING.search(code.split("\n", 1)[0]) or re.search(rf"<(?:{_CALLS})\b", code, re.IGNORECASE):
        return True
    return _CALL.search(code) is not None and _ARGUMENTS.search(code) is not None


# ---------------------------------------------------------------- the refusal

TELLING = 0.7  # of a refusal's letters, from its beginning: "… to answer this question" is often said otherwise


def refuses(text: str) -> bool:
    """Whether a text holds the refusal in any language, also with words around it or at its end."""
    if wording.is_refusal(text):
        return True
    bare = _letters(text)
    return len(bare) > 8 and any(known in bare for known in _known())


def _letters(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalpha())


@cache
def _known() -> tuple[str, ...]:
    whole = [_letters(wording.refusal(language)) for language in wording.languages()]
    return tuple(text[: max(9, int(len(text) * TELLING))] for text in whole)
