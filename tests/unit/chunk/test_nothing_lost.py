"""Every character of every block stands in the chunks, in order, whatever the script and the strategy."""

from __future__ import annotations

from itertools import pairwise

import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.embed.tokens import EstimatedTokens
from pipeline.ports import TokenCounter
from schemas.documents import Block, Chunk, ChunkedDocument
from schemas.generation import EncoderSpec, Strategy
from tests.unit.chunk.support import SMALL, TOKEN, WordCounter, every_strategy, placed

CLUSTERS = regex.compile(r"\X")
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
HARD = [
    FAMILY, "🇩🇪", "🇫🇷🇯🇵", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "e\u0301", "a\u0323\u0308", "क्षि", "한국어",
    "\u1112\u1161\u11ab", "漢字かな交じり文。", "שלום עולם", "العربية", "ภาษาไทย", "Ωμέγα", "слово", "word", "x_1",
    "v2.4.18", "。", ". ", "? ", ": ", " ", "\n",
]  # fmt: skip
WORD = st.one_of(st.text("abcdefgäß中é19", min_size=1, max_size=9), st.sampled_from(HARD))
LINE = st.lists(WORD, min_size=1, max_size=30).map(" ".join).map(lambda s: " ".join(s.split())).filter(bool)
UNBROKEN = st.tuples(st.lists(st.sampled_from(HARD[:14]), min_size=1, max_size=12), st.integers(1, 60)).map(
    lambda pair: "".join(pair[0]) * pair[1]
)
PROSE = st.one_of(
    st.lists(LINE.map(lambda s: f"{s}."), min_size=1, max_size=12).map(" ".join),
    st.lists(LINE, min_size=1, max_size=8).map("\n".join),
    UNBROKEN,
).map(str.strip)


def _table(rows: list[list[str]]) -> Block:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    header = lines[0] + "\n| --- |"
    return Block(type="table", header=header, text="\n".join([header, *lines[1:]]))


BLOCK = st.one_of(
    st.builds(lambda t, n: Block(type="heading", text=t, level=n), LINE, st.integers(0, 9)),
    st.builds(lambda k, t: Block(type=k, text=t), st.sampled_from(["paragraph", "quote"]), PROSE),
    st.builds(lambda n, t: Block(type="footnote", text=f"[^{n}] {t}"), st.integers(1, 99), PROSE),
    st.builds(
        lambda ls: Block(type="list", text="\n".join(f"{'  ' * min(i, 16)}- {x}" for i, x in enumerate(ls))),
        st.lists(LINE, min_size=1, max_size=25),
    ),
    st.builds(
        lambda k, ls: Block(type=k, text="\n".join(ls)),
        st.sampled_from(["code", "math"]),
        st.lists(st.one_of(st.just(""), LINE, UNBROKEN, st.just("\tif x:")), min_size=1, max_size=40).filter(any),
    ),
    st.lists(st.lists(LINE, min_size=1, max_size=3), min_size=2, max_size=20).map(_table),
)
COUNTERS: dict[str, TokenCounter] = {"words": WordCounter(), "estimate": EstimatedTokens()}


def assert_nothing_lost(blocks: list[Block], result: ChunkedDocument, strategy: Strategy) -> None:
    """The chunks' own ranges of the source follow each other and leave out nothing but headings and white space.

    What a range spans is in its chunk's text, in order. Headings between ranges are in a path or a text.
    """
    source = placed(*blocks)[1]
    covered, at = bytearray(len(source)), 0
    for chunk in result.chunks:
        assert at <= chunk.start < chunk.end <= len(source), strategy
        own = source[chunk.start : chunk.end]
        assert _in_order(own.split(), chunk.text), (strategy, own, chunk.text)
        covered[chunk.start : chunk.end] = b"\1" * len(own)
        at = chunk.end
    named = {heading for chunk in result.chunks for heading in chunk.heading_path}
    named |= {line.lstrip("#").strip() for chunk in result.chunks for line in chunk.text.split("\n") if line[:1] == "#"}
    for block, offset in ranges(blocks):
        left = [c for c, there in zip(block.text, covered[offset:], strict=False) if not there and not c.isspace()]
        assert not left or (block.type == "heading" and block.text in named), (strategy, block.text, left)


