"""What holds for every document: nothing lost, nothing too long, and an edit changes little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.documents import Block, ChunkedDocument
from tests.unit.chunk.support import REF, TOKEN, chunker, document, sentence

WORD = st.text("abcdefgäß中é19", min_size=1, max_size=9)
LINE = st.lists(WORD, min_size=1, max_size=40).map(" ".join)
SENTENCES = st.lists(LINE.map(lambda s: s.capitalize() + "."), min_size=1, max_size=12).map(" ".join)


def _table(rows: list[list[str]]) -> Block:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    header = lines[0] + "\n| --- |"
    return Block(type="table", header=header, text="\n".join([header, *lines[1:]]))


BLOCK = st.one_of(
    st.builds(lambda t, n: Block(type="heading", text=t, level=n), LINE, st.integers(1, 6)),
    st.builds(lambda t: Block(type="paragraph", text=t), SENTENCES),
    st.builds(lambda t: Block(type="quote", text=t), SENTENCES),
    st.builds(
        lambda ls: Block(type="list", text="\n".join(f"- {x}" for x in ls)), st.lists(LINE, min_size=1, max_size=20)
    ),
    st.builds(
        lambda ls: Block(type="code", text="\n".join(ls)),
        st.lists(st.one_of(st.just(""), LINE), min_size=1, max_size=60).filter(any),
    ),
    st.lists(st.lists(LINE, min_size=1, max_size=3), min_size=2, max_size=20).map(_table),
)
BLOCKS = st.lists(BLOCK, max_size=25)


@pytest.mark.requirement("A4")
@settings(max_examples=35, deadline=None)
@given(
    BLOCKS,
    st.sampled_from([{}, {"child_tokens": 60, "child_min_tokens": 30, "child_max_tokens": 80, "parent_tokens": 200}]),
)
def test_every_word_is_in_a_chunk_and_a_section_and_no_chunk_is_too_long(
    blocks: list[Block], sizes: dict[str, int]
) -> None:
    result = chunker(None, **sizes).chunk(REF, document(*blocks), title="", facets="")
    found = set(TOKEN.findall(" ".join(" ".join([*c.heading_path, c.text]) for c in result.chunks)))
    read = set(TOKEN.findall(" ".join(" ".join([*s.heading_path, s.text]) for s in result.sections)))
    for block in blocks:
        assert set(TOKEN.findall(block.text)) <= found
        assert set(TOKEN.findall(block.text)) <= read
    assert all(c.tokens <= sizes.get("child_max_tokens", 256) for c in result.chunks)
    assert len({c.chunk_id for c in result.chunks}) == len(result.chunks)
    assert len({s.section_id for s in result.sections}) == len(result.sections)


@pytest.mark.requirement("A4", "F11")
@settings(max_examples=20, deadline=None)
@given(BLOCKS)
def test_code_that_fits_is_byte_equal_in_one_chunk(blocks: list[Block]) -> None:
    result = chunker().chunk(REF, document(*blocks), title="", facets="")
    for block in blocks:
        if block.type == "code" and len(TOKEN.findall(block.text)) <= 256 - 2 - 66:
            assert any(block.text in c.text for c in result.chunks)


# ---------------------------------------------------------------- locality


def paragraphs(rng: random.Random, count: int, start: int = 0) -> list[str]:
    out = []
    for number in range(count):
        out.append(
            " ".join(sentence(1000 * (start + number) + s, rng.randint(6, 22)) for s in range(rng.randint(1, 5)))
        )
    return out


def wiki(rng: random.Random) -> list[Block]:
    """About 80 sections of at most about a chunk and a half, as wiki pages have; the smaller ones share chunks."""
    blocks = []
    for number in range(80):
        blocks.append(Block(type="heading", text=f"Part {number}", level=rng.randint(2, 3)))
        blocks += [Block(type="paragraph", text=t) for t in paragraphs(rng, rng.randint(1, 4), 100 * number)]
    return blocks


def edits(rng: random.Random, blocks: list[Block]) -> list[tuple[str, list[Block]]]:
    """The document with one paragraph changed, replaced, inserted and deleted."""
    at = rng.choice([i for i, block in enumerate(blocks) if block.type == "paragraph"])
    text = blocks[at].text
    words = text.split()
    place = rng.randrange(len(words) // 2, len(words))
    changed = " ".join([*words[:place], "corrected", "wording", *words[place + 1 :]])
    fresh = Block(
        type="paragraph", text=" ".join(sentence(777_000 + s, rng.randint(6, 22)) for s in range(rng.randint(1, 4)))
    )
    return [
        ("changed", [*blocks[:at], Block(type="paragraph", text=changed), *blocks[at + 1 :]]),
        ("replaced", [*blocks[:at], fresh, *blocks[at + 1 :]]),
        ("inserted", [*blocks[:at], fresh, *blocks[at:]]),
        ("deleted", [*blocks[:at], *blocks[at + 1 :]]),
    ]


def fresh_chunks(old: ChunkedDocument, new: ChunkedDocument) -> int:
    return len({c.chunk_id for c in new.chunks} - {c.chunk_id for c in old.chunks})


@pytest.mark.requirement("A4", "A6", "I6")
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_one_paragraph_changes_at_most_two_chunks_of_a_sectioned_document(seed: int) -> None:
    rng = random.Random(seed)
    blocks = wiki(rng)
    make = chunker()
    old = make.chunk(REF, document(*blocks), title="", facets="")
    assert len(old.chunks) >= 50
    for name, edited in edits(rng, blocks):
        new = make.chunk(REF, document(*edited), title="", facets="")
        assert fresh_chunks(old, new) <= 2, name
        sections = {s.section_id for s in new.sections} - {s.section_id for s in old.sections}
        assert len(sections) <= 6, name


@pytest.mark.requirement("A4", "A6", "I6")
def test_one_paragraph_changes_few_chunks_of_one_endless_section() -> None:
    """Without headings cuts can only follow the content; an edit moves at most those next to it."""
    counts: dict[str, list[int]] = {}
    make = chunker()
    for seed in range(3):
        rng = random.Random(seed)
        blocks = [Block(type="paragraph", text=t) for t in paragraphs(rng, 330)]
        old = make.chunk(REF, document(*blocks), title="", facets="")
        assert len(old.chunks) >= 75
        for _ in range(4):
            for name, edited in edits(rng, blocks):
                new = make.chunk(REF, document(*edited), title="", facets="")
                counts.setdefault(name, []).append(fresh_chunks(old, new))
    for name, found in counts.items():
        assert max(found) <= 5, (name, sorted(found))
        assert sum(found) / len(found) <= 2, (name, sorted(found))
    assert sum(n <= 2 for n in counts["changed"]) >= 0.9 * len(counts["changed"]), sorted(counts["changed"])


@pytest.mark.requirement("A4", "A6", "I6")
def test_one_edited_paragraph_changes_at_most_two_embedded_texts_of_a_recursive_document() -> None:
    """Its chunks span headings, so that a paragraph that comes or goes may move a near cut besides."""
    make = chunker(strategy="recursive")
    counts: dict[str, list[int]] = {}
    for seed in range(4):
        rng = random.Random(seed)
        blocks = wiki(rng) + [b.model_copy(update={"text": f"More {b.text}"}) for b in wiki(rng)]
        old = {c.embed_hash for c in make.chunk(REF, document(*blocks), title="", facets="").chunks}
        assert len(old) >= 100
        for _ in range(3):
            for name, edited in edits(rng, blocks):
                new = {c.embed_hash for c in make.chunk(REF, document(*edited), title="", facets="").chunks}
                counts.setdefault(name, []).append(len(new - old))
    assert max(counts["changed"]) <= 2, counts
    for name, found in counts.items():
        assert max(found) <= 4, (name, sorted(found))
        assert sum(n <= 2 for n in found) >= 0.8 * len(found), (name, sorted(found))
