"""``queries``: the query log: look, take it along, resolve whom a reference means, forget."""

from __future__ import annotations

import json as jsonlib
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from infra.asking import QueryApi
from infra.commands.deletion import moment
from infra.commands.opened import requester
from infra.commands.output import JsonFlag, console, emit_json, table
from infra.errors import InfraError
from pipeline import settings as config
from pipeline.tokens import EVALUATOR, OPERATOR
from schemas.api_feedback import LoggedQuery, PurgeResponse, QueriesResponse, WhoResponse
from schemas.querylog import Kind, QueryOutcome, Verdict

PAGE = 500
SEARCHED = 5_000  # queries that are looked through for one that is named by the beginning of its id
WIDE = 200  # columns of a list that no terminal shows
_AGO = re.compile(r"(\d{1,6})(d|h|min)")
_SECONDS = {"d": 86_400, "h": 3_600, "min": 60}

Tenant = Annotated[str, typer.Option("--tenant", help="Whose log.")]
Since = Annotated[str | None, typer.Option("--since", help="From: 2026-05-01, 2026-05-01T08:30, 36h, 7d.")]
Until = Annotated[str | None, typer.Option("--until", help="Up to, likewise.")]
KindOption = Annotated[Kind | None, typer.Option("--kind", help="Only of this kind.")]
OutcomeOption = Annotated[QueryOutcome | None, typer.Option("--outcome", help="Only with this end.")]
Zero = Annotated[bool, typer.Option("--zero", help="Only searches that showed nothing.")]
Slower = Annotated[float | None, typer.Option("--slower", min=0, help="Only those that took so many ms or more.")]
FeedbackOption = Annotated[Verdict | None, typer.Option("--feedback", help="Only with this verdict.")]
User = Annotated[str | None, typer.Option("--user", help="Only of this person.")]


def register(app: typer.Typer) -> None:
    """Add this file's group."""
    group = typer.Typer(help="The query log: what was asked, what became of it, feedback.", no_args_is_help=True)
    group.command("list")(list_)
    group.command()(show)
    group.command()(export)
    group.command()(who)
    group.command()(purge)
    app.add_typer(group, name="queries")


class LogApi(QueryApi):
    """The query log's routes, asked in the role that each needs."""

    def __enter__(self) -> LogApi:
        return self

    def queries(self, tenant: str, **wanted: Any) -> QueriesResponse:
        """``GET /v1/queries``."""
        params = {name: value for name, value in wanted.items() if value is not None}
        return self._ask(
            QueriesResponse, "GET", "/v1/queries", requester(), tenant, roles=(EVALUATOR,), params=params
        )  # fmt: skip

    def query(self, tenant: str, query_id: str) -> LoggedQuery:
        """``GET /v1/queries/ID``."""
        return self._ask(LoggedQuery, "GET", f"/v1/queries/{query_id}", requester(), tenant, roles=(EVALUATOR,))

    def who(self, tenant: str, reference: str) -> WhoResponse:
        """``GET /v1/queries/who/REFERENCE``."""
        path = f"/v1/queries/who/{reference}"
        return self._ask(WhoResponse, "GET", path, requester(), tenant, roles=(EVALUATOR,))

    def purge(self, tenant: str, before: int, user: str | None) -> PurgeResponse:
        """``POST /v1/queries/purge``: of one person as an evaluator, else as an operator."""
        body = {"before": before} if user is None else {"before": before, "user": user}
        roles = (OPERATOR,) if user is None else (EVALUATOR,)
        return self._ask(PurgeResponse, "POST", "/v1/queries/purge", requester(), tenant, roles=roles, json=body)

    def pages(self, tenant: str, limit: int | None, **wanted: Any) -> Iterator[LoggedQuery]:
        """Queries over as many pages as there are, at most ``limit``."""
        cursor, left = None, limit
        while left is None or left > 0:
            page = self.queries(tenant, cursor=cursor, limit=PAGE if left is None else min(PAGE, left), **wanted)
            yield from page.queries
            left = None if left is None else left - len(page.queries)
            cursor = page.next_cursor
            if cursor is None:
                return


