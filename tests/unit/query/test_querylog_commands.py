"""The commands of the query log and of why: which role asks what, and what is printed."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import jwt
import pytest
from pydantic import SecretStr
from rich.console import Console
from typer.testing import CliRunner

from infra.commands import queries, why
from infra.errors import InfraError
from pipeline.settings import AuthSettings, Settings
from schemas.api_feedback import LoggedFeedback, LoggedQuery, PurgeResponse, QueriesResponse, WhoResponse
from schemas.api_why import (
    Check,
    ClauseReport,
    GrantReport,
    ManifestReport,
    PendingReport,
    PersonReport,
    Reached,
    RuleReport,
    WhyResponse,
)
from schemas.keys import DocumentRef
from schemas.querylog import LoggedHit

SECRET = "0123456789abcdef0123456789abcdef"
ANN = "a" * 32
UID = "5b0a54c1-8f5d-5a53-9d0e-3a1b7f0c2d4e"


def logged(number: int, **fields: Any) -> LoggedQuery:
    return LoggedQuery(
        query_id=f"{number:036d}", at=1_700_000_000_000_000 - number, tenant="acme", kind="search", outcome="answered",
        status=200, scope=ANN, **{"text": "the [plan]", "text_mode": "redacted", **fields},
    )  # fmt: skip


class Service:
    """Answers as the query service does, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any, list[str]]] = []
        self.queries = [logged(i) for i in range(3)]
        self.why: WhyResponse | None = None
        settings = Settings(auth=AuthSettings(jwt_secret=SecretStr(SECRET)))
        for module, name in ((queries, "LogApi"), (why, "WhyApi")):
            plain = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda settings, plain=plain: plain(settings, transport=httpx.MockTransport(self.answer))
            )
            monkeypatch.setattr(module.config, "load", lambda: settings)

    def answer(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        claims = jwt.decode(token, SECRET, algorithms=["HS256"], audience="headwater")
        params = dict(request.url.params)
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.path, params, body, claims["roles"]))
        path = request.url.path
        if path == "/v1/queries":
            start = int(params.get("cursor", "0"))
            page = self.queries[start : start + int(params["limit"])]
            more = start + len(page) < len(self.queries)
            found: Any = QueriesResponse(
                queries=tuple(page), next_cursor=str(start + len(page)) if more else None, complete_until=None
            )
        elif path.startswith("/v1/queries/who/"):
            known = path.endswith(ANN)
            found = WhoResponse(scope=path.rsplit("/", 1)[1], user="user:ann" if known else None)
        elif path == "/v1/queries/purge":
            assert body is not None
            found = PurgeResponse(tenant="acme", before=body["before"], scope=None, here=2, log_until=body["before"])
        elif path == "/v1/why":
            assert self.why is not None
            found = self.why
        else:
            found = self.queries[0]
        return httpx.Response(200, text=found.model_dump_json())


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(monkeypatch)


def run(*words: str, columns: str = "200") -> tuple[int, str]:
    from infra.cli import build

    found = CliRunner().invoke(build(), list(words), env={"COLUMNS": columns})
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.stdout


