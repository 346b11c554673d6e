"""The golden run over a query API in memory: who asks, on which day, what counts, when it fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from infra.asking import QueryApi
from infra.commands.quality import WIDTH, plain, same, serves, show
from infra.errors import InfraError
from infra.golden_run import NEAREST, SPARSE, Paths, Run, collapsed, questions_of, run
from infra.golden_world import environment
from pipeline.settings import Settings
from query_service.scope import TokenVerifier

JWT = {"auth": {"jwt_secret": "s" * 48}}
Page = tuple[str, str, tuple[str, ...]]  # path, text, headings


def _question(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "question": f"about {name}", "user": "ann", "tenant": "acme", "kind": "plain", **more}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A wiki of three pages with one closed folder, and three questions."""
    samples = tmp_path / "samples"
    (samples / "wiki" / "closed").mkdir(parents=True)
    (samples / "golden").mkdir()
    for name in ("a.md", "b.md", "closed/c.md"):
        (samples / "wiki" / name).write_text(f"# {name}\n\n## Part\n\nText of {name}.\n")
    (samples / "wiki" / "groups.yaml").write_text("users: [ann, bob]\ngroups: {}\n")
    (samples / "wiki" / "closed" / ".access.yaml").write_text("allow: [user:bob]\ndeny: []\n")
    questions = [
        _question("one", relevant=[{"document": "a.md", "heading": "Part", "grade": 3}]),
        _question(
            "dated", kind="as_of", as_of="2026-01-01", relevant=[{"document": "b.md", "span": "Text of b", "grade": 3}]
        ),
        _question("none", kind="unanswerable", absent="zebra"),
    ]
    (samples / "golden" / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    return Paths(samples)


def _hit(page: Page, **scores: float) -> dict[str, Any]:
    path, text, headings = page
    return {
        "document_uid": path, "document_id": path, "source": "wiki", "kind": "page", "tenant": "acme",
        "title": path, "url": None, "path": path, "version": 1, "content_type": "text/markdown",
        "language": None, "effective_from": None, "effective_until": None, "updated_at": None, "tier": "hot",
        "access": {"clauses": [["everyone"]], "has_deny": False, "version": 1}, "age_s": 1.0,
        "section_id": "s", "chunk_id": path, "chunk_index": 0, "chunk_total": 1, "heading_path": list(headings),
        "text": text, "scores": {"fused": 0.03, "dense_distance": 0.2, "dense_rank": 1} | scores,
    }  # fmt: skip


A: Page = ("a.md", "Text of a.md.", ("a.md", "Part"))
B: Page = ("b.md", "Text of b.md.", ("b.md", "Part"))
C: Page = ("closed/c.md", "Text of closed/c.md.", ("closed/c.md", "Part"))


def _api(find: Callable[[dict[str, Any]], list[dict[str, Any]]], seen: list[httpx.Request]) -> QueryApi:
    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        body = {
            "query_id": "q", "generation": "minilm", "hits": find(json.loads(request.content)), "complete_until": {},
            "fresh": None, "counts": {"dense": 0, "sparse": 0, "exact": 0, "admitted": 0}, "starved": False,
            "judged_at": 1,
            "timings_ms": {"total": 9.0},
        }  # fmt: skip
        return httpx.Response(200, json=body)

    return QueryApi(Settings.model_validate(JWT), transport=httpx.MockTransport(reply))


def _right(body: dict[str, Any]) -> list[dict[str, Any]]:
    found = {"about one": [_hit(A), _hit(B)], "about dated": [_hit(B)], "about none": []}
    return found[body["query"]]


def _run(paths: Paths, find: Callable[[dict[str, Any]], list[dict[str, Any]]] = _right, **options: Any) -> Run:
    seen: list[httpx.Request] = []
    with _api(find, seen) as api:
        return run(api, paths, "hybrid", lambda done, total: None, **options)


@pytest.mark.requirement("C1", "C3")
def test_each_question_is_asked_by_its_own_person_on_its_own_day(paths: Paths) -> None:
    seen: list[httpx.Request] = []
    done: list[tuple[int, int]] = []
    with _api(_right, seen) as api:
        made = run(api, paths, "hybrid", lambda at, total: done.append((at, total)))
    bodies = [json.loads(request.content) for request in seen]
    assert [body["query"] for body in bodies] == ["about one", "about dated", "about none"]
    assert [body.get("filters", {}) for body in bodies] == [{}, {"as_of": 1_767_225_600_000_000}, {}]
    assert {body["rerank"] for body in bodies} == {"off"}, "a reranker scores what its time allows on this machine"
    token = seen[0].headers["Authorization"].removeprefix("Bearer ")
    assert TokenVerifier(Settings.model_validate(JWT).auth).verify(token).subject == "ann"
    assert done[-1] == (3, 3)
    assert made.ok
    assert made.report.overall.ndcg[10] == 1.0
    assert made.report.overall.precision[5] == pytest.approx(0.75)  # one of two hits, and one of one
    assert (made.report.abstention.right, made.report.abstention.expected) == (1, 1)


@pytest.mark.requirement("C3", "B1")
def test_a_hit_from_a_page_that_the_person_may_not_read_fails_the_gate(paths: Paths) -> None:
    made = _run(paths, lambda body: [_hit(C)] if body["query"] == "about none" else _right(body))
    assert not made.ok
    assert made.report.exposures == ("none: closed/c.md",)


@pytest.mark.requirement("C3")
def test_a_drop_below_the_stored_baseline_fails_the_gate(paths: Paths) -> None:
    assert _run(paths, store=True).comparison is None
    again = _run(paths)
    assert again.ok
    assert again.comparison is not None
    assert again.comparison.change.mean == 0
    worse = _run(paths, lambda body: [_hit(("a.md", "something else", ("a.md",)))])
    assert not worse.ok
    assert any("fell" in reason for reason in worse.reasons)


def test_a_run_that_exposes_something_never_becomes_the_baseline(paths: Paths) -> None:
    made = _run(paths, lambda body: [_hit(C)], store=True)
    assert not made.ok
    assert not paths.baseline.exists()


@pytest.mark.requirement("C1")
def test_abstention_counts_weak_hits_too(paths: Paths) -> None:
    made = _run(paths, lambda body: _right(body) or [_hit(B, dense_distance=1.9)])
    assert made.report.abstention.right == 1


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(
    ("nearest", "sparse", "exact", "weak"),
    [
        (None, None, False, True),
        (NEAREST + 0.01, SPARSE - 0.1, False, True),
        (NEAREST, SPARSE - 0.1, False, False),
        (NEAREST + 0.01, SPARSE, False, False),
        (NEAREST + 0.01, None, False, True),
        (NEAREST + 0.01, SPARSE - 0.1, True, False),
    ],
)
def test_retrieval_has_collapsed_where_both_lists_are_weak(
    nearest: float | None, sparse: float | None, exact: bool, weak: bool
) -> None:
    assert collapsed(nearest, sparse, exact=exact) is weak


def test_with_one_list_alone_only_an_empty_reply_abstains(paths: Paths) -> None:
    seen: list[httpx.Request] = []
    with _api(lambda body: _right(body) or [_hit(B, dense_distance=1.9)], seen) as api:
        made = run(api, paths, "dense", lambda done, total: None)
    assert made.report.abstention.abstained == 0


def test_questions_of_two_tenants_are_refused(paths: Paths) -> None:
    with paths.questions.open("a") as lines:
        lines.write(json.dumps(_question("other") | {"tenant": "other"}) + "\n")
    with pytest.raises(InfraError, match="tenants"):
        questions_of(paths)


def test_people_see_a_table_and_programs_the_figures(paths: Paths) -> None:
    made = _run(paths)
    out = Console(width=WIDTH, record=True, file=StringIO())
    show(out, made)
    shown = out.export_text()
    for part in (
        "nDCG@10",
        "questions",
        "plain",
        "unanswerable",
        "abstention: 1 of 1",
        "exposures: 0",
        "no baseline is stored",
    ):
        assert part in shown
    said = json.loads(json.dumps(plain(made)))
    assert said["ok"] is True
    assert said["report"]["overall"]["ndcg"]["10"] == 1.0
    assert [answer["id"] for answer in said["answers"]] == ["one", "dated", "none"]


def test_a_corpus_is_taken_as_served_only_where_pages_and_rights_are_equal(paths: Paths, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(paths.wiki, copy)
    assert same(copy, paths.wiki)
    source = {"name": "wiki", "tenant": "acme", "path": str(copy)}
    assert serves(Settings.model_validate({"sources": [source]}), paths.wiki, "acme")
    other = source | {"name": "tickets"}
    assert not serves(Settings.model_validate({"sources": [source, other]}), paths.wiki, "acme")
    assert not serves(Settings.model_validate({"sources": [source]}), paths.wiki, "other")
    (copy / "closed" / ".access.yaml").write_text("allow: [everyone]\n")
    assert not same(copy, paths.wiki)


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_A", "before")
    monkeypatch.delenv("HEADWATER_B", raising=False)
    with pytest.raises(RuntimeError), environment({"HEADWATER_A": "x", "HEADWATER_B": "y"}):
        assert (os.environ["HEADWATER_A"], os.environ["HEADWATER_B"]) == ("x", "y")
        raise RuntimeError
    assert os.environ["HEADWATER_A"] == "before"
    assert "HEADWATER_B" not in os.environ
