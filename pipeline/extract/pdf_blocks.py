"""Lines and tables of all pages to typed blocks: paragraphs, lists, code, headings with their levels, footnotes."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from statistics import median

from pipeline.extract.builder import table_block
from pipeline.extract.pdf_headings import Outline, is_heading, is_listed, levels
from pipeline.extract.pdf_lists import list_block, marker_of
from pipeline.extract.pdf_model import Item, Line, Paragraph, Prepared, Table
from pipeline.extract.pdf_text import hyphenated, mended
from schemas.documents import Block

_ENDS = re.compile(r"[.!?:…。！？：][\"'”’»)\]]*$")
_NOTE = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹]+|[*†‡§])\s*(?=\S)")
_FROM_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_REFERENCE = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+")


@dataclass
class _Measure:
    """What is usual in the document: body size, distance of lines as a multiple of the size, words with hyphens."""

    body: float
    pitch: float
    mono_body: bool
    known: frozenset[str]


def to_blocks(pages: list[list[Item]], outline: Outline) -> list[Block]:
    """Blocks in reading order, each with the page on which it begins."""
    measure = _measured(pages)
    parts = _paragraphs(pages, measure)
    headings = _headings(parts, outline, measure)
    blocks: list[Block] = []
    items: list[Paragraph] = []
    marked = _marked_pages(parts)
    for part in parts:
        in_list = isinstance(part, Paragraph) and _in_list(part, items) and id(part) not in headings
        if isinstance(part, Paragraph) and in_list and not _begins_another(part, items):
            items.append(part)
            continue
        if items:
            blocks.append(list_block(items, lambda p: _text(p, measure, marked)))
            items = []
        if isinstance(part, Paragraph) and in_list:
            items.append(part)
        elif isinstance(part, Table):
            made = table_block(part.rows, part.header_rows)
            if made is not None:
                blocks.append(made.model_copy(update={"page": part.page}))
        elif isinstance(part, Prepared):
            blocks.append(Block(type="paragraph", text=part.text, page=part.page))
        else:
            blocks.append(_block(part, headings.get(id(part), 0), measure, marked))
    if items:
        blocks.append(list_block(items, lambda p: _text(p, measure, marked)))
    return blocks


def _measured(pages: list[list[Item]]) -> _Measure:
    sizes, mono = Counter[float](), Counter[bool]()
    ratios: list[float] = []
    lines = [item for items in pages for item in items if isinstance(item, Line)]
    for line in lines:
        mono[line.mono] += len(line.text)
    mono_body = mono[True] > 0.8 * max(sum(mono.values()), 1)
    for line in lines:
        if mono_body or not line.mono:
            sizes[round(line.size * 2) / 2] += len(line.text)
    for above, below in itertools.pairwise(lines):
        step = below.base - above.base
        if above.page == below.page and above.size == below.size and 0.8 * above.size < step < 2 * above.size:
            ratios.append(step / above.size)
    body = max(sizes, key=lambda s: (sizes[s], -s), default=10.0)
    return _Measure(body, median(ratios) if ratios else 1.3, mono_body, hyphenated([line.text for line in lines]))


def _paragraphs(pages: list[list[Item]], measure: _Measure) -> list[Paragraph | Table | Prepared]:
    parts: list[Paragraph | Table | Prepared] = []
    notes: list[Paragraph] = []
    current: Paragraph | None = None
    for items in pages:
        for item in items:
            if isinstance(item, Line):
                note = _is_note(item, items, notes, measure)
                if note is not None:
                    if not notes or note is not notes[-1]:
                        notes.append(note)
                    continue
                if current is not None and _goes_on(current, item, measure):
                    if current.kind == "text" and _is_deliberate(current.last, item):
                        current.breaks.add(len(current.lines))
                    current.lines.append(item)
                    continue
                parts.extend(_flushed(notes, item.page))
                current = Paragraph("code" if _is_code(item, current, measure) else "text", [item])
                parts.append(current)
                continue
            if isinstance(item, Table):
                before = parts[-1] if parts else None
                if isinstance(before, Table) and _continues_table(before, item):
                    continue
            current = None
            parts.append(item)
    return parts + list(notes)


def _flushed(notes: list[Paragraph], page: int) -> list[Paragraph]:
    """Notes of earlier pages: they stand after the paragraph that ran over their page's end."""
    done = [note for note in notes if note.first.page < page]
    notes[:] = [note for note in notes if note.first.page >= page]
    return done


