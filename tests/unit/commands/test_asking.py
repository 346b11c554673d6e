"""Commands that ask the query service: what they send, what they show, what they say when no answer comes."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from infra import cli
from infra.asking import QueryApi
from infra.commands import lag, search
from infra.errors import InfraError
from pipeline.settings import Settings
from query_service.scope import TokenVerifier
from schemas.api import FreshnessResponse, Percentiles, Scores, SearchFilters

NOW = 1_800_000_000_000_000


def _settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"state_dir": tmp_path, "auth": {"jwt_secret": "s" * 48}})


def _hit(**changes: Any) -> dict[str, Any]:
    return {
        "document_uid": "u", "document_id": "d", "source": "wiki", "kind": "page", "tenant": "acme",
        "title": "Gateway [2]", "url": None, "path": "support/e17.md", "version": 1, "content_type": "text/markdown",
        "language": None, "effective_from": None, "effective_until": None, "updated_at": None, "tier": "hot",
        "access": {"clauses": [["everyone"]], "has_deny": False, "version": 1}, "age_s": 7200.0,
        "section_id": "s", "chunk_id": "c", "chunk_index": 0, "chunk_total": 1, "heading_path": ["Errors", "E17"],
        "text": "Do not resubmit\n\nuntil the check completes.",
        "scores": {"fused": 0.0325, "dense_distance": 0.31, "dense_rank": 1, "sparse_rank": 2, "sparse_score": 4.5},
        **changes,
    }  # fmt: skip


def _response(**changes: Any) -> dict[str, Any]:
    return {
        "query_id": "q", "generation": "minilm", "hits": [_hit()], "complete_until": {"wiki": NOW, "tickets": None},
        "fresh": None, "counts": {"dense": 3, "sparse": 2, "exact": 0, "admitted": 4}, "starved": False,
        "judged_at": 1, "timings_ms": {"total": 21.4}, **changes,
    }  # fmt: skip


def _api(tmp_path: Path, answer: httpx.Response | Exception, seen: list[httpx.Request] | None = None) -> QueryApi:
    def reply(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return QueryApi(_settings(tmp_path), transport=httpx.MockTransport(reply))


@pytest.mark.requirement("B1")
def test_a_search_carries_a_token_of_the_person_and_only_what_was_asked(tmp_path: Path) -> None:
    seen: list[httpx.Request] = []
    with _api(tmp_path, httpx.Response(200, json=_response()), seen) as api:
        answer = api.search("ann", "acme", "e17", k=3, mode="sparse", filters=SearchFilters(as_of=NOW))
        api.search("ann", "acme", "e17")
    assert answer.hits[0].path == "support/e17.md"
    assert json.loads(seen[0].content) == {
        "query": "e17",
        "k": 3,
        "mode": "sparse",
        "filters": {"as_of": NOW},
        "cache": False,
    }
    tokens = [r.headers["Authorization"].removeprefix("Bearer ") for r in seen]
    scope = TokenVerifier(_settings(tmp_path).auth).verify(tokens[0])
    assert (scope.subject, scope.tenant) == ("ann", "acme")
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    ("answer", "problem", "remedy"),
    [
        (httpx.ConnectError("refused"), "does not answer", "headwater up"),
        (httpx.Response(401, json={"title": "t", "status": 401, "detail": "expired"}), "401: expired", "secret"),
        (httpx.Response(503, json={"title": "t", "status": 503, "detail": "not ready"}), "503: not ready", "moment"),
        (
            httpx.Response(
                422,
                json={"title": "t", "status": 422, "detail": "d", "errors": [{"field": "k", "problem": "too many"}]},
            ),
            "k: too many",
            "Correct",
        ),
        (httpx.Response(500, text="<html>"), "500", "logs query"),
        (httpx.Response(200, json={"hello": "world"}), "not this version's", "HEADWATER_QUERY__PORT"),
    ],
    ids=["down", "token", "not ready", "fields", "no problem document", "somebody else"],
)
def test_no_usable_answer_names_the_remedy(
    tmp_path: Path, answer: httpx.Response | Exception, problem: str, remedy: str
) -> None:
    with _api(tmp_path, answer) as api, pytest.raises(InfraError) as error:
        api.search("ann", "acme", "e17")
    assert problem in error.value.problem
    assert remedy in error.value.remedy


def test_a_query_that_is_too_long_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    seen: list[httpx.Request] = []
    with _api(tmp_path, httpx.Response(200, json=_response()), seen) as api, pytest.raises(InfraError, match="query"):
        api.search("ann", "acme", "x" * 5000)
    assert seen == []


def test_a_service_that_listens_everywhere_is_asked_here(tmp_path: Path) -> None:
    settings = Settings.model_validate({"query": {"host": "0.0.0.0", "port": 81}})
    assert settings.query.address == "http://127.0.0.1:81"


# -- search ------------------------------------------------------------------------------------------------------------


def _invoke(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    answer: dict[str, Any],
    seen: list[httpx.Request] | None = None,
) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    original = QueryApi.__init__

    def connected(self: QueryApi, settings: Settings) -> None:
        def reply(request: httpx.Request) -> httpx.Response:
            if seen is not None:
                seen.append(request)
            return httpx.Response(200, json=answer)

        transport = httpx.MockTransport(reply)
        original(self, settings, transport=transport)

    monkeypatch.setattr(QueryApi, "__init__", connected)
    result = CliRunner().invoke(cli.build(), arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.requirement("A3")
def test_search_shows_title_place_headings_snippet_age_scores_and_completeness(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = _invoke(monkeypatch, tmp_path, ["search", "e17", "--user", "ann", "-k", "3"], _response())
    for part in (
        "1. Gateway [2]", "wiki:support/e17.md", "Errors › E17", "Do not resubmit until the check completes.",
        "2 h old", "fused 0.0325", "dense #1 at 0.310", "sparse #2 with 4.50", "wiki: complete until",
        "tickets: unknown", "4 candidates admitted", "21 ms",
    ):  # fmt: skip
        assert part in shown


@pytest.mark.requirement("B1", "E3")
def test_search_asks_with_its_options_and_names_the_next_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    passage = {
        "section_id": "s", "document_uid": "u", "document_id": "d", "source": "wiki", "title": "Gateway", "url": None,
        "version": 1, "updated_at": None, "heading_path": ["Errors"], "text": "The whole section.", "tokens": 4,
        "rank": 1, "chunk_ids": ["c"], "in_effect": False,
    }  # fmt: skip
    evidence = {"mode": "sections", "passages": [passage], "tokens": 4, "budget": 9, "complete": False, "left_out": 2}
    old = _hit(effective_until=1_700_000_000_000_000, in_effect=False, updated_at=1_800_000_000_000_000)
    asked: list[httpx.Request] = []
    cursor = "c" * 300
    answer = _response(hits=[old, _hit(effective_until=NOW)], evidence=evidence, next_cursor=cursor)
    options = [
        "--as-of", "2026-01-01", "--source", "wiki", "--source", "tickets", "--kind", "page", "--language", "en",
        "--since", "2025-01-01T02:00:00+02:00", "--until", "2026-01-01T00:00:00", "--rerank", "full", "--sort",
        "newest", "--evidence", "sections", "--cursor", "before", "--expand", "decompose",
    ]  # fmt: skip
    shown = _invoke(monkeypatch, tmp_path, ["search", "e17", "--user", "ann", *options], answer, asked)
    assert json.loads(asked[0].content) == {
        "query": "e17", "rerank": "full", "sort": "newest", "evidence": "sections", "cursor": "before",
        "cache": False, "expand": "decompose", "filters": {
            "as_of": 1_767_225_600_000_000, "sources": ["wiki", "tickets"], "kinds": ["page"], "languages": ["en"],
            "updated_after": 1_735_689_600_000_000, "updated_before": 1_767_225_600_000_000,
        },
    }  # fmt: skip
    assert shown.count("no longer in effect since 2023-11-14T22:13:20Z") == 1
    assert f"--cursor {cursor}\n" in shown  # in one piece, to be copied
    for part in ("4 of 9 tokens, not complete, 2 sections left out", "#1 Gateway", "The whole section."):
        assert part in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"since": "yesterday"}, "--since: is no date or time"), ({"as_of": "1767225600"}, "--as-of: a number"),
        ({"since": "2026-02-01", "until": "2026-01-01"}, "--until must be later than --since"),
        ({"sources": [""]}, "--source"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], said: str) -> None:
    absent = dict.fromkeys(("sources", "kinds", "languages", "since", "until", "as_of"))
    with pytest.raises(InfraError) as error:
        search.filters_of(**{**absent, **options})
    assert said in error.value.problem and "ISO 8601" in error.value.remedy


def test_search_says_that_nothing_was_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = _response(hits=[], starved=True)
    shown = _invoke(monkeypatch, tmp_path, ["search", "e17", "--user", "bob"], empty)
    assert "Nothing that bob may read was found." in shown
    assert "more may exist" in shown


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_search_warns_of_a_person_whom_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str]
) -> None:
    monkeypatch.setattr("infra.commands.people.located", Settings)
    monkeypatch.setattr("infra.commands.people._answers", lambda address: True)
    monkeypatch.setattr("infra.commands.lag.known_users", lambda settings, tenant: ["user:ann"])
    original = QueryApi.__init__
    for user, hits, warns in (
        ("ghost", [], True),
        ("user:ghost", [], True),
        ("ann", [], False),
        ("bob", [_hit()], False),
    ):
        transport = httpx.MockTransport(lambda request, hits=hits: httpx.Response(200, json=_response(hits=hits)))
        monkeypatch.setattr(QueryApi, "__init__", lambda self, s, t=transport: original(self, s, transport=t))
        result = CliRunner().invoke(cli.build(), ["search", "e17", "--user", user, *options])
        assert result.exit_code == 0, result.output
        assert ("no live record of user:ghost" in result.stderr) is warns, user
        assert ("groups.yaml" in result.stderr) is warns and "Warning" not in result.stdout


def test_search_as_json_is_the_reply_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown = _invoke(monkeypatch, tmp_path, ["search", "e17", "--user", "ann", "--json"], _response())
    said = json.loads(shown)
    assert said["hits"][0]["heading_path"] == ["Errors", "E17"]
    assert said["complete_until"] == {"wiki": NOW, "tickets": None}


def test_a_snippet_is_one_line_cut_at_a_word() -> None:
    assert search.snippet("a\n b\t c") == "a b c"
    long = search.snippet("wörter " * 100)
    assert long.endswith("wörter …")
    assert len(long) <= search.SNIPPET + 2
    assert len(search.snippet("x" * 1000)) <= search.SNIPPET + 2


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (12, "12 s"), (180, "3 min"), (7200, "2 h"), (400_000, "5 d")]
)
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert search.age(seconds) == shown


def test_scores_name_the_lists_that_found_the_hit() -> None:
    assert search.scores(Scores(fused=0.5)) == "fused 0.5000"
    assert "exact identifier" in search.scores(Scores(fused=0.5, exact=True, sparse_rank=1, sparse_score=2.0))


# -- lag ---------------------------------------------------------------------------------------------------------------


def _percentiles(p50: float, count: int = 9) -> Percentiles:
    return Percentiles(count=count, p50=p50, p95=2 * p50, p99=3 * p50)


def _freshness(**stages: float) -> FreshnessResponse:
    source = {
        "complete_until": NOW, "complete_age_s": 1.0, "pending": 2, "failed": 1,
        "lag_ms": {name: _percentiles(value).model_dump() for name, value in stages.items()},
        "revocation_ms": _percentiles(7.5).model_dump(),
    }  # fmt: skip
    return FreshnessResponse.model_validate(
        {"tenant": "acme", "generation": "minilm", "window_s": 3600, "now": NOW, "sources": {"wiki": source}}
    )


def _shown(found: FreshnessResponse, canary: lag.Canary) -> str:
    out = Console(width=120, record=True, file=StringIO())
    lag.show(out, found, canary)
    return out.export_text()


@pytest.mark.requirement("A11")
def test_lag_shows_each_stage_revocations_and_the_canary() -> None:
    canary = lag.Canary("running", {"found": 0.081, "hidden": 0.012, "gone": None}, ("gone: not within 10 s",))
    shown = _shown(_freshness(append=5, receive=4, extract=11, embed=60, write=20, total=101, source=130), canary)
    for part in (
        "observed → appended", "extracted → embedded", "60.0    120.0  180.0", "embedded → visible",
        "observed → visible", "source → visible", "revocation: appended → applied", "2 pending, 1 failed",
        "found 81 ms", "hidden 12 ms", "gone late", "gone: not within 10 s", "wiki: complete until",
    ):  # fmt: skip
        assert " ".join(part.split()) in " ".join(shown.split())


@pytest.mark.requirement("A11")
def test_a_bar_is_divided_in_proportion_to_the_stages() -> None:
    lags = _freshness(append=10, receive=0, wait=0, extract=10, embed=20, write=8).sources["wiki"].lag_ms
    bar = lag.bars(lags, "p50")
    assert bar is not None
    assert len(bar.plain) == lag.WIDTH
    lengths = {str(span.style): span.end - span.start for span in bar.spans}
    assert lengths == {"blue": 10, "yellow": 10, "green": 20, "red": 8}
    assert lag.bars({}, "p50") is None


def test_lag_without_a_source_or_a_canary_says_so() -> None:
    empty = _freshness().model_copy(update={"sources": {}})
    shown = _shown(empty, lag.Canary("not running", {}))
    assert "No source of this tenant" in shown
    assert "not running" in shown


def test_the_canarys_page_is_read() -> None:
    page = {"state": "alarm", "waiting_for": None, "last": {"seconds": {"found": 0.1}, "failures": ["kept: x"]}}
    assert lag.read(page) == lag.Canary("alarm", {"found": 0.1}, ("kept: x",))
    assert lag.read({"state": "waiting", "waiting_for": "the change gateway", "last": None}).state == (
        "waiting (the change gateway)"
    )


def test_a_canary_that_was_never_started_is_not_asked(tmp_path: Path) -> None:
    assert lag.look(_settings(tmp_path)).state == "never started here"


def test_lag_as_json_has_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = _freshness(total=100).model_dump(mode="json")
    shown = _invoke(monkeypatch, tmp_path, ["lag", "--user", "ann", "--json"], answer)
    said = json.loads(shown)
    assert said["freshness"]["sources"]["wiki"]["lag_ms"]["total"]["p95"] == 200
    assert said["canary"]["state"] == "never started here"
