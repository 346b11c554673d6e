"""What each strategy does of its own, and what all of them keep together."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.chunk import chunker_for, preset, presets
from pipeline.errors import ConfigError
from pipeline.ports import Vectors
from schemas.documents import Block
from schemas.generation import ChunkingSpec, EncoderSpec, Strategy
from tests.unit.chunk.support import (
    APART,
    REF,
    STRATEGIES,
    WordCounter,
    chunked,
    code,
    document,
    every_strategy,
    heading,
    paragraph,
    sentence,
)
from tests.unit.chunk.test_properties import wiki

ROOT = Path(__file__).parents[3]


def table(rows: int, cells: int = 4) -> Block:
    header = "| Name | Value |\n| --- | --- |"
    lines = [f"| row{i} | " + " ".join(f"v{i}c{c}" for c in range(cells)) + " |" for i in range(rows)]
    return Block(type="table", header=header, text="\n".join([header, *lines]))


# ---------------------------------------------------------------- choosing


@pytest.mark.requirement("A4")
def test_the_media_type_picks_the_strategy_and_the_longest_prefix_wins() -> None:
    by_type: dict[str, Strategy] = {"text/": "fixed", "text/markdown": "recursive"}
    make = chunker_for(ChunkingSpec(by_type=by_type), WordCounter(), EncoderSpec())
    blocks = [heading("A"), *[paragraph(sentence(i, 30)) for i in range(30)], heading("B", 2), paragraph("End.")]
    for media, strategy in (
        ("text/html", "fixed"),
        ("text/markdown", "recursive"),
        ("application/pdf", "hierarchical"),
    ):
        found = make.chunk(REF, document(*blocks).model_copy(update={"media_type": media}), title="Title", facets="")
        assert found == chunked(*blocks, strategy=strategy)
    ways = [tuple(c.text for c in chunked(*blocks, strategy=name).chunks) for name in STRATEGIES[:3]]
    assert len(set(ways)) == 3


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("spec", [{"strategy": "semantic"}, {"by_type": {"text/": "semantic"}}])
def test_semantic_without_vectors_is_refused_by_name(spec: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"chunking\.strategy: 'semantic'"):
        chunker_for(ChunkingSpec.model_validate(spec), WordCounter(), EncoderSpec())


@pytest.mark.requirement("A4")
def test_presets_by_name() -> None:
    assert {"128/512", "200/1024", "200/2000", "fixed 512/64"} <= set(presets())
    assert preset("200/1024") == ChunkingSpec()
    for name in ("128/512", "200/2000"):
        child, parent = map(int, name.split("/"))
        assert (preset(name).child_tokens, preset(name).parent_tokens) == (child, parent)
    fixed = preset("fixed 512/64")
    assert (fixed.strategy, fixed.child_max_tokens, fixed.child_max_tokens * fixed.overlap) == ("fixed", 512, 64)
    with pytest.raises(ConfigError, match="200/2000"):
        preset("1/2")


# ---------------------------------------------------------------- fixed


@pytest.mark.requirement("A4")
def test_fixed_pieces_are_full_and_repeat_their_overlap_in_tokens() -> None:
    blocks = [paragraph(" ".join(sentence(10 * p + s, 9 + s) for s in range(5))) for p in range(60)]
    spec = preset("fixed 512/64")
    make = chunker_for(spec, WordCounter(), EncoderSpec(max_tokens=512))
    chunks = make.chunk(REF, document(*blocks), title="", facets="").chunks
    assert len(chunks) > 5
    assert all(500 <= chunk.tokens <= 512 for chunk in chunks[:-1])
    for before, after in pairwise(chunks):
        words, following = before.text.split(), after.text.split()
        shared = max(n for n in range(200) if words[len(words) - n :] == following[:n])
        repeated = WordCounter().count(" ".join(following[:shared])) - 2
        assert 50 <= repeated <= 64
    assert sum(not chunk.text.endswith((".", "end")) for chunk in chunks) > 2  # cut wherever they are full


@pytest.mark.requirement("A4")
def test_fixed_keeps_headings_in_the_text_under_the_path_that_all_of_it_shares() -> None:
    blocks = (
        heading("Guide"), paragraph("Intro."), heading("Setup", 2), paragraph("Install it."),
        heading("Usage", 2), paragraph("Run it."),
    )  # fmt: skip
    (chunk,) = chunked(*blocks, strategy="fixed").chunks
    assert chunk.heading_path == ("Guide",)
    assert chunk.embed_text == "Guide\n\nIntro.\n\n## Setup\n\nInstall it.\n\n## Usage\n\nRun it."


# ---------------------------------------------------------------- recursive


@pytest.mark.requirement("A4")
def test_recursive_joins_small_sections_and_cuts_at_the_highest_heading() -> None:
    blocks = []
    for part in range(6):
        blocks.append(heading(f"Part {part}"))
        for chapter in range(3):
            blocks += [heading(f"Chapter {part}.{chapter}", 2), paragraph(sentence(10 * part + chapter, 40))]
    found = chunked(*blocks, strategy="recursive").chunks
    assert len(found) == 6
    assert [chunk.heading_path for chunk in found] == [(f"Part {part}",) for part in range(6)]
    assert all(f"## Chapter {part}.2" in chunk.text for part, chunk in enumerate(found))
    assert len(chunked(*blocks, **APART).chunks) == 18


@pytest.mark.requirement("A4")
def test_recursive_cuts_lines_before_sentences() -> None:
    lines = ["  ".join(sentence(100 * n + s, 10) for s in range(4)) for n in range(30)]
    found = chunked(paragraph("\n".join(lines)), strategy="recursive").chunks
    assert len(found) > 4
    assert all(chunk.text.split("\n")[-1] in lines for chunk in found)


# ---------------------------------------------------------------- semantic


def topic(name: str, count: int) -> list[Block]:
    return [paragraph(f"The {name} {name} keeps a {name} of item{i} for the {name}.") for i in range(count)]


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("by", ["semantic_threshold", "semantic_percentile"])
def test_semantic_cuts_where_the_topic_changes(by: str) -> None:
    sizes: dict[str, Any] = {by: {"semantic_threshold": 0.6, "semantic_percentile": 5.0}[by]}
    blocks = [*topic("ibis", 13), *topic("ledger", 9), *topic("turbine", 16)]
    found = chunked(*blocks, strategy="semantic", child_min_tokens=32, **sizes).chunks
    assert [next(w for w in ("ibis", "ledger", "turbine") if w in c.text) for c in found] == [
        "ibis", "ledger", "turbine",
    ]  # fmt: skip
    assert all(sum(w in c.text for w in ("ibis", "ledger", "turbine")) == 1 for c in found)


@pytest.mark.requirement("A4")
def test_semantic_keeps_to_the_sizes() -> None:
    changing = [paragraph(f"Word{i} stands alone{i} here{i} today{i}.") for i in range(80)]
    small = chunked(*changing, strategy="semantic").chunks
    assert all(chunk.tokens >= 100 for chunk in small)  # each sentence differs, and none is a chunk of its own
    same = topic("ibis", 120)
    large = chunked(*same, strategy="semantic").chunks
    assert len(large) > 4 and all(chunk.tokens <= 256 for chunk in large)


@pytest.mark.requirement("A4", "I6")
@pytest.mark.parametrize("noise", [-2e-6, 0.0, 2e-6])
def test_semantic_embeds_in_batches_of_one_size_and_ignores_the_last_decimals(noise: float) -> None:
    """Neighbours are exactly as alike as the threshold, or a runtime's rounding more or less: that is not below it."""
    sizes: list[int] = []

    def rounding(texts: Sequence[str]) -> Vectors:
        sizes.append(len(texts))
        cosine = 0.75 + noise
        other = [cosine, (1 - cosine**2) ** 0.5]
        return np.array([[1.0, 0.0] if "even" in text else other for text in texts], dtype=np.float32)

    blocks = [paragraph(f"Sentence {i} of {'odd' if i % 2 else 'even'} rank here.") for i in range(160)]
    make = chunker_for(ChunkingSpec(strategy="semantic"), WordCounter(), EncoderSpec(), rounding)
    chunks = make.chunk(REF, document(*blocks), title="", facets="").chunks
    assert sizes == [64, 64, 32]
    # Cut by size alone, which repeats sentences; at a change of topic nothing is repeated.
    assert sum(chunk.text.count("rank") for chunk in chunks) > 160


