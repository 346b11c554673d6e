"""Benchmarks of answers: where the labelled passage is put, tables and picture, sentences that people labelled."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.bench.answering import figures, model
from infra.bench.answering.context import SIZES, Placed, placed_at
from infra.bench.answering.wiki import spread
from infra.commands import bench_answers
from infra.errors import InfraError
from pipeline.answer_report import Answered
from pipeline.golden import Question
from schemas.api_answer import AnswerResponse
from schemas.api_ranking import EvidencePassage


def _question(name: str, kind: Any = "plain") -> Question:
    return Question(id=name, question=f"about {name}", user="ann", tenant="acme", kind=kind)


def _passage(name: str, rank: int) -> EvidencePassage:
    return EvidencePassage(
        section_id=name, document_uid=name, document_id=name, source="wiki", title=name, url=None, version=1,
        updated_at=None, heading_path=(), text=name, tokens=1, rank=rank, chunk_ids=(),
    )  # fmt: skip


@pytest.mark.requirement("C7")
def test_the_sizes_of_the_study() -> None:
    assert SIZES == (1, 3, 5, 10, 15)


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_labelled_passage_stands_at_each_position_once_among_the_same_others(k: int) -> None:
    others = tuple(_passage(f"other {n}", n + 2) for n in range(6))
    one = Placed(_question("q"), _passage("right", 1), others)
    orders = [[p.document_id for p in placed_at(one, k, position)] for position in range(1, k + 1)]
    assert [order.index("right") for order in orders] == list(range(k))
    assert all(sorted(order) == sorted(orders[0]) and len(order) == k for order in orders)
    assert {p.rank for p in placed_at(one, k, k)} == set(range(1, k + 1)), "a passage keeps its rank wherever it stands"


def test_no_kind_is_missing_where_few_are_asked() -> None:
    questions = [_question(f"{kind}{n}", kind) for kind in ("plain", "as_of", "multi_hop") for n in range(4)]
    assert [q.kind for q in spread(questions, 5)] == ["plain", "as_of", "multi_hop", "plain", "as_of"]
    assert len(spread(questions, 99)) == 12


def _lines() -> list[dict[str, Any]]:
    def of_size(k: int) -> dict[str, Any]:
        return {
            "bench": "context", "k": k, "style": "extractive", "questions": 10, "answered": 9, "complete": 0.8,
            "context_precision": 1 / k, "context_recall": 0.9, "context_relevance": 0.5, "faithfulness_by_words": 1.0,
            "relevance_by_answer_itself": 0.6, "words": 40.0, "tokens": 200.0 * k, "p50_ms": 10.0 * k, "p95_ms": 20.0,
        }  # fmt: skip

    placed = [
        {"bench": "context_position", "k": k, "position": n, "style": "extractive", "questions": 10, "complete": 0.8,
         "same_sentences_as_first": 1.0}
        for k in SIZES[1:]
        for n in range(1, k + 1)
    ]  # fmt: skip
    return [*(of_size(k) for k in SIZES), *placed]


@pytest.mark.requirement("C7")
def test_lines_are_shown_and_drawn(tmp_path: Path) -> None:
    out = Console(width=160, record=True, file=StringIO())
    figures.show(out, _lines())
    shown = out.export_text()
    assert "context precision" in shown
    assert "3,000" in shown
    source, drawn = tmp_path / "lines", tmp_path / "context.svg"
    source.write_text("\n".join(map(json.dumps, _lines())))
    bench_answers.show(bench_answers.read(source), drawn)
    root = ET.parse(drawn).getroot()
    assert len(root.findall("{*}polyline")) == 4 + 1 + 4
    assert len(root.findall("{*}circle")) == 4 * 5 + 5 + 3 + 5 + 10 + 15


@pytest.mark.requirement("C7")
def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    assert "not measured" in figures.picture(_lines()[:5])
    ET.fromstring(figures.picture(_lines()[:5]))
    (tmp_path / "other").write_text('{"bench": "lag_idle"}')
    with pytest.raises(InfraError, match="holds no line of context"):
        bench_answers.read(tmp_path / "other")


# -- a small model -----------------------------------------------------------------------------------------------------


def _reply() -> AnswerResponse:
    return AnswerResponse.model_validate(
        {
            "query_id": "q", "answered": True, "kind": "generated", "text": "It is so.[^1]", "judged_at": 1,
            "sentences": [{"text": "It is so.", "citations": [1], "support": 0.9}],
            "citations": [
                {"number": 1, "document_uid": "a", "document_id": "a", "source": "wiki", "title": "a", "url": None,
                 "section_id": "s", "chunk_ids": [], "heading_path": [], "quote": "It is so indeed.", "version": 1,
                 "updated_at": None, "age_s": 0.0}
            ],
            "withheld": 1,
            "withheld_sentences": [{"text": "It never was.", "reason": "negation", "support": 0.1}],
        }
    )  # fmt: skip


@pytest.mark.requirement("C2")
def test_every_sentence_is_written_for_people_to_label_and_counted_by_their_labels(tmp_path: Path) -> None:
    path = tmp_path / "sentences.jsonl"
    model.write(path, [(Answered(_question("q"), (), answered=True), _reply())])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["sentence"], row["released"], row["reason"], row["label"]) for row in rows] == [
        ("It is so.", True, None, None),
        ("It never was.", False, "negation", None),
    ]
    assert rows[0]["quotes"] == ["It is so indeed."]
    with pytest.raises(InfraError, match="2 of 2 sentences have no label"):
        model.labelled(path)
    rows[0]["label"], rows[1]["label"] = "supported", "unsupported"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = model.labelled(path)
    assert (found.value, found.ok, found.extra["raw_unsupported"]) == (0.0, True, 1)
    rows[0]["label"] = "unsupported"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bench_answers.labelled(path)["ok"] is False, "one that got out is one too many"


@pytest.mark.requirement("C2")
def test_one_model_is_named_and_it_exists(tmp_path: Path) -> None:
    for path, server in ((None, None), (tmp_path, "http://localhost:1/v1")):
        with pytest.raises(InfraError, match="needs one model"):
            bench_answers.bench(path, server, None)
    missing = model.Model(path=tmp_path / "none.gguf")
    with pytest.raises(InfraError, match="no model to ask"), model._served(missing):
        pass
    with model._served(model.Model(server="http://localhost:1/v1/")) as url:
        assert url == "http://localhost:1/v1"
