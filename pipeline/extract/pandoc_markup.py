"""reStructuredText, AsciiDoc and Org made ready for pandoc: files they name are not read, and nothing is passed over.

Each pass goes once over the lines.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.extract.pandoc_marks import NAME_CLOSE, NAME_OPEN, NOTE_LIST, TAB, Marks

# -- reStructuredText

_DIRECTIVE = re.compile(r"(\s*)\.\. ([A-Za-z][\w:.+-]*?)::(?:\s+(.*))?$")
_OPTION = re.compile(r"\s+:([\w-]+):")
_NOTE = re.compile(r"\.\. \[(#[\w.-]*|\*|[0-9]+)\]\s")
_NOTE_REFERENCE = re.compile(r"\[(#[\w.-]*|\*|[0-9]+)\]_(?!\w)")
_CODE_DIRECTIVES = frozenset({"code", "code-block", "sourcecode", "literalinclude", "parsed-literal", "math", "raw"})
_READS_FILE = frozenset({"include", "literalinclude"})
_FILE_OPTIONS = frozenset({"file", "url"})

# -- AsciiDoc

_FENCE = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,}|```.*)\s*$")
_INCLUDE = re.compile(r"\s*include::\S[^\[]*\[[^\]]*\]\s*$")
_CONDITION = re.compile(r"(?:ifdef|ifndef|ifeval|endif)::[^\[\s]*\[(.*)\]\s*$")

_ADMONITION = re.compile(r"\[(?:NOTE|TIP|WARNING|CAUTION|IMPORTANT)\]")
_BLOCK_TITLE = re.compile(r"\.[^\s.].*")
_CELL_END = re.compile(r"(^|[\s|])([^\s|]*[^\s|\\])(?=\|)")
_CELL_STYLE = re.compile(r"(?:[\d.]+[*+])?[<^>.]*[a-z]?")
_DELIMITER = re.compile(r"={4,}|-{2,}|\*{4,}|_{4,}|\.{4,}|\+{4,}|\|===|```.*")
_NAMED_NOTE = re.compile(r"footnote(?::([\w-]+)\[|ref:\[([\w-]+),?)")
_CHARACTER = re.compile(r"&(?!lt;|gt;|amp;|quot;)[A-Za-z][A-Za-z0-9]{1,30};")

# -- Org

_ORG_BLOCK = re.compile(r"\s*#\+(begin|end)_(src|example)\b", re.IGNORECASE)
_ORG_INCLUDE = re.compile(r"\s*#\+include:", re.IGNORECASE)
_ORG_NOTE = re.compile(r"\[fn:([\w-]+)\]")


@dataclass(frozen=True)
class Prepared:
    """Text for pandoc and what is doubtful about it."""

    text: str
    warnings: tuple[str, ...] = ()


def restructured_text(text: str, marks: Marks) -> Prepared:
    """For pandoc's rst reader: doctests become code, domains lose their colon, footnotes without reference stay."""
    out: list[str] = []
    left_out = 0
    literal: int | None = None  # indentation of the line that a literal block belongs to
    dropping = False
    lines = text.split("\n")
    doctest = False
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal, dropping = None, False
        if literal is not None:
            if not dropping:
                out.append(line)
            continue
        if line.startswith(">>> ") and not doctest and (not out or not out[-1].strip()):
            doctest = True
            out.extend([".. code-block:: pycon", ""])
        doctest = doctest and bool(line.strip())
        directive = _DIRECTIVE.match(line)
        if doctest:
            out.append(f"   {line}")
        elif directive is None:
            out.append(line)
            if line.rstrip().endswith("::"):
                literal = indent
        else:
            name = directive.group(2)
            reads = name in _READS_FILE or _reads_file(lines, number)
            left_out += reads
            if name in _CODE_DIRECTIVES or reads:
                literal, dropping = indent, reads
            if not reads:
                out.append(line.replace(f"{name}::", f"{name.replace(':', '-')}::", 1))
    out.extend(_unreferenced(_notes(_NOTE, lines), _NOTE_REFERENCE.findall(text), "[{}]_"))
    return Prepared("\n".join(out), _left_out(left_out))


def _notes(pattern: re.Pattern[str], lines: list[str]) -> list[str]:
    return [note.group(1) for line in lines if (note := pattern.match(line))]


def _reads_file(lines: list[str], number: int) -> bool:
    """Whether one of the options right below a directive names a file."""
    for line in lines[number + 1 : number + 20]:
        option = _OPTION.match(line)
        if option is None:
            return False
        if option.group(1) in _FILE_OPTIONS:
            return True
    return False


