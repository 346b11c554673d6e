"""Text of sources as a prompt may hold it: nothing that nobody sees, nothing that passes for the frame around it.

    unseen characters ▸ hidden and active HTML ▸ data ▸ images, links ▸ role tags, template tokens, marks, footnotes

Words stay, also those of an order; that they are data is said by the frame (``prompt``), and that nothing rests on them
is the checker's business (``orders``). Quotes are taken from the original text, never from this one.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise

ROUNDS = 8  # of constructs within constructs; what is nested deeper loses its brackets
Replace = str | Callable[[re.Match[str], str], str]  # the match was found in ``looks(text)``; the second is ``text``


def neutral(text: str) -> str:
    """``text`` with the same words, numbers, identifiers and lines of code, but without invisible characters, HTML
    comments and hidden elements, data and encoded text, targets that are no plain address, and without the force of
    role tags, tokens of chat templates, footnotes and marks of a prompt. Doing it twice changes nothing more."""
    for _ in range(ROUNDS):
        done = _once(text)
        if done == text:
            return text
        text = done
    return _once(_once(_flat(text)))


def neutral_line(text: str, most: int = 300) -> str:
    """``neutral`` of a title, heading or other single line, of ``most`` characters at most."""
    line = " ".join(neutral(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def tame(text: str) -> str:
    """``text`` of the person who asks: all its words and code, without what nobody sees, and without the force of
    tokens of chat templates and marks of a prompt. Doing it twice changes nothing more."""
    return _replaced(visible(text), _FRAME, _angles)


def visible(text: str) -> str:
    """``text`` without characters that nobody sees. Lines end with a line feed."""
    if text.isascii() and not _CONTROL.search(text):
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return _JOINER.sub("", "".join(c if c in "\n\t" or c in _JOINERS else _seen(c) for c in text))


def hidden(text: str) -> list[tuple[int, int]]:
    """Spans of ``text`` that a reader of the page does not see: comments, elements that a style hides, programs."""
    seen = looks(text)
    return sorted(match.span() for pattern in _HIDDEN for match in pattern.finditer(seen))


def looks(text: str) -> str:
    """``text`` with letters of other scripts that look like ASCII ones replaced by these; of the same length."""
    return text if text.isascii() else text.translate(_LOOKALIKES)


# ---------------------------------------------------------------- characters

_CONTROL = re.compile(r"[^\n\t -~]")
_JOINERS = "\u200c\u200d"
# Persian and the scripts of India need them, between two letters; anywhere else they only hide something.
_NEEDS_JOINER = r"\u0600-\u06ff\u0750-\u077f\u0900-\u0dff"
_JOINER = re.compile(rf"(?<![{_NEEDS_JOINER}])[{_JOINERS}]|[{_JOINERS}](?![{_NEEDS_JOINER}])")
# Letters and marks by their category, yet without a picture of their own.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc")


def _seen(char: str) -> str:
    code = ord(char)
    if 32 <= code < 127:
        return char
    if char in _BLANK or 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF:
        return ""
    category = unicodedata.category(char)
    if category == "Cf":
        return ""
    return " " if category in ("Cc", "Cs", "Co", "Cn") else char


_LOOKALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТХУЗаеорсухіјѕһԁԛԝӏ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοα" + "ѕЅ" + "＜＞｜［］（）：＃＊／｛｝！＾",
    "ABESIJKMHOPCTXY3aeopcyxijshdqwl" + "ABEZHIKMNOPTYXoa" + "sS" + "<>|[]():#*/{}!^",
) | {0xFF21 + n: 65 + n for n in range(26)} | {0xFF41 + n: 97 + n for n in range(26)}  # fmt: skip

# ---------------------------------------------------------------- data in text

_DATA = re.compile(r"\bdata:(?:[a-z]+/[\w.+-]+(?:;[\w=.-]+)*|;base64|(?:;[\w=.-]+)+)\s*,[^\s)\"'<>\]]*", re.IGNORECASE)
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![A-Za-z0-9+/_-])")
_HEX = re.compile(r"[0-9a-fA-F]+")
BLOB = 60  # characters


def _without_data(match: re.Match[str], text: str) -> str:
    """A blob, or text in base64, is left out: nobody reads it there. Hashes, names and paths stay."""
    run = text[match.start() : match.end()]
    body = run.rstrip("=")
    if _HEX.fullmatch(body):
        return run
    if len(body) >= BLOB and _changes(body) >= 0.4 * len(body):
        return "(data left out)"
    return "(data left out)" if _is_text(body) else run


def _changes(body: str) -> int:
    """How often the kind of character changes: at nearly every second one in data, seldom in words and paths."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" if c.islower() else "s" for c in body]
    return sum(a != b for a, b in pairwise(kinds))