# ---------------------------------------------------------------- document-aware


@pytest.mark.requirement("A4")
def test_document_aware_never_cuts_what_fits_the_encoder() -> None:
    encoder = EncoderSpec(max_tokens=512)
    large, source = table(36), "\n".join(f"a{i} = g(x, {i})\n" for i in range(44))
    words = " ".join(f"word{i}" for i in range(230))
    blocks = (heading("Guide"), paragraph("See:"), large, code(source), heading(words, 2), paragraph("End."), table(90))
    counter = WordCounter()
    assert 256 < counter.count(large.text) < 512 and 256 < counter.count(source) < 512
    ways = dict(every_strategy(blocks, counter, encoder))
    texts = [chunk.text for chunk in ways["document_aware"].chunks]
    assert {large.text, source} <= set(texts) and any(words in text for text in texts)
    assert max(chunk.tokens for chunk in ways["document_aware"].chunks) <= 512
    assert max(chunk.tokens for chunk in ways["hierarchical"].chunks) <= 256
    rest = [text for text in texts if "row89" in text or "row45 " in text]
    assert len(rest) == 2 and all(text.startswith("| Name | Value |") for text in rest)  # it does not fit: by rows


@pytest.mark.requirement("A4")
def test_a_table_that_fits_without_its_path_alone_goes_without() -> None:
    path = " ".join(f"heading{i}" for i in range(40))
    wide = table(1, cells=0)
    while WordCounter().count(wide.text) < 250:
        wide = table(wide.text.count("\n"), cells=1)
    (chunk,) = chunked(heading(path), wide, strategy="document_aware").chunks
    assert chunk.text == wide.text == chunk.embed_text
    assert chunk.heading_path == (path,) and "heading39" in chunk.lexical


