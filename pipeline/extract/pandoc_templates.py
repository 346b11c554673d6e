"""Wikitext templates become the text of their arguments, file links their alternative text and caption."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN = re.compile(r"\{\{\{|\}\}\}|\{\{|\}\}|\[\[|\]\]|\|")
_MAX_DEPTH = 40  # as MediaWiki has it; what is deeper stays as it is written
_NAMED = re.compile(r"\s*([^\W_][\w .\-/]{0,60}?)\s*=(?!=)(.*)", re.DOTALL)
_LAYOUT = _words(
    "style class width height align color colour bgcolor background border id float size valign colspan "
    "rowspan nocat image_size imagesize image_width image image_file logo"
)
_ADMONITIONS = _words("note warning tip caution important info hint danger attention notice")
_FUNCTIONS = _words("lc uc lcfirst ucfirst formatnum padleft padright urlencode anchorencode int")
_CONDITIONS = {"#if": 1, "#ifeq": 2, "#ifexist": 1, "#iferror": 0, "#ifexpr": 1, "#invoke": 2, "#expr": 0, "#switch": 1}
_LITERAL = {"!": "|", "=": "=", "!!": "||", "!-": "|-", "(!": "{|", "!)": "|}", "((": "{{", "))": "}}"}
_SUBST = re.compile(r"\s*(?:subst|safesubst)\s*:", re.IGNORECASE)
_FILE = re.compile(r"\s*(?:file|image|datei|bild|fichier|archivo|imagen|immagine|ficheiro|bestand|plik|файл)\s*:", re.I)
_FILE_OPTION = re.compile(
    r"\s*(?:thumb(?:nail)?(?:=.*)?|frame(?:d|less)?|border|left|right|center|none|upright.*|\d*x?\d+px|baseline|sub|super"
    r"|top|middle|bottom|text-top|text-bottom|(?:link|lang|page|class|start|end|verweis|sprache)=.*|mini(?:atur)?"
    r"|gerahmt|rahmenlos|hochkant.*|links|rechts|zentriert|ohne|vignette|gauche|droite|centré|redresse.*|cadre"
    r"|miniaturadeimagen|izquierda|derecha|centro)\s*",
    re.IGNORECASE | re.DOTALL,
)
_ALT = re.compile(r"\s*(?:alt|alternativtext)\s*=", re.IGNORECASE)
_BLOCK_START = ("*", "#", ":", ";", "{|", "=", "\n")


@dataclass
class Expansion:
    """Text for the parser, the title given by DISPLAYTITLE, and how many templates were opened up."""

    text: str
    title: str | None = None
    templates: int = 0


@dataclass
class _Frame:
    opening: str
    start: int
    parts: list[list[str]] = field(default_factory=lambda: [[]])

    def texts(self) -> list[str]:
        return ["".join(part) for part in self.parts]


def expanded(text: str) -> Expansion:
    """Templates and file links in the text opened up, innermost first."""
    result = Expansion("")
    stack = [_Frame("", 0)]
    position = 0
    while token := _TOKEN.search(text, position):
        stack[-1].parts[-1].append(text[position : token.start()])
        position = token.end()
        sign = token.group()
        if sign in ("{{{", "{{", "[["):
            if len(stack) > _MAX_DEPTH:
                stack[-1].parts[-1].append(sign)
            else:
                stack.append(_Frame(sign, token.start()))
        elif sign == "|":
            if len(stack) > 1:
                stack[-1].parts.append([])
            else:
                stack[-1].parts[-1].append(sign)
        elif sign == "]]":
            if stack[-1].opening == "[[":
                frame = stack.pop()
                stack[-1].parts[-1].append(_link(frame, text, position))
            else:
                stack[-1].parts[-1].append(sign)
        else:
            position = _close(stack, sign, text, token.start(), result)
    stack[-1].parts[-1].append(text[position:])
    while len(stack) > 1:
        _unopened(stack)
    result.text = "".join(stack[0].parts[0])
    return result


def _close(stack: list[_Frame], sign: str, text: str, start: int, result: Expansion) -> int:
    """Ends the innermost template or parameter; returns where the text goes on."""
    index = next((n for n in range(len(stack) - 1, 0, -1) if stack[n].opening != "[["), 0)
    if index == 0:
        stack[-1].parts[-1].append(sign)
        return start + len(sign)
    while len(stack) - 1 > index:
        _unopened(stack)
    frame = stack[-1]
    if frame.opening == "{{{" and sign == "}}":
        stack[-1].parts[-1].append(sign)
        return start + 2
    stack.pop()
    end = start + len(frame.opening)
    if frame.opening == "{{{":
        stack[-1].parts[-1].append(frame.texts()[1].strip() if len(frame.parts) > 1 else "")
    else:
        result.templates += 1
        alone = _alone(text, frame.start, end)
        stack[-1].parts[-1].append(_template(frame.texts(), alone, result))
    return end


def _unopened(stack: list[_Frame]) -> None:
    """The innermost frame has no end: it was no markup."""
    frame = stack.pop()
    stack[-1].parts[-1].append(frame.opening + "|".join(frame.texts()))


def _alone(text: str, start: int, end: int) -> bool:
    """True where what stands from ``start`` to ``end`` has its lines to itself."""
    return (start == 0 or text[start - 1] == "\n") and (end >= len(text) or text[end] == "\n")


def _template(parts: list[str], alone: bool, result: Expansion) -> str:
    name = _SUBST.sub("", parts[0]).strip()
    arguments = parts[1:]
    if name in _LITERAL and not arguments:
        return _LITERAL[name]
    head, colon, tail = name.partition(":")
    head = head.strip().lower()
    if head.startswith("#"):
        return _function(head, tail, arguments)
    if colon and not arguments:
        if head == "displaytitle":
            result.title = tail.strip() or None
            return ""
        return tail.strip() if head in _FUNCTIONS else ""
    named: list[tuple[str, str]] = []
    plain: list[str] = []
    for argument in arguments:
        match = _NAMED.fullmatch(argument)
        key, value = (match.group(1).strip(), match.group(2).strip()) if match else ("", argument.strip())
        if not value or key.lower() in _LAYOUT:
            continue
        if not key or key.isdigit():
            plain.append(value)
        else:
            named.append((key, value))
    label = f"{name.capitalize()}: " if name.lower() in _ADMONITIONS and (plain or named) else ""
    keys = {key.lower(): value for key, value in named}
    if "url" in keys and "title" in keys and " " not in keys["url"]:
        rest = [value for key, value in named if key.lower() not in ("url", "title")]
        return label + ", ".join([f"[{keys['url']} {keys['title']}]", *plain, *rest])
    if alone and named:
        return label + "\n\n".join([*plain, "\n".join(_entry(key, value) for key, value in named)]) + "\n"
    if any(value.startswith(_BLOCK_START) or "\n" in value for value in plain):
        return label + "\n\n".join([*plain, *(value for _, value in named)]) + "\n"
    return label + ", ".join(filter(None, [" ".join(plain), *(value for _, value in named)]))


def _entry(key: str, value: str) -> str:
    if value.startswith(_BLOCK_START) or "\n" in value:
        return f"* {key}:\n\n{value}\n"
    return f"* {key}: {value}"


def _function(name: str, first: str, arguments: list[str]) -> str:
    """The texts that a parser function may show."""
    if name == "#tag":
        tag = first.strip().lower()
        inside = arguments[0] if arguments else ""
        return f"<ref>{inside}</ref>" if tag == "ref" else inside
    skipped = _CONDITIONS.get(name)
    if skipped is None:
        return ""
    shown = [first, *arguments][skipped:]
    if name == "#switch":
        shown = [value for _, equals, value in (argument.partition("=") for argument in shown) if equals] or shown
    return " ".join(text.strip() for text in shown if text.strip())


def _link(frame: _Frame, text: str, end: int) -> str:
    parts = frame.texts()
    if not _FILE.match(parts[0]):
        return "[[" + "|".join(parts) + "]]"
    alt = next((part.partition("=")[2].strip() for part in parts[1:] if _ALT.match(part)), "")
    captions = [part.strip() for part in parts[1:] if not _ALT.match(part) and not _FILE_OPTION.fullmatch(part)]
    caption = captions[-1] if captions else ""
    shown = caption if alt in caption else f"{alt} {caption}".strip()
    # Alone at the start of a line it is a figure, not the beginning of the paragraph after it.
    starts = frame.start == 0 or text[frame.start - 1] == "\n"
    return f"\n\n{shown}\n\n" if starts and shown else shown