def _is_note(line: Line, items: list[Item], notes: list[Paragraph], measure: _Measure) -> Paragraph | None:
    """The footnote that a small line at a page's foot begins or goes on with."""
    tagged = line.tag is not None and line.tag.role in ("Note", "FENote")
    if line.size > 0.93 * measure.body and not tagged:
        return None
    last = notes[-1] if notes else None
    if _NOTE.match(line.text):
        foot = max((i.bottom for i in items if isinstance(i, (Line, Table))), default=0.0)
        return Paragraph("note", [line]) if tagged or foot - line.top < 0.35 * foot else None
    if last is None or last.last.page != line.page or last.last.left != line.left:
        return None
    if abs(last.last.size - line.size) < 0.5 and 0 < line.base - last.last.base < 2 * line.size:
        last.lines.append(line)
        return last
    return None


def _is_code(line: Line, before: Paragraph | None, measure: _Measure) -> bool:
    if not line.mono or measure.mono_body:
        return False
    if line.tag is not None and line.tag.role in ("P", "LI") and line.tag.role != "Code":
        return False
    if before is not None and before.kind == "text" and not _ENDS.search(before.last.text):
        above = before.last
        step = line.base - above.base
        near = above.page == line.page and 0 < step < 1.15 * measure.pitch * above.size
        return not (near and abs(line.x0 - above.x0) < 1 and _is_full(above))  # a line of a paragraph, all in code
    return True


def _goes_on(part: Paragraph, line: Line, measure: _Measure) -> bool:
    last = part.last
    here = last.page == line.page and line.left == last.left and line.base > last.base
    if part.kind == "code":
        if not line.mono or abs(line.size - last.size) > 0.6:
            return False
        return here is False or line.base - last.base < 4.2 * measure.pitch * line.size
    if line.mono and not last.mono and _is_code(line, part, measure):
        return False
    if abs(line.size - last.size) > 0.08 * last.size or line.bold != last.bold:
        return False
    if last.tag is not None and line.tag is not None and here and last.tag.element >= 0 and line.tag.element >= 0:
        return last.tag.element == line.tag.element
    marker = marker_of(line.text)
    if not here:
        return _runs_over(part, line) and marker is None
    step = line.base - last.base
    steps = [b.base - a.base for a, b in zip(part.lines, part.lines[1:], strict=False) if b.page == a.page]
    usual = median(s for s in steps if s > 0) if any(s > 0 for s in steps) else measure.pitch * line.size
    if step > (1.25 if steps else 1.3) * usual:
        return False
    if marker is not None and (marker.certain or marker_of(part.first.text) is not None or _ENDS.search(last.text)):
        return False
    if marker_of(part.first.text) is not None:
        if len(part.lines) > 1 and line.x0 < last.x0 - 0.6 * line.size:
            return False
        return not (line.x0 <= part.first.x0 + 1 and not _is_full(last))
    indented = line.x0 - last.x0 > 0.8 * line.size and abs(_centre(line) - _centre(last)) > line.size
    if indented and (len(part.lines) > 1 or abs(last.x0 - last.left) < 1):
        return False
    return not (_is_deliberate(last, line) and _ENDS.search(last.text))


def _runs_over(part: Paragraph, line: Line) -> bool:
    """Does a paragraph go on in the next column or on the next page?"""
    last = part.last
    if last.page not in (line.page, line.page - 1) or _ENDS.search(last.text):
        return False
    if last.tag is not None and line.tag is not None and last.tag.role != line.tag.role:
        return False
    if line.text[:1].islower() or last.text[-1:] in "-,;\u00ad":
        return True
    return _is_full(last) and line.x0 - line.left < 1 and len(last.text) > 30


def _is_full(line: Line) -> bool:
    return line.x1 > line.left + 0.82 * (line.right - line.left)


def _is_deliberate(last: Line, line: Line) -> bool:
    """Would the first word have had room in the line before?"""
    word = line.text.split(" ", 1)[0]
    share = (line.x1 - line.x0) * len(word) / max(len(line.text), 1)
    if is_listed(last.text):
        return True
    if line.text[:1].islower() or last.page != line.page or last.left != line.left:
        return False
    return last.x1 + share + line.size < last.right


def _centre(line: Line) -> float:
    return (line.x0 + line.x1) / 2


def _continues_table(before: Table, after: Table) -> bool:
    """Add a table on the next page to the one before if it has its columns; its repeated header goes."""
    width = len(before.rows[0])
    if after.page != (before.last_page or before.page) + 1 or len(after.rows[0]) != width:
        return False
    if any(abs(a - b) > 6 for a, b in zip(before.edges, after.edges, strict=False)):
        return False
    head = before.header_rows
    rows = after.rows[head:] if head and after.rows[:head] == before.rows[:head] else after.rows
    before.rows.extend(rows)
    before.last_page = after.page
    return True


