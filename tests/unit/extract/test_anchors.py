"""From a slice of a block back to its place in the source."""

from __future__ import annotations

import html
import random
import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract import BlockExtractor
from pipeline.extract.anchor_pairs import MAX_ANCHORS, Run, pairs_of
from pipeline.extract.anchors import anchored
from pipeline.extract.charset import decode
from pipeline.places import source_span
from schemas.documents import Block

WIKI = Path(__file__).parents[3] / "samples" / "wiki"
_WORDS = (
    "ship anchor harbour night storm captain über größer naïve the a of and to sail rope crane quay tide current buoy "
    "X-500-G2 readFile() 12.5 v2.4.18 障害 контейнер"
)
WORDS = _WORDS.split()


def blocks_of(source: str, media: str) -> list[Block]:
    return list(BlockExtractor().extract(source.encode(), media).blocks)


def found(block: Block, source: str, start: int, end: int) -> str:
    """The source's text for a slice of a block."""
    span = source_span(block, start, end)
    assert span is not None, (block, start, end)
    assert 0 <= span[0] < span[1] <= len(source)
    return source[span[0] : span[1]]


def sentence(chance: random.Random) -> list[str]:
    return [chance.choice(WORDS) for _ in range(chance.randrange(3, 14))]


def as_markdown(chance: random.Random, words: list[str]) -> str:
    marks = ("{}", "{}", "{}", "**{}**", "*{}*", "`{}`", "[{}](https://example.com/a-b?c=d)", "{}<!-- hm -->", "~~{}~~")
    return " ".join(chance.choice(marks).format(word) for word in words)


def as_html(chance: random.Random, words: list[str]) -> str:
    marks = ("{}", "{}", "{}", "<b>{}</b>", '<i class="x">{}</i>', "<code>{}</code>", '<a href="/q/ship">{}</a>',
             "<span\n data-a='b'>{}</span>")  # fmt: skip
    escaped = [html.escape(word).replace("ü", "&uuml;") for word in words]
    return chance.choice((" ", "\n  ", "&nbsp;")).join(chance.choice(marks).format(word) for word in escaped)


def shown(source: str) -> str:
    return html.unescape(re.sub(r"<[^<>]*>", "", source))


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize("media", ["text/markdown", "text/html"])
def test_a_slice_stands_where_its_words_stand(media: str) -> None:
    for seed in range(120):
        slices_stand_where_their_words_stand(random.Random(seed), media)


def slices_stand_where_their_words_stand(chance: random.Random, media: str) -> None:
    """Make a document of random words and marks; check every block as a whole and a slice of it."""
    render = as_markdown if media == "text/markdown" else as_html
    sentences = [sentence(chance) for _ in range(chance.randrange(1, 9))]
    # each paragraph begins with a word of its own, so that a wrong place cannot hold the right words by chance
    named = [[f"item{i}x", *words, f"end{i}x"] for i, words in enumerate(sentences)]
    pieces: list[str] = []
    for words in named:
        text = render(chance, words)
        if media == "text/markdown":
            pieces.append(chance.choice(("{}\n\n", "## {}\n\n", "- {}\n\n", "> {}\n\n", "1. {}\n\n")).format(text))
        else:
            lead = chance.choice(("<p>{}</p>\n", "<h2>{}</h2>", "<ul><li>{}</li></ul>", "<blockquote>{}</blockquote>"))
            pieces.append(lead.format(text))
    source = "".join(pieces)
    blocks = blocks_of(source, media)
    last = -1
    for block in blocks:
        matches = list(re.finditer(r"[^\s~]+", block.text))
        matches = [m for m in matches if m.group() not in ("-", "1.", "2.") and "example.com" not in m.group()]
        first = chance.randrange(len(matches))
        final = chance.randrange(first, len(matches))
        place = shown(found(block, source, matches[first].start(), matches[final].end()))
        for match in (matches[first], matches[final]):
            assert match.group().strip("()") in place.replace("`", ""), (block.text, place)
        whole = found(block, source, 0, len(block.text))
        begin = re.search(r"item\d+x", block.text)
        assert begin is not None and begin.group() in whole and begin.group().replace("item", "end") in whole
        assert source.index(begin.group()) >= last
        last = source_span(block, begin.start(), begin.end())[0]  # type: ignore[index]
        assert last == source.index(begin.group())


