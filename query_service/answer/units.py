"""A passage as the pieces that an answer may be made of: sentences, list items, rows of tables, short blocks of code.

Their words are the source's, with three exceptions that change none of them: a row is written as ``Column: value``, the
marks of lists and emphasis are left out, and a source's own footnote marks go, since ours look like them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.chunk.sentences import is_limiting
from query_service import cutting

Kind = Literal["sentence", "item", "step", "row", "code"]
MOST_CODE = 600  # characters of a block that is quoted
MOST = 1200  # characters of any other piece

_HEADING = re.compile(r"(#{1,6}) +(.+?)\s*#*$")
_ITEM = re.compile(r"\s*(?:(?P<bullet>[-*+•–])|(?P<number>\(?\d{1,3}[.)]))\s+(?P<text>\S.*)", re.DOTALL)
_FENCE = re.compile(r"(`{3,}|~{3,})")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,40}\]")
_EMPHASIS = re.compile(r"(?<!\w)(\*\*|__)(?=\S)(.+?)(?<=\S)\1(?!\w)")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*(?:\s+\"[^\"]*\")?\)")
_CELLS = re.compile(r"(?<!\\)\|")
# What opens with one of these says nothing without the sentence before it.
_DEPENDENT = re.compile(
    r"[\s\"'“‘(*]*(?:this|that|these|those|it|its|they|their|them|he|she|his|her|such|both|either|neither|then|"
    r"therefore|"
    r"thus|hence|so|also|however|but|otherwise|instead|nevertheless|in that case|if so|if not|the latter|the former|"
    r"until then|after that|most of them|most are|half of them|the rest|"
    r"(?:any|every)thing (?:above|below|over|under|beyond|else|more|less)|all others|"
    r"(?:above|below|over|under|beyond) (?:it|that|this|which|\d\S*)|"
    r"alles (?:andere|darüber|darunter)|darüber|darunter|"
    r"dies|diese[rsmn]?|es|sie|er|dadurch|dabei|dafür|damit|daher|deshalb|dann|jedoch|allerdings|sonst|andernfalls|"
    r"cela|ceci|ce|cette|ces|il|elle|ils|elles|donc|alors|cependant|sinon|"
    r"esto|esta|este|estos|estas|ello|ellos|ellas|entonces|sin embargo|por eso|así)\b(?!\s+(?:page|document|section|"
    r"guide)\b)",
    re.IGNORECASE,
)
# "Renew it with …" as well: what "it" is stands before.
_POINTS_BACK = re.compile(r"[A-Z][a-z]+ (?:it|them|this)\b")
# Nothing in these answers anything.
_BOILERPLATE = re.compile(
    r"(?:home|table of contents|contents|see also|related (?:pages|links|articles)|last (?:updated|modified|edited)|"
    r"back to (?:top|overview)|click here|read more|skip to (?:main )?content|all rights reserved|copyright|©|"
    r"previous|next|edit this page|cookie(?:s)? (?:policy|settings)|inhaltsverzeichnis|siehe auch|zuletzt geändert|"
    r"weiterlesen|voir aussi|table des matières|véase también|índice)\b[^.!?]{0,60}\W*$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_RULE = re.compile(r"[\s|:-]+")
_CRUMBS = re.compile(r"\S+(?:\s+(?:>|»|›|/|\|)\s+\S+){2,}")


@dataclass(frozen=True)
class Unit:
    """One piece. ``source`` is the number of its passage, ``at`` its place there; pieces of one list or table share
    ``group``. ``headings`` are those above it within the passage and of its path, the nearest last."""

    source: int
    at: int
    text: str
    kind: Kind = "sentence"
    headings: tuple[str, ...] = ()
    group: int = -1
    dependent: bool = False
    limiting: bool = False
    language: str = ""  # of code
    key: str = ""  # first cell of a row
    opens: bool = False  # an item of a list begins with it
    lead: str = ""  # the line with a colon that the list stands under: "On the first day"
    mark: str = ""  # of a numbered step that opens: "3."

    @property
    def shown(self) -> str:
        """As it stands in an answer, without the footnote."""
        return f"```{self.language}\n{self.text}\n```" if self.kind == "code" and "\n" in self.text else self.text


@dataclass
class _Place:
    """Where the walk stands."""

    source: int
    path: tuple[str, ...]
    inner: list[tuple[int, str]]
    group: int = 0
    in_group: Literal["", "list", "table"] = ""
    item: Kind | None = None  # that is open
    said: str = ""  # the last line, where it ends with a colon
    lead: str = ""  # of the list that is open


def units(text: str, source: int, path: tuple[str, ...] = ()) -> list[Unit]:
    """The pieces of one passage in order. ``path`` is its heading path; headings within it are Markdown lines."""
    place = _Place(source, path, [])
    found: list[Unit] = []
    for unit in _walk(text, place):
        found.append(replace(unit, at=len(found)))
    return found


def _walk(text: str, place: _Place) -> Iterator[Unit]:
    end = 0
    code: tuple[int, int] | None = None
    header: list[str] = []
    for part in cutting.units(text):
        raw, gap = text[part.start : part.end], text[end : part.start]
        end = part.end
        if part.kind == "code":
            if code is not None and part.head is None:  # another block follows at once
                yield from _code(text[code[0] : code[1]], place)
                code = None
            code = (part.start if code is None else code[0], part.end)
            continue
        if code is not None:
            yield from _code(text[code[0] : code[1]], place)
            code = None
        if part.kind == "row":
            if part.head is None:
                if place.in_group != "table" or not _RULE.fullmatch(raw):
                    header = _cells(raw)
                    place.group += 1
                place.in_group = "table"
            elif (row := _row(header, _cells(raw), place)) is not None:
                yield row
        elif heading := _HEADING.match(raw):
            level = len(heading[1])
            place.inner = [one for one in place.inner if one[0] < level] + [(level, heading[2])]
            place.in_group, place.item = "", None
        else:
            yield from _prose(raw, gap, place)
    if code is not None:
        yield from _code(text[code[0] : code[1]], place)


def _prose(raw: str, gap: str, place: _Place) -> Iterator[Unit]:
    begins = "\n" in gap or not gap
    item = _ITEM.match(raw) if begins else None
    if item is not None:
        if place.in_group != "list":
            place.group += 1
            place.lead = place.said
        place.in_group, place.item = "list", "step" if item["number"] else "item"
    elif place.item is None or begins:
        place.in_group, place.item = "", None
    said = plain(item["text"] if item is not None else raw)
    place.said = said.rstrip(": ") if item is None and said.endswith(":") else ""
    if said and len(said) <= MOST and not is_furniture(said):
        yield Unit(
            place.source, 0, said, place.item or "sentence", _headings(place), place.group if place.in_group else -1,
            dependent=item is None and is_dependent(said), limiting=item is None and is_limiting(said),
            opens=item is not None, lead=place.lead if place.in_group == "list" else "",
            mark=f"{item['number'].strip('().')}." if item is not None and item["number"] else "",
        )  # fmt: skip


def _code(block: str, place: _Place) -> Iterator[Unit]:
    """A block without its fences; nothing of a long one, since half of it would be wrong."""
    place.in_group, place.item = "", None
    lines = block.split("\n")
    opening = _FENCE.match(lines[0])
    language = lines[0][opening.end() :].strip() if opening else ""
    if opening:
        lines = lines[1:]
        if lines and lines[-1].strip() == opening[1]:
            lines = lines[:-1]
    body = "\n".join(lines).strip("\n")
    if body.strip() and len(body) <= MOST_CODE and "```" not in body and not _FOOTNOTE.search(body):
        yield Unit(place.source, 0, body, "code", _headings(place), dependent=True, language=language)


def _cells(raw: str) -> list[str]:
    return [plain(cell.strip().replace("\\|", "|")) for cell in _CELLS.split(raw.strip().strip("|"))]


def _row(header: list[str], cells: list[str], place: _Place) -> Unit | None:
    """``Column: value; Column: value.``; a cell without a column or a value is shown as it is, or left out."""
    parts = []
    for number, cell in enumerate(cells):
        column = header[number] if number < len(header) else ""
        if cell:
            parts.append(f"{column}: {cell}" if column else cell)
    said = "; ".join(part.rstrip(".;") if n + 1 < len(parts) else part for n, part in enumerate(parts))
    if not parts or len(said) > MOST or not any(map(str.isalnum, said)):
        return None
    said = said if said[-1:] in ".!?。" else said + "."
    return Unit(place.source, 0, said, "row", _headings(place), place.group, key=cells[0])


def _headings(place: _Place) -> tuple[str, ...]:
    return (*place.path, *(text for _, text in place.inner))


def plain(text: str) -> str:
    """Words without marks of emphasis, addresses of links, and footnote marks of the source."""
    text = _FOOTNOTE.sub("", _LINK.sub(r"\1", text))
    return " ".join(_EMPHASIS.sub(r"\2", text).split())


def is_dependent(text: str) -> bool:
    """Whether a sentence says nothing without the one before it."""
    return _DEPENDENT.match(text) is not None or _POINTS_BACK.match(text) is not None


def is_furniture(text: str) -> bool:
    """Whether this is navigation, a bare list of links, a notice: nothing that answers a question."""
    bare = _ADDRESS.sub("", text)
    if not any(map(str.isalnum, text)):
        return True
    if len(bare.strip(" .,;:()<>-")) < max(3, len(text) // 3):
        return True
    return bool(_BOILERPLATE.match(text)) or (len(text) < 120 and bool(_CRUMBS.fullmatch(text.rstrip(" ."))))