def _in_order(words: list[str], text: str) -> bool:
    at = 0
    for word in words:
        found = text.find(word, at)
        if found < 0:
            return False
        at = found + len(word)
    return True


def ranges(blocks: list[Block]) -> list[tuple[Block, int]]:
    """Blocks with their offsets in the source."""
    return [(b, b.anchors[0][1] - b.anchors[0][0]) for b in placed(*blocks)[0].blocks]


def assert_clusters_whole(blocks: list[Block], chunks: tuple[Chunk, ...], strategy: Strategy) -> None:
    inside: set[int] = set()
    for block, offset in ranges(blocks):
        for match in CLUSTERS.finditer(block.text):
            inside.update(range(offset + match.start() + 1, offset + match.end()))
    for chunk in chunks:
        assert chunk.start not in inside and chunk.end not in inside, (strategy, chunk.text)
        first = CLUSTERS.match("a" + chunk.text)
        assert first is not None and first.end() == 1, (strategy, chunk.text)


def assert_lines_whole(blocks: list[Block], chunks: tuple[Chunk, ...], most: int, counter: TokenCounter) -> None:
    """No chunk begins or ends within a row, a line of code or of a formula that would fit a chunk."""
    edges = {edge for chunk in chunks for edge in (chunk.start, chunk.end)}
    for block, offset in ranges(blocks):
        if block.type not in ("code", "table", "math"):
            continue
        at = offset
        for line in block.text.split("\n"):
            text = line.strip()
            begin = at + line.find(text) if text else at
            if text and counter.count(text) <= most and len(text) <= 30 * most:
                assert not edges & set(range(begin + 1, begin + len(text))), text
            at += len(line) + 1


@pytest.mark.requirement("A4", "I6")
@settings(
    max_examples=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(BLOCK, max_size=10), st.booleans(), st.sampled_from(sorted(COUNTERS)))
def test_the_chunks_of_every_strategy_cover_every_block(blocks: list[Block], small: bool, name: str) -> None:
    counter, sizes = COUNTERS[name], SMALL if small else {}
    encoder = EncoderSpec(max_tokens=64 if small else 256)
    for strategy, result in every_strategy(blocks, counter, encoder, **sizes):
        assert_nothing_lost(blocks, result, strategy)
        assert_clusters_whole(blocks, result.chunks, strategy)
        assert_lines_whole(blocks, result.chunks, 12 if small else 90, counter)
        assert all(chunk.tokens == counter.count(chunk.embed_text) <= encoder.max_tokens for chunk in result.chunks)
        assert len({c.chunk_id for c in result.chunks}) == len(result.chunks)
        read = set(TOKEN.findall(" ".join(" ".join([*s.heading_path, s.text]) for s in result.sections)))
        for block in blocks:
            if block.text.isascii() and max(map(len, block.text.split())) < 20:
                assert set(TOKEN.findall(block.text)) <= read, strategy


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "block",
    [
        Block(type="paragraph", text="x" * 150_000),
        Block(type="paragraph", text="漢" * 60_000),
        Block(type="code", text="0f" * 50_000),
        Block(type="paragraph", text=FAMILY * 1_500),
        Block(type="paragraph", text="🇩🇪" * 1_000),
        Block(type="paragraph", text="." * 20_000),
        Block(type="quote", text="e\u0301" * 5_000),
        Block(type="list", text="\n".join(f"{'  ' * (i % 17)}- item {i}" for i in range(600))),
        _table([["name", "value"], *([f"row{i}", "v " * (i % 40)] for i in range(400))]),
    ],
    ids=["letters", "han", "hex", "families", "flags", "stops", "marks", "list", "table"],
)
def test_giants_are_covered_too(block: Block) -> None:
    for strategy, result in every_strategy([block]):
        assert_nothing_lost([block], result, strategy)
        assert_clusters_whole([block], result.chunks, strategy)
        assert_lines_whole([block], result.chunks, 100, WordCounter())
        for before, after in pairwise(result.chunks):
            assert before.end <= after.start