def _headings(parts: list[Paragraph | Table | Prepared], outline: Outline, measure: _Measure) -> dict[int, int]:
    texts = [part for part in parts if isinstance(part, Paragraph) and part.kind == "text"]
    tagged = any(part.first.tag is not None and part.first.tag.level and part.first.tag.role != "LI" for part in texts)
    plain = [(part, _joined(part, measure)) for part in texts]
    found = [
        (part, text) for part, text in plain
        if is_heading(part.first, len(part.lines), text, outline, measure.body, tagged)
    ]  # fmt: skip
    if len(found) > 0.6 * len(parts) and not tagged and len(parts) > 8:
        found = [(part, text) for part, text in found if part.first.size > 1.12 * measure.body]
    depths = levels([(text, part.first, part.style) for part, text in found], outline, tagged)
    return {id(part): depth for (part, _), depth in zip(found, depths, strict=True)}


def _in_list(part: Paragraph, items: list[Paragraph]) -> bool:
    if part.kind != "text":
        return False
    if marker_of(part.first.text) is not None or (part.first.tag is not None and part.first.tag.role == "LI"):
        return True
    if not items or (part.first.tag is not None and part.first.tag.role != "LI"):
        return False
    before = items[-1].first
    return part.first.page == before.page and part.first.left == before.left and part.first.x0 > before.x0 + 4


def _begins_another(part: Paragraph, items: list[Paragraph]) -> bool:
    """Numbers after bullets at the outermost level, or bullets after numbers, are another list."""
    if not items:
        return False
    first, marker, before = items[0].first, marker_of(part.first.text), marker_of(items[0].first.text)
    if part.first.tag is not None and first.tag is not None and part.first.tag.level != first.tag.level:
        return False
    other = (marker is None or marker.shown == "-") != (before is None or before.shown == "-")
    tagged = part.first.tag is not None and part.first.tag.role == "LI"
    return (marker is not None or tagged) and other and abs(part.first.x0 - first.x0) < 20


def _marked_pages(parts: list[Paragraph | Table | Prepared]) -> set[tuple[int, str]]:
    """Pages with a footnote, and its mark."""
    found: set[tuple[int, str]] = set()
    for part in parts:
        if isinstance(part, Paragraph) and part.kind == "note" and (mark := _NOTE.match(part.first.text)):
            found.add((part.first.page, mark.group(1)))
    return found


def _joined(part: Paragraph, measure: _Measure) -> str:
    text = part.first.text
    for line in part.lines[1:]:
        text = mended(text, line.text, measure.known)
    return text


def _text(part: Paragraph, measure: _Measure, marked: set[tuple[int, str]]) -> str:
    text = _referred(part.first, marked)
    for i, line in enumerate(part.lines[1:], start=1):
        following = _referred(line, marked)
        text = (
            f"{text}\n{following}"
            if i in part.breaks and not text.endswith("-")
            else mended(text, following, measure.known)
        )
    return text.replace("\u00ad", "")


def _referred(line: Line, marked: set[tuple[int, str]]) -> str:
    """A line with the marks of its page's footnotes written as such."""
    if not marked:
        return line.text
    return _REFERENCE.sub(
        lambda m: f"[^{m.group().translate(_FROM_SUPERSCRIPT)}]" if (line.page, m.group()) in marked else m.group(),
        line.text,
    )


def _block(part: Paragraph, level: int, measure: _Measure, marked: set[tuple[int, str]]) -> Block:
    page = part.first.page
    if level:
        return Block(type="heading", text=_joined(part, measure).replace("\u00ad", ""), level=level, page=page)
    if part.kind == "code":
        return Block(type="code", text=_code(part), page=page)
    text = _text(part, measure, marked)
    if part.kind == "note":
        mark = _NOTE.match(part.first.text)
        if mark is not None and not text.startswith("[^"):
            text = f"[^{mark.group(1).translate(_FROM_SUPERSCRIPT)}] {text[mark.end() :]}"
        return Block(type="footnote", text=text, page=page)
    quote = part.first.tag is not None and part.first.tag.role == "BlockQuote"
    return Block(type="quote" if quote else "paragraph", text=text, page=page)


def _code(part: Paragraph) -> str:
    """Lines with their indentation and the blank lines between them."""
    advance = median(line.advance for line in part.lines) or 1.0
    lefts: dict[tuple[int, float], float] = {}
    for line in part.lines:
        key = (line.page, line.left)
        lefts[key] = min(lefts.get(key, line.x0), line.x0)
    pairs = list(zip(part.lines, part.lines[1:], strict=False))
    steps = [b.base - a.base for a, b in pairs if b.page == a.page and b.base - a.base > 0.8 * a.size]
    pitch = min(steps, default=0.0)
    text = ""
    for i, line in enumerate(part.lines):
        if i:
            step = line.base - part.lines[i - 1].base if line.page == part.lines[i - 1].page else 0.0
            text += "\n" * (max(1, min(round(step / pitch), 8)) if pitch else 1)
        text += " " * min(round((line.x0 - lefts[line.page, line.left]) / advance), 400) + line.text
    return text
