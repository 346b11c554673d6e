"""The index in memory ranks as the query service does; labels are places, so that strategies compare fairly."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from infra.bench.quality import figures, retrieval
from infra.bench.quality.retrieval import Encoder, PlainChunker, compare, index_of
from infra.bench.quality.search import Index, Passage
from pipeline import analysis
from pipeline.embed.stub import StubEncoder
from pipeline.embed.tokens import EstimatedTokens
from pipeline.errors import ConfigError
from pipeline.ports import TermStatistics
from query_service import bm25
from schemas.documents import Block, Chunk, ChunkedDocument, ExtractedDocument
from schemas.generation import EncoderSpec
from schemas.keys import DocumentRef

SPEC = EncoderSpec()


def chunk(text: str, at: int = 0, *, summary: bool = False) -> Chunk:
    return Chunk(
        chunk_id=f"{at}-{text}", section_ordinal=at, ordinal=at, heading_path=(), text=text, embed_text=text,
        embed_hash="", lexical=analysis.lexical(text), identifiers=analysis.identifiers(text), tokens=len(text),
        summary=summary,
    )  # fmt: skip


def index(*texts: str) -> Index:
    vectors = np.eye(len(texts), 8, dtype=np.float32)
    return Index([Passage(f"d{at}", chunk(text, at)) for at, text in enumerate(texts)], vectors)


EVERY = np.ones(4, dtype=np.bool_)
TEXTS = ("the pier is long", "pier pier pier lamp", "order KV-300/2 now", "order KV-300/21 now")


def test_words_are_weighed_as_the_query_service_weighs_them() -> None:
    made = index(*TEXTS)
    scores = made._words("pier lamp pier")
    frequency = {"pier": 2, "lamp": 1}
    average = float(np.mean([len(analysis.tokens(text)) for text in TEXTS]))
    statistics = TermStatistics(chunks=4, average_length=average, document_frequency=frequency)
    expected = [bm25.score(["pier", "lamp", "pier"], analysis.lexical(text), statistics) for text in TEXTS]
    assert scores.tolist() == pytest.approx(expected)


def test_identifiers_come_first_whole_and_the_closed_stays_closed() -> None:
    made, vector = index(*TEXTS), np.eye(8, dtype=np.float32)[3]
    found = made.search("order KV-300/2", vector, EVERY)
    assert found[0].document == "d2"
    closed = np.array([True, True, False, True])
    assert "d2" not in {one.document for one in made.search("order KV-300/2", vector, closed)}


def test_a_summary_stands_for_the_best_sections_of_its_document() -> None:
    passages = [
        Passage("a", chunk("overview of piers", 9, summary=True)),
        Passage("a", chunk("gate and lamp", 0)),
        Passage("b", chunk("piers elsewhere", 0)),
    ]
    vectors = np.eye(3, dtype=np.float32)
    found = Index(passages, vectors).search("overview", vectors[0], np.ones(3, dtype=np.bool_))
    assert [one.chunk.text for one in found] == ["gate and lamp", "piers elsewhere"]


# -- articles ----------------------------------------------------------------------------------------------------------


def articles(folder: Path) -> retrieval.Articles:
    rows = [
        {"_id": "a01-001", "title": "Piers", "text": "The old pier burned.  Its keeper was Olsen."},
        {"_id": "a01-002", "title": "Piers", "text": "A new pier stands. Its keeper was Olsen too."},
        {"_id": "a02-001", "title": "Lamps", "text": "Lamps burn oil."},
    ]
    asked = [
        {"_id": "q1", "text": "Who kept the new pier?", "answers": ["Olsen"], "answerable": True},
        {"_id": "q2", "text": "What do lamps eat?", "answers": [], "answerable": False},
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)), encoding="utf-8")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta01-002\t1\n", encoding="utf-8")
    return retrieval.articles(folder, most=10)


class _Cut:
    """Cuts every paragraph into pieces of so many words."""

    def __init__(self, size: int) -> None:
        self._size = size

    def chunk(self, document: Any, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        found = []
        for block in extracted.blocks[1:]:
            words = block.text.split()
            found += [" ".join(words[at : at + self._size]) for at in range(0, len(words), self._size)]
        return ChunkedDocument(sections=(), chunks=tuple(chunk(text, at) for at, text in enumerate(found)))


def test_an_answer_counts_at_its_place_alone(tmp_path: Path) -> None:
    found = articles(tmp_path)
    (question, (article, start, end)), *rest = found.questions
    assert not rest
    assert found.texts[article][start - 32 : end + 5] == "new pier stands. Its keeper was Olsen too."
    encoder = Encoder(StubEncoder(SPEC), SPEC)
    whole = retrieval.ask(index_of(found.pages, _Cut(50), encoder), found, encoder, "whole")
    assert whole.recall == 1
    assert min(abs(whole.ndcg.mean - 1 / np.log2(rank + 1)) for rank in (1, 2, 3)) < 1e-9
    assert (whole.questions, whole.chunks) == (1, 3)
    other = Index([Passage("a01", chunk(found.texts["a01"][:40]))], encoder.documents(["x"]))
    assert retrieval.ask(other, found, encoder, "the other Olsen").recall == 0
    torn = Index([Passage("a01", chunk(found.texts["a01"][start + 2 :]))], encoder.documents(["x"]))
    assert retrieval.ask(torn, found, encoder, "half of the answer").recall == 0
    assert question.startswith("Who")


def test_a_chunk_is_found_by_its_ends_where_a_heading_leads() -> None:
    text = " ".join(f"word{n}" for n in range(100))
    passage = Passage("a", chunk("Piers " + text[200:500]))
    assert retrieval._span(passage, text) == (194, 500)
    assert retrieval._span(Passage("a", chunk(text[200:500])), text) == (200, 500)
    assert retrieval._span(Passage("a", chunk("something else")), text) == (-1, -1)


def test_plain_pieces_overlap_cover_everything_and_fit_the_encoder() -> None:
    text = " ".join(f"w{n}" for n in range(400))
    counter = EstimatedTokens()
    plain = PlainChunker(counter, SPEC, size=120, overlap=20)
    page = ExtractedDocument(blocks=(Block(type="paragraph", text=text),), media_type="text/plain")
    ref = DocumentRef(tenant="t", source="s", id="a")
    chunks = plain.chunk(ref, page, title="T", facets="").chunks
    assert text.startswith(chunks[0].text) and text.endswith(chunks[-1].text)
    for one, after in pairwise(chunks):
        assert after.text[:20] in one.text
    assert all(counter.count(one.embed_text) <= SPEC.max_tokens for one in chunks)


def test_a_strategy_that_cannot_be_built_does_not_end_the_others(tmp_path: Path) -> None:
    found = articles(tmp_path)
    encoder = Encoder(StubEncoder(SPEC), SPEC)

    def impossible() -> Any:
        raise ConfigError("chunking.strategy", "needs sentences", "Give some.")

    told: list[str] = []
    rows = list(
        compare(
            "articles", found.pages, {"bad": impossible, "good": lambda: _Cut(50)}, encoder,
            lambda index, name: retrieval.ask(index, found, encoder, name), told.append,
        )
    )  # fmt: skip
    assert [type(row).__name__ for row in rows] == ["Missing", "Row"]
    assert told == ["bad", "good"]


def test_every_variant_is_a_chunking_that_fits_the_default_encoder() -> None:
    found = retrieval.variants()
    assert {spec.strategy for spec in found.values()} == {
        "hierarchical", "fixed", "recursive", "semantic", "document_aware",
    }  # fmt: skip
    assert all(spec.child_max_tokens <= SPEC.max_tokens for spec in found.values())
    assert any(spec.summary for spec in found.values())


# -- figures -----------------------------------------------------------------------------------------------------------

SHARES = {"recall": 0.9, "precision": 0.8, "cells": None, "code": 1.0, "paths": 0.5, "links": 1.0, "leaks": 0.25}
RESULT = {
    "encoder": "mini", "unstructured": "1.2", "quick": False, "not_measured": [
        {"corpus": "golden", "strategy": "semantic", "why": "<no sentences>"}],
    "fidelity": [
        {"reader": name, "formats": {"HTML": {"files": 3, **SHARES}, "all": {"files": 3, **SHARES}},
         "files": [{"file": "a.html", "format": "HTML", "error": "broken & torn" * (name == "other"), **SHARES}]}
        for name in ("headwater", "other")
    ],
    "retrieval": [
        {"corpus": corpus, "strategy": "fixed <1>", "ndcg": {"mean": 0.7, "low": 0.6, "high": 0.8}, "recall": 0.9,
         "questions": 5, "chunks": 9, "tokens": 120.4} for corpus in ("golden", "articles")
    ],
}  # fmt: skip


def test_people_see_both_readers_the_strategies_and_what_is_missing() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    figures.show(console, RESULT)
    text = console.export_text()
    assert "0.900 / 0.900" in text and "– / –" in text and "0.250 / 0.250" in text
    assert "0.600–0.800" in text and "broken & torn" in text and "<no sentences>" in text


def test_the_picture_is_whole_and_shows_every_figure() -> None:
    drawn = ElementTree.fromstring(figures.picture(RESULT))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("0.900") == 2
    assert "fixed <1>" in texts and "unstructured 1.2" in texts
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    ElementTree.fromstring(figures.picture({**RESULT, "fidelity": [], "retrieval": []}))