def at(text: str | None, option: str, now: float | None = None) -> int | None:
    """A moment (µs): a date, a time (UTC unless it says otherwise), or how long ago. Raises InfraError."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return max(0, int(((time.time() if now is None else now) - int(ago[1]) * _SECONDS[ago[2]]) * 1e6))
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InfraError(f"{option} {text!r} is no moment.", "Give a date, as in 2026-05-01, or an age: 7d.") from error
    return max(0, int((read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp() * 1e6))


def list_(
    tenant: Tenant = "acme",
    since: Since = None,
    until: Until = None,
    kind: KindOption = None,
    outcome: OutcomeOption = None,
    zero: Zero = False,
    slower: Slower = None,
    feedback: FeedbackOption = None,
    any_feedback: Annotated[bool, typer.Option("--any-feedback", help="Only with feedback.")] = False,
    user: User = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 20,
    json: JsonFlag = False,
) -> None:
    """Queries, newest first."""
    wanted = _wanted(since, until, kind, outcome, zero, slower, feedback, user) | {"any_feedback": any_feedback}
    with LogApi(config.load()) as api:
        found = list(api.pages(tenant, limit, **wanted))
    if json:
        emit_json(found)
        return
    out = console()
    if not found:
        out.print("No query that fits is in the log.", highlight=False)
        return
    # Into a file or another program it goes as wide as it is.
    (out if out.is_terminal else Console(width=WIDE)).print(listed(found))


def listed(found: Sequence[LoggedQuery]) -> Table:
    """A line for each query. Ids are copied from it: they stay whole on one line, however narrow the screen."""
    heads = ("when (UTC)", "query", "kind", "end", "shown", "ms", "who", "asked", "feedback")
    shown = table(*heads)
    for column, head in zip(shown.columns, heads, strict=True):
        if head in ("query", "who"):
            column.no_wrap, column.min_width = True, 36 if head == "query" else 8
    for q in found:
        shown.add_row(
            moment(q.at).removesuffix(" UTC"), q.query_id, q.kind, _end(q), str(q.counts.shown),
            f"{q.total_ms:.0f}", (q.scope or "-")[:8], _plain(q.text or q.document_uid or ""),
            ", ".join(f.verdict for f in q.feedback),
        )  # fmt: skip
    return shown


def show(
    query_id: Annotated[str, typer.Argument(help="Its id, as replies and the list tell it, or its first 8 digits.")],
    tenant: Tenant = "acme",
    json: JsonFlag = False,
) -> None:
    """One query with its hits, counts, times and feedback."""
    with LogApi(config.load()) as api:
        found = api.query(tenant, _whole(api, tenant, query_id))
    if json:
        emit_json(found)
    else:
        _show(console(), found)


def _whole(api: LogApi, tenant: str, text: str) -> str:
    """The id of a query that is named by it, or by its beginning where only one of the log has that."""
    if re.fullmatch("[0-9a-f-]{36}", text) is not None:
        return text
    if re.fullmatch("[0-9a-f-]{8,35}", text) is None:
        raise InfraError(
            f"{text!r} is no id of a query.", "Take it from a reply or from `queries list`: all of it, or 8 digits."
        )
    return _only(text, (q.query_id for q in api.pages(tenant, SEARCHED)), "query")


def _only(text: str, known: Iterable[str | None], what: str) -> str:
    found = {one for one in known if one is not None and one.startswith(text)}
    if len(found) > 1:
        raise InfraError(f"{len(found)} in the log begin with {text!r}.", "Give more of it.")
    if not found:
        raise InfraError(
            f"No {what} among the last {SEARCHED:,} of the log begins with {text!r}.",
            "Give all of it, or see `headwater queries list`.",
        )
    return found.pop()


def export(
    tenant: Tenant = "acme",
    since: Since = None,
    until: Until = None,
    kind: KindOption = None,
    outcome: OutcomeOption = None,
    zero: Zero = False,
    slower: Slower = None,
    feedback: FeedbackOption = None,
    user: User = None,
) -> None:
    """All queries as JSON lines on standard output, newest first."""
    with LogApi(config.load()) as api:
        for q in api.pages(tenant, None, **_wanted(since, until, kind, outcome, zero, slower, feedback, user)):
            sys.stdout.write(jsonlib.dumps(q.model_dump(mode="json"), ensure_ascii=False) + "\n")


def who(
    reference: Annotated[str, typer.Argument(help="A reference (who, scope) of the log, or its first 8 digits.")],
    tenant: Tenant = "acme",
    json: JsonFlag = False,
) -> None:
    """The person behind a reference. It is logged that this was asked."""
    if re.fullmatch("[0-9a-f]{8,32}", reference) is None:
        raise InfraError(f"{reference!r} is no reference.", "Give 8 digits of 'who' in `queries list`, or all 32.")
    with LogApi(config.load()) as api:
        if len(reference) < 32:
            reference = _only(reference, (q.scope for q in api.pages(tenant, SEARCHED)), "reference")
        found = api.who(tenant, reference)
    if json:
        emit_json(found)
    elif found.user is None:
        console().print("No known person of the tenant has this reference.", highlight=False)
        raise typer.Exit(1)
    else:
        typer.echo(found.user)


def purge(
    before: Annotated[str, typer.Option("--before", help="Records from before this: a date, a time, or an age: 7d.")],
    tenant: Tenant = "acme",
    user: Annotated[str | None, typer.Option("--user", help="Of this person only.")] = None,
    json: JsonFlag = False,
) -> None:
    """Forget logged queries and feedback of a tenant, or of one person."""
    until = at(before, "--before")
    assert until is not None
    with LogApi(config.load()) as api:
        done = api.purge(tenant, until, user)
    if json:
        emit_json(done)
        return
    whose = f" of {user}" if user is not None else ""
    out = console()
    out.print(f"{done.here} records{whose} from before {moment(done.before)} are dropped.", highlight=False)
    out.print(
        f"Other query services drop theirs as they read the log; the log itself loses them by {moment(done.log_until)}",
        style="dim", highlight=False, soft_wrap=True,
    )  # fmt: skip


def _wanted(
    since: str | None, until: str | None, kind: str | None, outcome: str | None, zero: bool, slower: float | None,
    feedback: str | None, user: str | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "since": at(since, "--since"), "until": at(until, "--until"), "kind": kind, "outcome": outcome,
        "zero": True if zero else None, "slower_ms": slower, "feedback": feedback, "user": user,
    }  # fmt: skip


def _show(out: Console, q: LoggedQuery) -> None:
    counts = q.counts
    facts = {
        "query": f"{q.query_id}  {moment(q.at)}",
        "asked": q.text if q.text is not None else f"({q.text_mode} text is kept)",
        "kind": f"{q.kind}, {_end(q)}, status {q.status}",
        "who": f"{q.scope or '-'}, {q.principals} principals" + (f", by operator {q.operator}" if q.operator else ""),
        "generation": q.generation or "-",
        "document": q.document_uid or "-",
        "parameters": jsonlib.dumps(q.request, ensure_ascii=False),
        "candidates": f"dense {counts.dense}, sparse {counts.sparse}, exact {counts.exact}, admitted {counts.admitted}",
        "ranked": f"fused {counts.fused}, reranked {counts.reranked}"
        + (f", shown {counts.shown}" if q.kind != "answer" else ""),
        "left out": ", ".join(f"{reason} {n}" for reason, n in counts.refused.items()) or "none",
        "ms": ", ".join(f"{name} {ms:.1f}" for name, ms in q.timings_ms.items()) or f"total {q.total_ms:.1f}",
    }
    if q.kind == "answer":
        facts["sentences"] = f"shown {counts.shown}, withheld {q.withheld}, citing {q.cited} passages"
        if q.support is not None:
            facts["support"] = f"{q.support:.2f} of the weakest sentence"
        if q.cached != "none":
            facts["kept"] = f"given before ({q.cached}), checked again"
    if q.tokens or q.cost:
        used = ", ".join(f"{use} {n}" for use, n in q.tokens.items())
        facts["tokens"] = (used or "none") + (f", cost {q.cost:.4f}" if q.cost else "")
    for label, value in facts.items():
        out.print(f"{label:<11} {value}", highlight=False, markup=False, soft_wrap=True)
    if q.hits:
        shown = table("rank", "document", "passage", "fused", "rerank", "final")
        for rank, hit in enumerate(q.hits, 1):
            scores = ("" if s is None else f"{s:.4f}" for s in (hit.fused, hit.rerank, hit.final))
            shown.add_row(str(rank), hit.document_uid, hit.chunk_id, *scores)
        out.print(shown)
    for f in q.feedback:
        target = f.chunk_id or f.document_uid or "the answer"
        out.print(f"feedback    {f.verdict} on {target}: {f.comment or ''}", highlight=False, markup=False)


def _end(q: LoggedQuery) -> str:
    """What became of it in a word: a reply that is a refusal is no answer, though the request succeeded."""
    if q.refusal is None:
        return q.outcome
    return f"{'no answer' if q.outcome == 'answered' else q.outcome}: {q.refusal.replace('_', ' ')}"


def _plain(text: str) -> str:
    flat = " ".join(text.split()).replace("[", "\\[")
    return flat if len(flat) <= 60 else flat[:59] + "…"
