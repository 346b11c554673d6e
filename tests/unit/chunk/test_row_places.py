"""Ranges of chunks of long tables, lists and code: they begin and end where rows and lines of the source do."""

from __future__ import annotations

import html
import random
from collections.abc import Callable, Sequence

import pytest

from pipeline.chunk import chunker_for
from pipeline.extract import BlockExtractor
from schemas.documents import Chunk, ExtractedDocument
from schemas.generation import ChunkingSpec, EncoderSpec
from tests.unit.chunk.support import REF, SMALL, WordCounter, shared_words

Rows = Sequence[Sequence[str]]
Written = tuple[str, list[str]]  # a source, and each of its rows as it is written there

_SAID = "Rotterdam Hamburg Oslo Genoa Le Havre yes no open closed NL DE 4 7 12 12.5 A-3 Größe"
_WORDS = _SAID.split()
_ODD = ("R&D", "a < b", 'the "old" quay', "crane, two", "C++", "50 %", "#4", "x")


def random_rows(chance: random.Random) -> tuple[list[str], list[list[str]]]:
    """A header, and rows whose first cell names them; the others repeat each other, and many are empty."""
    width = chance.randrange(2, 8)
    head = [f"Column {i}" for i in range(width)]
    rows = []
    for number in range(chance.choice((30, 70, 120, 260))):
        row = [f"Port {number}"]
        for _ in range(width - 2):
            row.append(" ".join(chance.choice(_WORDS) for _ in range(chance.choice((0, 1, 1, 2, 6)))))
            if chance.random() < 0.1:
                row[-1] = chance.choice(_ODD)
        rows.append([*row, chance.choice(("yes", "no", str(chance.randrange(30)), f"berth {number}"))])
    return head, rows


def as_csv(chance: random.Random, head: Sequence[str], rows: Rows) -> Written:
    always = chance.random() < 0.3

    def cell(text: str) -> str:
        quoted = always or any(char in text for char in ',"')
        return '"' + text.replace('"', '""') + '"' if quoted else text

    lines = [",".join(map(cell, row)) for row in rows]
    return "\n".join([",".join(map(cell, head)), *lines]) + "\n", lines


def as_markdown(chance: random.Random, head: Sequence[str], rows: Rows) -> Written:
    wide = chance.choice((0, 0, 24))

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("<", "\\<").ljust(wide) for cell in row) + " |"

    lines = [line(row) for row in rows]
    table = "\n".join([line(head), "|" + " --- |" * len(head), *lines])
    return f"# Ports\n\nOslo and Genoa are ports.\n\n{table}\n\nPort 3 is yes.\n", lines


def as_html(chance: random.Random, head: Sequence[str], rows: Rows) -> Written:
    apart = chance.choice(("", "\n", "\n    "))

    def line(row: Sequence[str], tag: str) -> str:
        cells = (f'<{tag} class="yes">{html.escape(cell).replace("ö", "&ouml;")}</{tag}>' for cell in row)
        return f"<tr>{apart}{apart.join(cells)}</tr>"

    lines = [line(row, "td") for row in rows]
    return f"<h1>Ports</h1><table>{line(head, 'th')}\n" + "\n".join(lines) + "</table><p>Port 3 is yes.</p>", lines


def as_wikitext(chance: random.Random, head: Sequence[str], rows: Rows) -> Written:
    apart = chance.choice((" || ", "\n| "))
    lines = ["| " + apart.join(html.escape(cell) or " " for cell in row) for row in rows]
    return '{| class="wikitable"\n! ' + " !! ".join(head) + "\n|-\n" + "\n|-\n".join(lines) + "\n|}\n\nPort 3.\n", lines


def as_rst(chance: random.Random, head: Sequence[str], rows: Rows) -> Written:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(c.ljust(width) for c, width in zip(row, widths, strict=True)) + " |"

    lines = [line(row) for row in rows]
    body = "".join(f"{line}\n{rule}\n" for line in lines)
    return f"Ports\n=====\n\n{rule}\n{line(head)}\n{rule.replace('-', '=')}\n{body}\nPort 3.\n", lines


FORMATS: dict[str, Callable[[random.Random, Sequence[str], Rows], Written]] = {
    "text/csv": as_csv,
    "text/markdown": as_markdown,
    "text/html": as_html,
    "text/x-wiki": as_wikitext,
    "text/x-rst": as_rst,
}


def extracted(source: str, media: str) -> ExtractedDocument:
    return BlockExtractor().extract(source.encode(), media)