def _is_text(body: str) -> bool:
    """Whether base64 of readable words: printable ASCII with a blank in it, which no name decodes to by chance."""
    body = body.replace("-", "+").replace("_", "/")
    body = body[: len(body) - (1 if len(body) % 4 == 1 else 0)]
    try:
        decoded = base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b" " in decoded and all(32 <= byte < 127 or byte in b"\n\t" for byte in decoded)


# ---------------------------------------------------------------- markup

_ROLES = r"(?:system|assistant|developer|user|human|ai|bot|chatbot|model|tool|function)"
_ROLE = rf"{_ROLES}(?:[ _-](?:prompt|message|instructions?|note|override))?"
# Tags that stand nowhere but in prompts, and others that may also be a placeholder: "ssh <user>@host".
_SURE = (
    r"(?:system|assistant|human|developer|instructions?|system[_-]?(?:prompt|message|instructions?)|im_start|im_end|"
    r"tool_calls?|tool_use|tool_results?|tool_response|function_calls?|function_results?|invoke|antml:[\w-]+|think|"
    r"thinking|scratchpad|answer|start_of_turn|end_of_turn|bos|eos|begin_of_text|end_of_text|sources|passages?|"
    r"documents|context|untrusted)"
)
_MAYBE = (
    r"(?:source|document|user|s|tool|function|parameter|search_results?|message|prompt|query|question|model|ai|turn)"
)
_ACTIVE = r"(?:script|style|iframe|object|embed|form|button|svg|link|meta|base|video|audio|applet|template)"
_HIDING = (
    r"(?:display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?:\.0\d*)?\s*[;\"'>]|"
    r"font-size\s*:\s*[01](?:\.\d+)?(?:px|pt|em|%)?\s*[;\"'>]|(?:left|top|text-indent)\s*:\s*-\d{3,}|"
    r"(?<!-)color\s*:\s*(?:white|#fff(?:fff)?\b|transparent|rgba?\(\s*255\s*,\s*255\s*,\s*255)|"
    r"aria-hidden\s*=\s*[\"']?true|\shidden[\s>=])"
)
_ATTRIBUTE = re.compile(r"\balt\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", re.IGNORECASE)
_PLAIN = re.compile(r"https?://[\w.:-]+(?:/[\w./~%+-]*)?")
_SCHEME = re.compile(r"[a-z][a-z\d+.-]{1,20}:|//", re.IGNORECASE)
_ANGLES = {ord("<"): "‹", ord(">"): "›", ord("＜"): "‹", ord("＞"): "›"}
_SQUARES = {ord("["): "(", ord("]"): ")", ord("【"): "(", ord("】"): ")", ord("［"): "(", ord("］"): ")"}


def _image(match: re.Match[str], text: str) -> str:
    words = " ".join(text[slice(*match.span("alt"))].split())
    return f"(image: {words})" if words else "(image)"


def _tag_image(match: re.Match[str], text: str) -> str:
    found = _ATTRIBUTE.search(text[match.start() : match.end()])
    words = " ".join((found.group(1) or found.group(2) or "").split()) if found else ""
    return f"(image: {words})" if words else "(image)"


def _link(match: re.Match[str], text: str) -> str:
    """The words, with the target behind them where it is a plain address: no query, which can carry data out."""
    words, target = text[slice(*match.span("words"))], text[slice(*match.span("target"))]
    before = text[match.start() - 1 : match.start()]
    if (before.isalnum() or before in ("_", ")", "]")) and before and not _SCHEME.match(target):
        return text[match.start() : match.end()]  # of code: an element of an array that is called
    if len(target) > 200 or target in words or _PLAIN.fullmatch(target) is None:
        return words or "(link)"
    return f"{words} ({target})"


def _angles(match: re.Match[str], text: str) -> str:
    return text[match.start() : match.end()].translate(_ANGLES)


def _rounds(match: re.Match[str], text: str) -> str:
    return text[match.start() : match.end()].translate(_SQUARES)


def _quoted(match: re.Match[str], text: str) -> str:
    """A role in quotation marks: the line keeps its meaning, in YAML and JSON too, and begins no turn."""
    lead, role, end = (text[slice(*match.span(n))] for n in ("lead", "role", "end"))
    return f'{lead}"{role}"{end}'


def _inside(match: re.Match[str], text: str) -> str:
    return text[match.start() + 1 : match.end() - 1]


def _unmarked(match: re.Match[str], text: str) -> str:
    """Without the colon at its end."""
    return text[match.start() : match.end() - 1] + " "