# ---------------------------------------------------------------- every strategy


@pytest.mark.requirement("A4")
def test_a_long_table_is_split_by_rows_under_its_header_in_every_strategy() -> None:
    long = table(150)
    for strategy, result in every_strategy([heading("T"), paragraph("Before."), long, paragraph("After.")]):
        pieces = [chunk.text for chunk in result.chunks if "| row" in chunk.text]
        assert len(pieces) > 3, strategy
        rows = [line for piece in pieces for line in piece.split("\n") if line.startswith("| row")]
        assert rows == long.text.split("\n")[2:], strategy
        assert all("| Name | Value |\n| --- | --- |\n| row" in piece for piece in pieces), strategy


@pytest.mark.requirement("A4", "F11")
def test_code_and_formulas_keep_their_lines_in_every_strategy() -> None:
    source = "\n".join(f"\tline{i} = f({i})  # {'x ' * (i % 9)}" if i % 7 else "" for i in range(1, 200))
    formula = "\n".join(f"x_{i} &= \\sum_{{k}} a_{i}^k \\\\" for i in range(8))
    blocks = [heading("H"), code(source), Block(type="math", text=formula), paragraph(sentence(1, 30))]
    for strategy, result in every_strategy(blocks):
        lines = {line for chunk in result.chunks for line in chunk.text.split("\n")}
        assert {line.rstrip() for line in source.split("\n")} <= {line.rstrip() for line in lines}, strategy
        if strategy != "fixed":
            assert any(formula in chunk.text for chunk in result.chunks), strategy
        assert f"$$\n{formula}\n$$" in "\n\n".join(section.text for section in result.sections), strategy


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("word", ["Unless", "Except"])
def test_a_limiting_sentence_shares_a_parent_with_what_it_limits(word: str) -> None:
    """Wherever the parents are cut, one of them holds both; for sentences of one paragraph and of two."""
    for claim in range(1, 38, 5):
        blocks: list[Block] = [heading("H")]
        for p in range(40):
            text = sentence(p, 22)
            if p == claim:
                blocks.append(paragraph(f"Claim is allowed {text} {word} the limit applies {text}"))
            elif p == claim + 1:
                blocks += [paragraph(f"Right is given {text}"), paragraph(f"{word} the bound applies {text}")]
            else:
                blocks.append(paragraph(text))
        for strategy, result in every_strategy(blocks, child_tokens=64, child_min_tokens=32, child_max_tokens=96,
                                               parent_tokens=128):  # fmt: skip
            texts = [section.text for section in result.sections]
            assert len(texts) > 4
            assert any("Claim is allowed" in t and "the limit applies" in t for t in texts), (strategy, claim)
            assert any("Right is given" in t and "the bound applies" in t for t in texts), (strategy, claim)