def chunks_of(document: ExtractedDocument, strategy: str = "hierarchical") -> tuple[Chunk, ...]:
    spec = ChunkingSpec.model_validate({"strategy": strategy, **SMALL})
    chunker = chunker_for(spec, WordCounter(), EncoderSpec(), shared_words)
    return chunker.chunk(REF, document, title="", facets="").chunks


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize("media", FORMATS)
@pytest.mark.parametrize("seed", range(12))
def test_the_range_of_rows_begins_and_ends_at_them(media: str, seed: int) -> None:
    chance = random.Random(seed)
    head, rows = random_rows(chance)
    source, lines = FORMATS[media](chance, head, rows)
    document = extracted(source, media)
    assert sum(block.type == "table" for block in document.blocks) == 1
    places, at = [], 0
    for line in lines:
        at = source.index(line, at)
        places.append((at, at + len(line)))
        at += len(line)
    seen: list[int] = []
    for chunk in chunks_of(document):
        own = [number for number in range(len(rows)) if f"| Port {number} |" in chunk.text]
        if not own:
            continue
        seen += own
        range_ = source[chunk.start : chunk.end]
        assert f"Port {own[0]}" in range_ and html.escape(rows[own[-1]][-1]) in range_
        touched = [n for n, (start, end) in enumerate(places) if start < chunk.end and end > chunk.start]
        assert touched == own, (own, range_)
        if media == "text/csv" and own[0]:
            assert range_.strip('"') == "\n".join(lines[own[0] : own[-1] + 1]).strip('"')
        first, last = places[own[0]][0], places[own[-1]][1]
        assert chunk.start <= source.index(f"Port {own[0]}", first)
        end_cell = source.rindex(rows[own[-1]][-1], first, last) + len(rows[own[-1]][-1])
        assert chunk.end >= end_cell
    assert seen == list(range(len(rows)))


def as_pre(lines: Sequence[str]) -> str:
    words = ("".join(f"<span class=k>{html.escape(word)}</span> " for word in line.split()) for line in lines)
    return "<h1>Code</h1><pre><code>" + "\n".join(words) + "</code></pre><p>After it.</p>"


def as_items(lines: Sequence[str]) -> str:
    items = ("".join(f"<b>{word}</b> " for word in line.split()) for line in lines)
    return "<h1>List</h1><ul><li>" + "</li><li>".join(items) + "</li></ul><p>After it.</p>"


def as_marked(lines: Sequence[str]) -> str:
    return "# List\n\n" + "".join(f"* **{line.replace(' ', '** *', 1)}*\n" for line in lines) + "\nAfter it.\n"


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize("write", [as_pre, as_items, as_marked])
@pytest.mark.parametrize("strategy", ["hierarchical", "recursive", "document_aware"])
def test_the_range_of_lines_begins_and_ends_at_them(write: Callable[[Sequence[str]], str], strategy: str) -> None:
    chance = random.Random(7)
    lines = [f"line{n} {chance.choice(_WORDS)} if {chance.choice(_WORDS)} then stop{n}" for n in range(300)]
    source = write(lines)
    seen: list[int] = []
    for chunk in chunks_of(extracted(source, "text/markdown" if write is as_marked else "text/html"), strategy):
        own = [number for number in range(len(lines)) if f"line{number} " in chunk.text]
        if own:
            seen += own
            assert chunk.start <= source.index(f"line{own[0]}")
            assert chunk.end >= source.index(f"stop{own[-1]}") + len(f"stop{own[-1]}")
            assert own[0] == 0 or chunk.start > source.index(f"stop{own[0] - 1}")
            assert own[-1] == 299 or chunk.end <= source.index(f"line{own[-1] + 1}")
    assert seen == list(range(300))


@pytest.mark.requirement("A2", "A4")
def test_rows_of_several_lines_and_cells_over_several_rows_keep_their_places() -> None:
    lines = [f'Port {n},"first line\n  second, ""yes"" – x",,"{n} €",yes' for n in range(150)]
    source = "name,text,empty,price,last\n" + "\n".join(lines) + "\n"
    document = BlockExtractor().extract(("\ufeff" + source.replace("\n", "\r\n")).encode(), "text/csv")
    seen: list[int] = []
    header, *chunks = chunks_of(document)  # so long a header is a chunk of its own
    assert source[header.start : header.end] == "name,text,empty,price,last"
    for chunk in chunks:
        own = [number for number in range(len(lines)) if f"| Port {number} |" in chunk.text]
        assert source[chunk.start : chunk.end] == "\n".join(lines[own[0] : own[-1] + 1])
        seen += own
    assert seen == list(range(150))
    rows = [
        ('<td rowspan="3">Oslo</td>' if n % 3 == 0 else "") + f"<td>Port {n}</td><td>NL</td><td>yes</td>"
        for n in range(150)
    ]
    source = "<table><tr><th>A<th>B<th>C<th>D</tr><tr>" + "</tr><tr>".join(rows) + "</tr></table>"
    for chunk in chunks_of(extracted(source, "text/html")):
        own = [number for number in range(len(rows)) if f"| Port {number} |" in chunk.text]
        range_ = source[chunk.start : chunk.end]
        assert own and [n for n in range(len(rows)) if f">Port {n}<" in f">{range_}<"] == own
        assert range_.endswith("yes")