@pytest.mark.requirement("A2", "A4")
def test_every_block_of_the_sample_wiki_has_its_place() -> None:
    checked = 0
    for page in sorted(WIKI.rglob("*")):
        kind = {".md": "text/markdown", ".html": "text/html"}.get(page.suffix)
        if kind is None:
            continue
        source, _ = decode(page.read_bytes(), None, markup=kind == "text/html")
        last = -1
        for block in BlockExtractor().extract(page.read_bytes(), kind, path=page.name).blocks:
            assert block.anchors, (page.name, block.text[:60])
            assert block.anchors[0][1] >= last, (page.name, block.text[:60])
            last = block.anchors[0][1]
            words = [m for m in re.finditer(r"\w+", block.text) if not m.group().isdigit()]
            for i in range(0, len(words), 5):
                j = min(i + 4, len(words) - 1)
                place = found(block, source, words[i].start(), words[j].end())
                assert words[i].group() in place and words[j].group() in place, (page.name, block.text[:60], place)
                checked += 1
    assert checked > 1000


@pytest.mark.requirement("A4")
def test_plain_paragraphs_have_one_pair_and_emphasis_a_few() -> None:
    source = "# Title\n\nA plain paragraph of words.\n\nOne **bold** word and *another* one.\n"
    title, plain, emphasis = blocks_of(source, "text/markdown")
    assert title.anchors == ((0, 2),)
    assert plain.anchors == ((0, source.index("A plain")),)
    assert [source[at : at + 3] for _, at in emphasis.anchors] == ["One", "bol", "wor", "ano", "one"]
    assert found(emphasis, source, 4, 8) == "bold"
    assert found(emphasis, source, 0, len(emphasis.text)) == "One **bold** word and *another* one."
    assert source_span(emphasis, 3, 4) is None  # a blank
    assert source_span(Block(type="paragraph", text="x"), 0, 1) is None


@pytest.mark.requirement("A2", "A4")
def test_a_heading_is_found_at_its_place_and_not_in_the_menu() -> None:
    source = (
        '<html><head><title>Tides</title><meta name="description" content="Tides"></head><body>'
        '<nav><a href="#t">Tides</a> <a href="#s">Storms</a></nav>'
        '<main><h1 id="t">Tides</h1><p>Water comes and goes.</p><h2 id="s">Storms</h2><p>Stay in harbour.</p>'
        '<p><img src="x.png" alt="A bent mast"></p></main></body></html>'
    )
    blocks = blocks_of(source, "text/html")
    places = {block.text: source_span(block, 0, len(block.text)) for block in blocks}
    assert places["Tides"] == (source.index("Tides</h1>"), source.index("</h1>"))
    assert places["Storms"] == (source.index("Storms</h2>"), source.index("</h2>"))


@pytest.mark.requirement("A2", "A4")
def test_accents_and_entities_of_any_form_are_followed() -> None:
    text = "Größe & Kühlung: café déjà prêt, Việt Nam"
    for source in (
        unicodedata.normalize("NFD", text),
        html.escape(text).replace("ü", "&uuml;").replace("é", "&#233;").replace("ö", "&#xF6;"),
        text.replace("Kühlung", "Küh\u00adlung").replace("café", "ca\u200bfé"),
    ):
        (block,) = anchored([Block(type="paragraph", text=text)], "xyz " * 10 + source + " tail")
        assert found(block, "xyz " * 10 + source + " tail", 0, len(text)) == source


@pytest.mark.requirement("A2", "A4")
def test_a_note_set_elsewhere_and_a_block_that_is_not_there() -> None:
    source = "[^1]: The note on harbours.\n\nFirst paragraph of the text[^1].\n\nSecond paragraph, further down.\n"
    blocks = [
        Block(type="paragraph", text="First paragraph of the text[^1]."),
        Block(type="paragraph", text="Nothing like this was ever written there."),
        Block(type="paragraph", text="Second paragraph, further down."),
        Block(type="footnote", text="[^1] The note on harbours."),
    ]
    first, absent, second, note = anchored(blocks, source)
    assert found(first, source, 0, len(first.text)) == first.text
    assert absent.anchors == ()
    assert found(second, source, 0, len(second.text)) == second.text
    assert found(note, source, 5, len(note.text)) == "The note on harbours."


@pytest.mark.requirement("A4")
def test_large_tables_have_two_pairs_a_row_and_rows_keep_their_places() -> None:
    rows = [[f"name{i}", str(i * 7), "" if i % 3 else "x,y"] for i in range(3000)]
    source = "".join(",".join(f'"{c}"' if "," in c else c for c in row) + "\n" for row in rows)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    (block,) = anchored([Block(type="table", text="\n".join(lines))], source)
    assert 0 < len(block.anchors) <= 2 * len(rows) + 2
    for first, last in ((0, 1), (10, 40), (1499, 1500), (2990, 2999)):
        start = sum(len(line) + 1 for line in lines[:first])
        end = sum(len(line) + 1 for line in lines[: last + 1]) - 1
        place = found(block, source, start, end)
        assert place.startswith(f"name{first},") and place.count("\n") == last - first
        assert place.split("\n")[-1].startswith(f"name{last},{last * 7}")
    small = [["a", "b"], ["c d", "e"]] * 20
    source = "".join("\t".join(row) + "\n" for row in small)
    lines = ["| " + " | ".join(row) + " |" for row in small]
    (block,) = anchored([Block(type="table", text="\n".join(lines))], source)
    assert found(block, source, 0, len(lines[0])) == "a\tb"
    assert found(block, source, len(lines[0]) + 1, len(lines[0]) + 1 + len(lines[1])) == "c d\te"