@pytest.mark.requirement("C5")
def test_lists_and_exports_follow_pages_and_ask_as_evaluator(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAGE", 2)
    code, text = run("queries", "export", "--since", "2026-05-01", "--zero", "--user", "ann")
    assert code == 0 and [json.loads(x)["query_id"] for x in text.splitlines()] == [q.query_id for q in service.queries]
    (method, path, params, _, roles), second = service.asked
    assert (method, path, roles) == ("GET", "/v1/queries", ["evaluator"]) and second[2]["cursor"] == "2"
    assert params["since"] == "1777593600000000" and params["zero"] == "true" and params["user"] == "ann"
    code, text = run("queries", "list", "--limit", "1")
    assert code == 0 and service.queries[0].query_id in text and "the [plan]" in text
    assert service.queries[1].query_id not in text
    assert len(json.loads(run("queries", "list", "--json")[1])) == 3
    service.queries = []
    assert "No query that fits" in run("queries", "list")[1]


@pytest.mark.requirement("C5")
def test_show_who_and_purge(service: Service) -> None:
    service.queries[0] = logged(
        0, hits=(LoggedHit(chunk_id="c1", document_uid="d1", fused=0.5, final=0.25),),
        feedback=(LoggedFeedback(verdict="wrong", chunk_id="c1", document_uid=None, comment="no [mail]", at=1),),
        timings_ms={"search": 3.0}, request={"k": 3},
    )  # fmt: skip
    text = run("queries", "show", service.queries[0].query_id)[1]
    for said in ("the [plan]", "c1", "0.2500", "search 3.0", "wrong on c1: no [mail]", '{"k": 3}'):
        assert said in text
    assert run("queries", "who", ANN) == (0, "user:ann\n")
    assert run("queries", "who", "b" * 32)[0] == 1
    with pytest.raises(InfraError, match="no reference"):
        run("queries", "who", "../purge")
    for wrong in ("../who/x", "0000000"):
        with pytest.raises(InfraError, match="no id"):
            run("queries", "show", wrong)
    run("queries", "purge", "--before", "2026-05-01T08:00+02:00")
    run("queries", "purge", "--before", "1d", "--user", "ann")
    everybody, person = service.asked[-2:]
    assert everybody[3:] == ({"before": 1_777_615_200_000_000}, ["operator"])
    assert person[3]["user"] == "ann" and person[4] == ["evaluator"]


@pytest.mark.requirement("C5", "B7")
def test_a_refusal_is_no_answer(service: Service) -> None:
    refused = {"kind": "answer", "refusal": "weak_evidence", "support": None, "tokens": {"read": 80}, "cost": 0.5}
    service.queries = [logged(0).model_copy(update=refused)]
    text = run("queries", "show", service.queries[0].query_id)[1]
    assert "answer, no answer: weak evidence, status 200" in text and "answered" not in text
    assert "read 80, cost 0.5000" in text and "sentences   shown" in text
    assert "no answer: weak evidence" in run("queries", "list", columns="200")[1]


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("columns", ["80", "40", "200"])
def test_ids_of_the_list_stay_whole_and_may_be_given_by_their_beginning(service: Service, columns: str) -> None:
    ids = ["3a91f0c2-0000-4000-8000-000000000001", "3a91f0c2-0000-4000-8000-000000000002", "b" * 8 + "-" + "1" * 27]
    service.queries = [logged(1).model_copy(update={"query_id": one, "text": "long words " * 9}) for one in ids]
    service.queries[2] = service.queries[2].model_copy(update={"scope": ANN[:8] + "b" * 24})
    text = run("queries", "list", columns=columns)[1]
    assert all(one in text for one in ids)
    assert all(ANN[:8] in line for line in text.splitlines() if any(one in line for one in ids))
    run("queries", "show", "bbbbbbbb")
    assert service.asked[-1][1] == f"/v1/queries/{ids[2]}"
    with pytest.raises(InfraError, match="2 in the log begin with '3a91f0c2'"):
        run("queries", "show", "3a91f0c2")
    with pytest.raises(InfraError, match="No query among"):
        run("queries", "show", "cccccccc")
    with pytest.raises(InfraError, match="2 in the log begin"):
        run("queries", "who", ANN[:8])
    assert run("queries", "who", ANN[:8] + "a") == (0, "user:ann\n")
    with pytest.raises(InfraError, match="No reference among"):
        run("queries", "who", "c" * 8)


@pytest.mark.requirement("C5")
def test_a_narrow_screen_cuts_no_id() -> None:
    made = queries.listed([logged(1)])
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=True).print(made)
    assert logged(1).query_id in out.getvalue() and ANN[:8] in out.getvalue()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 1000 - 7 * 86_400), ("36h", 1000 - 36 * 3600), ("5min", 700), ("1970-01-01T00:01:00", 60), (None, None)],
)
def test_moments(text: str | None, seconds: int | None) -> None:
    assert queries.at(text, "--since", 1000.0) == (None if seconds is None else max(0, seconds * 1_000_000))
    assert queries.at("0001-01-01", "--since") == queries.at("999999d", "--since", 1000.0) == 0
    with pytest.raises(InfraError, match="--since"):
        queries.at("yesterday", "--since")