def _rule(pattern: str, replace: Replace, flags: re.RegexFlag = re.IGNORECASE) -> tuple[re.Pattern[str], Replace]:
    return re.compile(pattern, flags), replace


_FRAME = re.compile(r"<\|[^<>\n]{0,80}?\|>|<<[^<>\n]{0,80}>>")
# Comments, hidden elements, programs: on the page nobody sees them.
_HIDDEN = (
    re.compile(r"<!--.{0,4000}?-->", re.DOTALL),
    re.compile(
        rf"<(?P<t>[a-z]\w{{0,15}})\b(?=[^<>]{{0,400}}{_HIDING})[^<>]{{0,400}}>.{{0,4000}}?</(?P=t)\s*>",
        re.IGNORECASE | re.DOTALL,
    ),
    re.compile(r"<(?P<t>script|style)\b[^<>]{0,400}>.{0,4000}?</(?P=t)\s*>", re.IGNORECASE | re.DOTALL),
)
# What a bracket can hold is bounded, so that a text of nothing but brackets is read in a moment.
_RULES: tuple[tuple[re.Pattern[str], Replace], ...] = (
    *((pattern, " ") for pattern in _HIDDEN),
    _rule(r"<(?=!--)", "‹"),
    _rule(r"<img\b[^<>]{0,4000}>", _tag_image),
    _rule(r"</?a\b(?:\s[^<>]{0,4000})?>", " "),
    _rule(rf"</?{_ACTIVE}\b[^<>]{{0,400}}>", _angles),
    (_DATA, "(data left out)"),
    (_ENCODED, _without_data),
    _rule(r"!\[(?P<alt>[^\[\]]{0,500})\](?:\((?:[^()\n]|\([^()\n]{0,200}\)){0,2000}\)|\[[^\[\]\n]{0,100}\])", _image),
    _rule(
        r"\[(?P<words>[^\[\]]{0,500})\]"
        r"\(\s*<?(?P<target>(?:[^\s()<>]|\([^\s()<>]{0,200}\)){1,2000})>?(?:\s+[\"'][^\"'\n]{0,500}[\"'])?\s*\)", _link
    ),
    _rule(r"<(?:https?|ftp|mailto):[^\s<>]{1,2000}>", _inside),
    _rule(r"^ {0,3}\[[^\]\n^]{1,100}\]:(?=[ \t]*\S)", _unmarked, re.MULTILINE),
    _rule(r"\b(?:javascript|vbscript):(?=\S)", _unmarked),
    _rule(r"<\|[^<>\n]{0,80}?\|>|<\|(?=\w)|(?<=\w)\|>", _angles),
    _rule(r"<<\s*/?\s*sys\s*>>|<<\s*(?:end of\s+)?(?:source|turn|question)\b[^<>\n]{0,80}>>", _angles),
    _rule(rf"</?\s*{_SURE}(?:\s[^<>\n]{{0,200}})?\s*/?>", _angles),
    _rule(rf"</\s*{_MAYBE}\s*>|^[ \t]*<{_MAYBE}(?:\s[^<>\n]{{0,200}})?>", _angles, re.IGNORECASE | re.MULTILINE),
    _rule(
        r"\[/?(?:INST|SYS|SYSTEM|USER|ASSISTANT|HUMAN|AI|TOOL_CALLS|TOOL_RESULTS?|AVAILABLE_TOOLS)\]", _rounds,
        re.NOFLAG,
    ),
    _rule(r"\[\^\s*\d[\d,;^ –-]{0,40}\]|【[^【】\n]{1,60}】", _rounds),
    _rule(rf"^(?P<lead>[ \t>*_#-]*)(?P<role>{_ROLE})(?P<end>[ \t*_]*:)", _quoted, re.IGNORECASE | re.MULTILINE),
    _rule(
        rf"^(?P<lead>#{{1,6}}[ \t]*)(?P<role>{_ROLES}|instructions?)(?P<end>[ \t]*)$", _quoted,
        re.IGNORECASE | re.MULTILINE,
    ),
    _rule(r"\n(?:[ \t]*\n){3,}", "\n\n\n"),
)  # fmt: skip


def _once(text: str) -> str:
    text = visible(text)
    for pattern, replace in _RULES:
        text = _replaced(text, pattern, replace)
    return text


def _replaced(text: str, pattern: re.Pattern[str], replace: Replace) -> str:
    seen = looks(text)
    parts, at = [], 0
    for match in pattern.finditer(seen):
        parts += [text[at : match.start()], replace if isinstance(replace, str) else replace(match, text)]
        at = match.end()
    return "".join([*parts, text[at:]])


def _flat(text: str) -> str:
    """Without brackets that could enclose anything."""
    return text.translate(_ANGLES | _SQUARES)