@pytest.mark.requirement("A2", "A4")
def test_beyond_the_budget_of_lines_pairs_stand_at_every_so_many_rows() -> None:
    cells = [(f"name{i}", f"{i * 7}", f"end{i}") for i in range(1000)]
    text = "\n".join("| " + " | ".join(row) + " |" for row in cells)
    source = "".join(",".join(row) + "\n" for row in cells)
    runs = [Run(text.index(cell), source.index(cell), len(cell)) for row in cells for cell in (row[0], row[-1])]
    pairs = pairs_of(text, runs, 0)
    assert MAX_ANCHORS - 20 < len(pairs) <= MAX_ANCHORS + 4
    assert all(there == 0 or source[there - 1] == "\n" for _, there in pairs[:-1:2])
    assert all(source[there] == "\n" for _, there in pairs[1::2])
    block = Block(type="table", text=text, anchors=pairs)
    start, end = text.index("| name500 "), text.index("\n| name520 ")
    place = found(block, source, start, end)
    assert "name500," in place and ",end519" in place and place.count("\n") < 40


@pytest.mark.requirement("A2", "A4")
def test_bars_of_a_row_are_not_those_of_its_neighbours_markup() -> None:
    source = "{|\n|-\n| one || two ||  \n|-\n| three || four || five\n|-\n| six || seven || eight\n|}\n"
    lines = ["| one | two |  |", "| three | four | five |", "| six | seven | eight |"]
    (block,) = anchored([Block(type="table", text="\n".join(lines))], source)
    starts = [block.text.index(line) for line in lines]
    rows = [found(block, source, start, start + len(line)) for start, line in zip(starts, lines, strict=True)]
    assert [row.strip("| ") for row in rows] == ["one || two", "three || four || five", "six || seven || eight"]


@pytest.mark.requirement("A2", "A4")
def test_the_last_group_of_words_ends_where_the_text_does() -> None:
    words = [f"w{i}" for i in range(400)]
    source = "".join(f"<td>{word}</td>  " for word in words)
    (block,) = anchored([Block(type="paragraph", text=" ".join(words))], source)
    assert len(block.anchors) <= MAX_ANCHORS + 4
    place = found(block, source, block.text.index("w398"), len(block.text))
    assert "w398" in place and place.endswith("w399")


@pytest.mark.requirement("A2", "A4")
def test_long_texts_of_few_lines_are_followed_word_by_word() -> None:
    words = [f"w{i}" for i in range(2000)]
    source = " ".join(f"<i>{word}</i>" for word in words)
    (block,) = anchored([Block(type="paragraph", text=" ".join(words))], source)
    place = found(block, source, block.text.index("w1000"), block.text.index(" w1010"))
    assert "w1000" in place and "w1009" in place and len(place) < len(source) / 20


@pytest.mark.requirement("A2", "I8")
@pytest.mark.parametrize(
    ("texts", "source"),
    [
        (["word " * 50_000], "*word* " * 50_000),
        (["word"] * 5000, "word\n\n" * 5000),
        ([f"nothing of this {i} is there" for i in range(3000)], "2026-03-02 INFO request served\n" * 60_000),
        (["a b c d e f g h " * 3000], ("<a x " + "y" * 1900) * 500),
        (["a x " * 20_000], " " * 2_000_000),
        (["a" * 50_000 + "b"] * 20, "a" * 1_000_000),
        (["漢字" * 20_000], "漢**字**" * 20_000),
        (["&" * 5000], "&amp" * 20_000),
    ],
)
def test_hostile_sources_take_linear_time(texts: list[str], source: str) -> None:
    started = time.process_time()
    anchored([Block(type="paragraph", text=text) for text in texts], source)
    assert time.process_time() - started < 6


@pytest.mark.requirement("A2", "A4", "I8")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab <>&;*_é\u0301漢|\n", min_size=1, max_size=30), max_size=4),
    st.text("ab <>&;*_é\u0301漢|\n", max_size=80),
)
def test_anchors_ascend_and_spans_lie_inside_whatever_comes(texts: list[str], source: str) -> None:
    for block in anchored([Block(type="paragraph", text=text) for text in texts], source):
        assert list(block.anchors) == sorted(block.anchors)
        assert [at for _, at in block.anchors] == sorted(at for _, at in block.anchors)
        for start in range(0, len(block.text), 3):
            for end in range(start + 1, len(block.text) + 1, 4):
                span = source_span(block, start, end)
                assert span is None or 0 <= span[0] < span[1] <= len(source) + 1