@pytest.mark.requirement("A4", "I6")
def test_a_rename_embeds_nothing_and_a_changed_attribute_changes_every_id() -> None:
    blocks = wiki_blocks()
    for strategy in STRATEGIES:
        old = chunked(*blocks, title="Old name", strategy=strategy, summary=True).chunks
        new = chunked(*blocks, title="New name", strategy=strategy, summary=True).chunks
        moved = chunked(*blocks, title="Old name", facets="language=de", strategy=strategy, summary=True).chunks
        assert [c.embed_hash for c in old] == [c.embed_hash for c in new] == [c.embed_hash for c in moved]
        assert not {c.chunk_id for c in old} & ({c.chunk_id for c in new} | {c.chunk_id for c in moved})


@pytest.mark.requirement("A3", "I6")
def test_places_are_no_part_of_an_id() -> None:
    plain = [heading("H"), *[paragraph(sentence(i, 30)) for i in range(20)]]
    placed_ = [
        b.model_copy(update={"anchors": ((0, 7_000 + 900 * i),), "page": 1 + i // 5}) for i, b in enumerate(plain)
    ]
    for strategy in STRATEGIES:
        old, new = chunked(*plain, strategy=strategy), chunked(*placed_, strategy=strategy)
        assert [c.chunk_id for c in old.chunks] == [c.chunk_id for c in new.chunks]
        assert [s.section_id for s in old.sections] == [s.section_id for s in new.sections]
        assert all((c.start, c.end, c.page) == (-1, -1, None) for c in old.chunks)
        assert all(c.end > c.start >= 7_900 for c in new.chunks)
        assert [c.page for c in new.chunks] == [1 + (c.start - 7_000) // 900 // 5 for c in new.chunks]


def wiki_blocks() -> list[Block]:
    return wiki(random.Random(3))[:16]


@pytest.mark.requirement("A4", "I6")
def test_every_process_cuts_alike() -> None:
    program = (
        "import hashlib; from tests.unit.chunk.support import every_strategy; "
        "from tests.unit.chunk.test_strategies import table, wiki_blocks; "
        "found = every_strategy([*wiki_blocks(), table(90)], summary=True); "
        "print(hashlib.sha256(''.join(r.model_dump_json() for _, r in found).encode()).hexdigest())"
    )
    here = hashlib.sha256()
    for _, result in every_strategy([*wiki_blocks(), table(90)], summary=True):
        here.update(result.model_dump_json().encode())
    there = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "4711"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert there.stdout.strip() == here.hexdigest()