def _unreferenced(notes: list[str], references: list[str], form: str) -> Iterator[str]:
    """Lines that refer to the footnotes that nothing refers to, so that their text is not passed over."""
    waiting = Counter(references)
    for note in notes:
        if note in ("#", "*"):  # numbered by position
            if waiting[note]:
                waiting[note] -= 1
                continue
        elif waiting[note]:
            continue
        yield from ("", f"{NOTE_LIST} {form.format(note)}")


def asciidoc(text: str, marks: Marks) -> Prepared:
    """For pandoc's asciidoc reader: comments and conditions go, what a condition guards stays."""
    out: list[tuple[str, bool]] = []  # lines, and whether they are markup
    left_out = 0
    fence: str | None = None
    in_table = False
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        sign = mark.group(1)[:3] + mark.group(1)[3:].strip("`") if mark else ""
        if fence is None and mark:
            fence = sign if not sign.startswith("```") else "```"
        elif fence is not None and mark and (sign == fence or (fence == "```" and line.rstrip() == "```")):
            closing, fence = fence, None
            if closing.startswith("/"):
                continue
        if fence is not None and fence.startswith("/"):
            continue
        if _INCLUDE.match(line):
            left_out += 1
            continue
        if fence is None:
            if line.startswith("//") and not line.startswith("///"):
                continue
            condition = _CONDITION.match(line)
            if condition:
                line = condition.group(1)
                if not line:
                    continue
            line = _NAMED_NOTE.sub(rf"footnote:[{NAME_OPEN}\1\2{NAME_CLOSE}", line)
            line = _CHARACTER.sub(lambda found: html.unescape(found.group()), line)
            if line.startswith("|==="):
                in_table = not in_table
            elif in_table:
                line = _CELL_END.sub(_cell_apart, line)
        out.append((line, fence is None))
    return Prepared("\n".join(_framed(out)), _left_out(left_out))


def _cell_apart(end: re.Match[str]) -> str:
    """A blank between a cell's last word and the next cell: pandoc takes its last letter for a style ("pumps|")."""
    opens = end.group(1)  # a style stands at the beginning of a line or after a blank
    return end.group() if opens != "|" and _CELL_STYLE.fullmatch(end.group(2)) else f"{opens}{end.group(2)} "


def _framed(lines: list[tuple[str, bool]]) -> Iterator[str]:
    """Titled paragraphs that are admonitions get the frame without which their kind is passed over."""
    open_until_blank = False
    skip = 0
    for number, (line, markup) in enumerate(lines):
        if skip:
            skip -= 1
            continue
        after = [other.strip() for other, marked in lines[number + 1 : number + 3] if marked and markup]
        pair = (line.strip(), *after[:1])
        kind = next((one for one in pair if _ADMONITION.fullmatch(one)), None)
        title = next((one for one in pair if _BLOCK_TITLE.fullmatch(one)), None)
        following = after[1] if len(after) == 2 else ""
        if kind and title and following and not _DELIMITER.fullmatch(following):
            yield from (kind, title, "=====")
            open_until_blank, skip = True, 1
            continue
        if open_until_blank and not line.strip():
            yield "====="
            open_until_blank = False
        yield line
    if open_until_blank:
        yield "====="


def org(text: str, marks: Marks) -> Prepared:
    """For pandoc's org reader: tabs in code, archived trees and footnotes without reference stay."""
    out: list[str] = ["#+OPTIONS: arch:t H:9"]
    left_out = 0
    inside = False
    lines = text.split("\n")
    for line in lines:
        block = _ORG_BLOCK.match(line)
        if block:
            inside = block.group(1).lower() == "begin"
        elif inside:
            line = line.replace("\t", TAB)
        elif _ORG_INCLUDE.match(line):
            left_out += 1
            continue
        out.append(line)
    defined = [note.group(1) for line in lines if (note := _ORG_NOTE.match(line))]
    referred = [note.group(1) for line in lines for note in _ORG_NOTE.finditer(line) if note.start() > 0]
    # First, as the last tree of a document may be one that is left out.
    out[1:1] = [*_unreferenced(defined, referred, "[fn:{}]"), ""]
    return Prepared("\n".join(out), _left_out(left_out))


def _left_out(number: int) -> tuple[str, ...]:
    return (f"include: {number} directives name other files, whose content is not in this document",) if number else ()
