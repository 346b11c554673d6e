"""The ablation of ranking and its times: what is compared, how it is judged, what is drawn."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from infra.bench.corpora import Prepared
from infra.bench.ranking import figures
from infra.bench.ranking.ablation import Answers, difference, lines, verdicts
from infra.bench.ranking.flood import Flooded, flood
from infra.bench.ranking.latency import TARGETS, cell, flood_result
from infra.bench.ranking.latency import verdicts as time_verdicts
from infra.bench.ranking.plain import WithoutPaths
from infra.bench.ranking.questions import ARTICLES, GOLDEN, Figures, Item, single, spread
from infra.bench.ranking.services import Remembering
from infra.bench.ranking.variants import FUSED, VARIANTS, Variant, judged
from infra.bench.search import Asked, Table
from infra.commands import bench_search
from infra.errors import InfraError
from pipeline.golden import Question
from pipeline.settings import QuerySettings, Settings
from pipeline.settings_auth import AuthSettings
from pipeline.settings_query import RerankSettings
from query_service.rerank.interface import Logits
from query_service.rerank.pairs import Pair, Shape, estimated
from query_service.scope import Scope
from schemas.api import SearchFilters, SearchRequest
from schemas.api_ranking import RerankMode
from schemas.documents import Chunk, ChunkedDocument, ExtractedDocument
from schemas.keys import DocumentRef


def _settings(**query: Any) -> Settings:
    auth = AuthSettings.model_validate({"jwt_secret": "s" * 48})
    return Settings.model_construct(
        query=QuerySettings(**query), rerank=RerankSettings(), auth=auth, state_dir=Path("unused")
    )


# ---------------------------------------------------------------- what is compared


@pytest.mark.requirement("B4")
def test_every_variant_is_a_request_and_settings_that_exist() -> None:
    names = [variant.name for variant in VARIANTS]
    assert len(names) == len(set(names))
    for variant in VARIANTS:
        SearchRequest(query="q", **variant.fields())
        made = variant.settings(_settings())
        QuerySettings.model_validate(made.query.model_dump())
        RerankSettings.model_validate(made.rerank.model_dump())
        assert variant.against in names


@pytest.mark.requirement("B4")
def test_a_variant_equal_to_the_defaults_is_asked_once() -> None:
    by_name = {variant.name: variant for variant in VARIANTS}
    for fusion, other in (("rrf", "convex"), ("convex", "rrf")):
        settings = _settings(fusion=fusion)
        fused = by_name[FUSED].measured(settings)
        assert by_name[fusion].measured(settings) == fused
        assert by_name[other].measured(settings) != fused
        assert by_name[f"{fusion}, full 10, 0.7"].measured(settings) == by_name["full 10, 0.7"].measured(settings)
    measured = Counter(variant.measured(_settings()) for variant in VARIANTS)
    assert max(measured.values()) == 4  # the fused order and the three rows that say its defaults


@pytest.mark.requirement("B4")
def test_the_judged_row_follows_the_settings() -> None:
    assert judged(_settings()) == ("full 10, 0.7", "fast")
    twenty = _settings().model_copy(update={"rerank": RerankSettings(full_candidates=20)})
    assert judged(twenty) == ("full 20, 0.7", "fast")


def test_documents_only_ever_move_to_cold() -> None:
    order = [variant.state for variant in VARIANTS]
    assert order == sorted(order, key=["all hot", "20 % hot", "all cold"].index)


class Model:
    """Scores a pair by its lengths and counts what it is asked."""

    name, shape = "model", Shape(part=4)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        return [estimated(query, passage, 256) for passage in passages]

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        return self.score_pairs(self.pairs(query, passages))

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        self.asked += [pair.passage for pair in pairs]
        return np.array([len(pair.query) + 2 * len(pair.passage) for pair in pairs], dtype=np.float32)

    def close(self) -> None:
        raise AssertionError("another service may use it")


@pytest.mark.requirement("B4")
def test_remembered_scores_are_those_of_the_model() -> None:
    model = Model()
    remembering = Remembering(model)
    first = remembering.score("query", ["a", "bb", "ccc"])
    again = remembering.score("query", ["ccc", "dddd", "a"])
    assert first.tolist() == [7, 9, 11] and again.tolist() == [11, 13, 7]
    assert model.asked == ["a", "bb", "ccc", "dddd"]
    assert remembering.score("other query", ["a"]).tolist() == [13]
    assert remembering.score("query", []).shape == (0,)
    remembering.close()


class Cutting:
    """One chunk with its heading path in everything."""

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        chunk = Chunk(
            chunk_id="c", section_ordinal=0, ordinal=0, heading_path=("Pumps",), text="Hold the X-500 button",
            embed_text="Pumps\nHold the X-500 button", embed_hash="h", lexical="manual pumps hold x-500 button",
            tokens=9,
        )  # fmt: skip
        return ChunkedDocument(sections=(), chunks=(chunk,))


@pytest.mark.requirement("B2")
def test_without_paths_only_what_is_searched_changes() -> None:
    document = DocumentRef(tenant="t", source="s", id="d")
    extracted = ExtractedDocument(blocks=(), media_type="text/plain")
    made = WithoutPaths(Cutting()).chunk(document, extracted, title="Manual", facets="").chunks[0]
    assert made.embed_text == made.text == "Hold the X-500 button"
    assert "pumps" not in made.lexical and "manual" in made.lexical
    assert made.heading_path == ("Pumps",) and made.embed_hash != "h"


# ---------------------------------------------------------------- how it is judged


@given(st.lists(st.sampled_from("abcde"), unique=True, max_size=5))
def test_one_right_document_is_scored_by_its_rank(documents: list[str]) -> None:
    found = single(documents, "a")
    if "a" in documents:
        rank = documents.index("a") + 1
        assert found == Figures(1 / math.log2(rank + 1), 1.0, 1 / rank)
    else:
        assert found == Figures(0.0, 0.0, 0.0)


@given(st.integers(0, 40), st.integers(1, 20))
def test_spread_keeps_order_and_number(count: int, most: int) -> None:
    found = spread(list(range(count)), most)
    assert len(found) == min(count, most)
    assert found == sorted(set(found))


def _answers(golden: Sequence[float], articles: Sequence[float] = (), scored: float = 0.0) -> Answers:
    scope = Scope(tenant="t", subject="u")
    items = [Item(GOLDEN, f"g{n}", scope, SearchFilters(), wanted="x") for n in range(len(golden))]
    items += [Item(ARTICLES, f"a{n}", scope, SearchFilters(), wanted="x") for n in range(len(articles))]
    return Answers(items, [Figures(v, v, v) for v in (*golden, *articles)], scored)


@pytest.mark.requirement("B4")
def test_differences_are_paired_by_question() -> None:
    base, better = _answers([0.2, 0.9, 0.5], [0.1]), _answers([0.3, 1.0, 0.6])
    change = difference(better, base)
    assert change is not None and change.mean == pytest.approx(0.1)
    assert change.low == pytest.approx(0.1) and change.high == pytest.approx(0.1)
    assert difference(better, base, ARTICLES) is None


@pytest.mark.requirement("B4")
def test_equal_words_of_two_days_are_two_questions() -> None:
    def on(day: int) -> Item:
        asked = Question.model_validate(
            {
                "id": f"q{day}",
                "question": "same",
                "user": "u",
                "tenant": "t",
                "kind": "as_of",
                "as_of": f"2024-01-0{day}",
            }
        )
        return Item(GOLDEN, "same", Scope(tenant="t", subject="u"), SearchFilters(), golden=asked)

    answers = Answers([on(1), on(2)], [Figures(0.1, 0, 0), Figures(0.9, 0, 0)], 0.0)
    change = difference(answers, answers)
    assert change is not None and (change.low, change.mean, change.high) == (0.0, 0.0, 0.0)


@pytest.mark.requirement("B4")
@pytest.mark.parametrize(
    ("full", "fast", "ok"),
    [
        ([0.6] * 20, [0.5] * 20, (True, True)),
        ([0.5] * 20, [0.6] * 20, (False, True)),
        ([0.6] * 10 + [0.4] * 10, [0.4] * 20, (False, False)),
    ],
)
def test_full_has_to_win_and_fast_not_to_lose(full: list[float], fast: list[float], ok: tuple[bool, bool]) -> None:
    found = {FUSED: _answers([0.5] * 20), "full": _answers(full), "fast": _answers(fast)}
    assert tuple(result.ok for result in verdicts(found, "full", "fast")) == ok


def _asked(p95: float, count: int = 20) -> Asked:
    asked = Asked(seconds=2.0)
    for _ in range(count):
        asked.outside.append(p95)
        asked.inside.append(p95 - 1)
        asked.hits.append(10)
        asked.scored.append(3)
        for stage in ("embed", "closure", "search", "admit", "repair", "fuse", "text", "diversify", "rerank", "check"):
            asked.stages.setdefault(stage, []).append(2.0)
        asked.stages.setdefault("total", []).append(18.0)
    return asked


def _ready() -> Prepared:
    return Prepared(cast(Any, None), cast(Any, SimpleNamespace(chunks=10_000)), 1.0, True)


def _tables(off: float, together: float, fast: float, full: float) -> dict[RerankMode, Table]:
    return {
        "off": {(1, 10): _asked(off), (1, 1_000): _asked(off / 2), (4, 10): _asked(together)},
        "fast": {(1, 10): _asked(fast)},
        "full": {(1, 10): _asked(full)},
    }


@pytest.mark.requirement("D1", "D2")
@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        ((50, 120, 150, 1000), set()),
        ((51, 120, 150, 1000), {("D1", "off", 1), ("D2", "off", 1)}),
        ((50, 121, 150, 1000), {("D1", "off", 4)}),
        ((50, 120, 151, 1000), {("D2", "fast", 1)}),
        ((50, 120, 201, 1001), {("D1", "fast", 1), ("D2", "fast", 1), ("D1", "full", 1)}),
    ],
)
def test_times_are_judged_by_the_worst_scope(measured: Any, missed: set[tuple[str, str, int]]) -> None:
    found = list(time_verdicts("ranking_10k", _tables(*measured), _ready()))
    assert len(found) == len(TARGETS)
    told = {(r.extra["verdict"], r.extra["rerank"], r.extra["clients"]) for r in found if not r.ok}
    assert told == missed
    assert all(result.line(0)["vectors"] == "synthetic" for result in found)


@pytest.mark.requirement("D1")
def test_what_was_not_measured_does_not_pass() -> None:
    assert not any(result.ok for result in time_verdicts("ranking_10k", {}, _ready()))


# ---------------------------------------------------------------- many clients


def _flooded(answers: Sequence[int], clients: int = 5) -> Flooded:
    """Statuses in turn; the last one for ever."""
    rest = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"].startswith("Bearer ")
        status = rest.pop(0) if len(rest) > 1 else rest[0]
        if status == 0:
            raise httpx.ReadTimeout("late", request=request)
        return httpx.Response(status, json={"counts": {"reranked": 2}})

    corpus = cast(Any, SimpleNamespace(question=lambda number: f"question {number}"))
    return flood(_settings(), corpus, clients, 0.05, 0, httpx.MockTransport(answer))


@pytest.mark.requirement("D1")
def test_refusals_are_not_errors_and_errors_are_told_apart() -> None:
    found = _flooded([500, 0, 429, 200])
    assert found.kinds == {"500": 1, "ReadTimeout": 1} and found.errors == 2
    assert found.refused == 1 and found.ms and found.scored == 2 * len(found.ms)
    assert flood_result("b", found, _ready()).ok is False
    calm = _flooded([200])
    assert flood_result("b", calm, _ready()).ok
    assert flood_result("b", calm, _ready(), under="backfill", left=0).ok is False
    assert flood_result("b", _flooded([429]), _ready()).ok is False  # nobody was answered


# ---------------------------------------------------------------- what is shown


def _lines() -> list[dict[str, Any]]:
    base = _answers([0.5, 0.4, 0.9], [0.2, 0.3])
    found = {variant.name: base for variant in VARIANTS}
    found["convex"] = _answers([0.6, 0.5, 0.9], [0.3, 0.4], scored=1.5)
    results = [*lines(found, 98, {"hot": 5, "cold": 20}), *verdicts(found, "full 10, 0.7", "fast")]
    results += [cell("ranking_10k", "off", 1, 10, _asked(20), _ready())]
    results += list(time_verdicts("ranking_10k", _tables(10, 20, 30, 40), _ready()))
    results += [flood_result("ranking_10k", _flooded([200]), _ready())]
    return [json.loads(json.dumps(result.line(0.3))) for result in results]


@pytest.mark.requirement("D2")
def test_tables_and_picture_come_from_the_lines(tmp_path: Path) -> None:
    found = _lines()
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w", encoding="utf-8"))
    figures.show(console, found)
    shown = console.export_text()
    for variant in VARIANTS:
        assert variant.name in shown
    assert "+0.080" in shown and "errors" in shown and "MISSED" in shown
    drawn = ElementTree.fromstring(figures.picture(found))
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "convex" in texts and FUSED not in texts and "off, 1 client, 10" in texts


@pytest.mark.requirement("D2")
def test_an_earlier_run_is_shown_again(tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    run.write_text("\n".join(["make: nothing", *(json.dumps(line) for line in _lines())]), encoding="utf-8")
    picture = tmp_path / "ranking.svg"
    bench_search.show(bench_search.read(run), picture)
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    run.write_text('{"bench": "lag_idle"}', encoding="utf-8")
    with pytest.raises(InfraError, match="holds no line"):
        bench_search.read(run)
    with pytest.raises(InfraError, match="cannot be read"):
        bench_search.read(tmp_path / "nowhere")


def test_large_adds_the_large_corpus() -> None:
    small, large = bench_search.benches(bench_search.Size.small), bench_search.benches(bench_search.Size.large)
    assert [name for name in large if name not in small] == ["ranking_100k"]


def test_variants_are_named_in_their_own_words() -> None:
    assert Variant("x", "y").fields() == {"rerank": "off", "cache": False}