def explained(**fields: Any) -> WhyResponse:
    person = PersonReport(
        user="user:ann", live=True, tenant_suspended=False, complete=False, cut=False, missing=("group:wiki/lost",),
        removed=(), unreadable=(), ended=("user:ann > group:wiki/ops",), principals_total=1,
        principals=(Reached(principal="group:wiki/eng", path=("user:ann", "group:wiki/eng"), until=1),),
        written_at=None, until=None,
    )  # fmt: skip
    grant = GrantReport(principal="group:wiki/board", until=None, held=False, live=True)
    rule = RuleReport(
        admits=False, deny_total=0, denied_by=(), denied_as_unknown=False, reason=None,
        clauses=(ClauseReport(satisfied=False, satisfied_by=(), grants_total=1, grants=(grant,)),),
    )  # fmt: skip
    manifest = ManifestReport(
        deleted=False, content_version=1, access_version=1, tier="hot", chunk_total=1, indexed_at=None,
        effective_from=None, effective_until=None, product=None, in_effect=False, prefilter=False,
    )  # fmt: skip
    checks = (
        Check(name="rule", passed=False, says="not satisfied [x]"),
        Check(name="no_hold", passed=None, says="-"),
    )
    return WhyResponse(**{
        "query_id": "q1", "tenant": "acme", "generation": "g2", "active": False, "judged_at": 1, "allowed": False,
        "refusal": "rule", "says": "may not read it: not satisfied: clause 1 of 1", "document_uid": "u",
        "source": "wiki", "kind": "page", "document_id": "a [draft]", "person": person, "record": None, "rule": rule,
        "manifest": manifest, "checks": checks, "manifest_rule": None,
        "pending": (PendingReport(lane="access", written=5, settled=None),), **fields,
    })  # fmt: skip


@pytest.mark.requirement("C5")
def test_why_reads_for_people_and_asks_as_operator(service: Service) -> None:
    service.why = explained(source_alarms=("nobody may read: a/.access.yaml: allow is missing",))
    code, text = run("why", "ann", "a", "--source", "wiki", "--generation", "g2")
    assert code == 0
    _, path, params, _, roles = service.asked[0]
    assert (path, roles, params["user"], params["generation"]) == ("/v1/why", ["operator"], "ann", "g2")
    assert len(params["document"]) == 36
    for said in (
        "user:ann may not read it", "wiki:a [draft], generation g2 (not active)", "not satisfied [x]",
        "clause 1: satisfied by nothing that the person has; it asks for one of: group:wiki/board",
        "user:ann > group:wiki/eng until 1970", "missing: group:wiki/lost", "ended: user:ann > group:wiki/ops",
        "not all known", "alarm of wiki: nobody may read: a/.access.yaml",
        "pending: access has not settled version 5", "not in effect",
        "logged as q1",
    ):  # fmt: skip
        assert said in text, said
    assert "older principals" not in text  # what the rule does not admit, no search is to meet
    assert service.why.rule is not None
    service.why = explained(allowed=True, rule=service.why.rule.model_copy(update={"admits": True}))
    assert "carry older principals" in run("why", "ann", UID)[1]
    assert json.loads(run("why", "ann", UID, "--json")[1])["refusal"] == "rule"
    with pytest.raises(InfraError, match="No such document"):
        run("why", "ann", "a", "--source", "wi/ki")


@pytest.mark.requirement("C5")
def test_why_takes_a_document_by_its_id(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.why = explained()
    twice = [DocumentRef(tenant="acme", source=source, id="both.md") for source in ("wiki", "git")]
    one = DocumentRef(tenant="acme", source="wiki", kind="page", id="engineering/deploy-process.md")
    other = DocumentRef(tenant="other", source="wiki", id="theirs.md")
    keys = [d.state_key() for d in (*twice, one, other)] + ['["acme","wiki","cursor","x"]', "{", None]
    monkeypatch.setattr(why, "_keys", lambda: iter(keys))
    for given in (one.id, f"wiki:{one.id}"):
        run("why", "ann", given)
        assert service.asked[-1][2]["document"] == one.uid
    run("why", "ann", "git:both.md")
    assert service.asked[-1][2]["document"] == twice[1].uid
    with pytest.raises(InfraError, match="Several documents of acme") as several:
        run("why", "ann", "both.md")
    assert "--source git --kind page, --source wiki --kind page" in several.value.remedy
    for absent in ("theirs.md", "https://wiki.test/both.md"):
        with pytest.raises(InfraError, match="no uid, and no document of acme") as none:
            run("why", "ann", absent)
        assert "headwater search" in none.value.remedy and "trace" not in none.value.remedy


def test_a_short_screen_shows_the_same() -> None:
    out = io.StringIO()
    why.explain(Console(file=out, width=40), explained(allowed=True, says="may read it", rule=None))
    assert "may read it" in out.getvalue()
