"""``search``: what one person finds."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from infra.asking import QueryApi
from infra.commands import people
from infra.commands.output import JsonFlag, console, emit_json
from infra.errors import InfraError
from pipeline import settings as config
from query_service.client.passages import effect_of
from schemas.api import Scores, SearchFilters, SearchHit, SearchResponse
from schemas.api_ranking import Evidence, EvidenceMode, Expansion, RerankMode, Sort
from schemas.wording import plainly

SNIPPET = 280  # characters
ALSO = 3  # documents named
MOMENT = "a date (its midnight in UTC) or a time in ISO 8601, UTC without an offset"
OPTIONS = {
    "sources": "--source", "kinds": "--kind", "languages": "--language",
    "updated_after": "--since", "updated_before": "--until", "as_of": "--as-of",
}  # fmt: skip
"""The options of the filters."""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(search)


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    user: Annotated[str, typer.Option("--user", help="Who asks: ann, as in `user:ann` of the access rules.")],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant that is searched.")] = "acme",
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="Hits wanted.")] = 10,
    mode: Annotated[Literal["hybrid", "dense", "sparse"], typer.Option("--mode", help="How to search.")] = "hybrid",
    source: Annotated[list[str] | None, typer.Option("--source", help="Only this source; may be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this kind (page, issue); repeatable.")] = None,
    language: Annotated[list[str] | None, typer.Option("--language", help="Only this language; repeatable.")] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"Updated at or after this moment: {MOMENT}.")] = None,
    until: Annotated[str | None, typer.Option("--until", help=f"Updated before this moment: {MOMENT}.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", help=f"Only what is in effect then: {MOMENT}.")] = None,
    sort: Annotated[Sort, typer.Option("--sort", help="By relevance, or the best by last update.")] = "relevance",
    rerank: Annotated[RerankMode | None, typer.Option("--rerank", help="The service's setting where absent.")] = None,
    expand: Annotated[Expansion, typer.Option("--expand", help="Further queries to ask.")] = "none",
    evidence: Annotated[EvidenceMode, typer.Option("--evidence", help="Show the sections for a generator.")] = "none",
    cursor: Annotated[str | None, typer.Option("--cursor", help="The next page, as the page before names it.")] = None,
    json: JsonFlag = False,
) -> None:
    """Search as one person, through the query service like everybody else."""
    filters = filters_of(sources=source, kinds=kind, languages=language, since=since, until=until, as_of=as_of)
    with QueryApi(config.load()) as api:
        answer = api.search(
            user, tenant, query, k=k, mode=mode, filters=filters, sort=sort, rerank=rerank, expand=expand,
            evidence=evidence, cursor=cursor,
        )  # fmt: skip
    if json:
        emit_json(answer)
    else:
        _print(console(), answer, user)
    if not answer.hits:
        people.warn(tenant, user)


def filters_of(
    *, sources: list[str] | None, kinds: list[str] | None, languages: list[str] | None, since: str | None,
    until: str | None, as_of: str | None,
) -> SearchFilters:  # fmt: skip
    """The options as filters. Raises InfraError that names the option."""
    given = {
        "sources": sources or None, "kinds": kinds or None, "languages": languages or None,
        "updated_after": since, "updated_before": until, "as_of": as_of,
    }  # fmt: skip
    try:
        return SearchFilters.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = OPTIONS[str(first["loc"][0])] if first["loc"] else "--until"
        said = plainly(first)
        for name, flag in OPTIONS.items():
            said = said.replace(name, flag)
        raise InfraError(f"{option}: {said}.", f"A moment is {MOMENT}; names are those of the sources.") from None


def _print(out: Console, answer: SearchResponse, user: str) -> None:
    if not answer.hits:
        out.print(f"Nothing that {user} may read was found.", highlight=False, markup=False)
    elif answer.weak:
        out.print("Nothing fits well. The nearest passages:", style="yellow", highlight=False)
    for number, hit in enumerate(answer.hits, 1):
        out.print(_hit(number, hit))
    total = answer.timings_ms.get("total")
    counts = answer.counts
    facts = [
        f"{len(answer.hits)} hits",
        f"{counts.admitted} candidates admitted (dense {counts.dense}, sparse {counts.sparse}, exact {counts.exact})",
        f"generation {answer.generation}",
    ]
    if total is not None:
        facts.append(f"{total:.0f} ms")
    if answer.starved:
        facts.append("more may exist than could be looked through in time")
    out.print(", ".join(facts), style="dim", highlight=False, markup=False)
    if answer.evidence is not None:
        _evidence(out, answer.evidence)
    if answer.next_cursor is not None:
        out.print(f"Next page: --cursor {answer.next_cursor}", soft_wrap=True, highlight=False, markup=False)
    for line in complete(answer.complete_until, time.time()):
        out.print(line, style="dim", highlight=False, markup=False)


def _evidence(out: Console, found: Evidence) -> None:
    state = "complete" if found.complete else f"not complete, {found.left_out} sections left out"
    out.print(f"\nEvidence: {found.tokens} of {found.budget} tokens, {state}", style="bold", highlight=False)
    for passage in found.passages:
        text = Text(f"#{passage.rank} ")
        text.append(passage.title, style="bold")
        text.append(f"  {passage.source}:{passage.document_id}", style="cyan")
        if passage.heading_path:
            text.append(f"\n{' › '.join(passage.heading_path)}", style="green")
        if not passage.in_effect:
            text.append("\nnot in effect", style="red")
        text.append(f"\n{passage.text}{' …' if passage.cut else ''}\n")
        out.print(text)


def complete(until: dict[str, int | None], now: float) -> list[str]:
    """Per source up to when the answer is complete; ``until`` in microseconds, ``now`` in seconds."""
    lines = []
    for source, moment in sorted(until.items()):
        if moment is None:
            lines.append(f"{source}: unknown up to when it is complete")
            continue
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment / 1e6))
        lines.append(f"{source}: complete until {clock} ({age(max(0.0, now - moment / 1e6))} ago)")
    return lines


def age(seconds: float) -> str:
    """A span of time in one unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _hit(number: int, hit: SearchHit) -> Text:
    text = Text(f"{number:>2}. ")
    text.append(hit.title, style="bold")
    place = hit.path or hit.url or hit.document_id
    text.append(f"  {hit.source}:{place}", style="cyan")
    if hit.heading_path:
        text.append(f"\n    {' › '.join(hit.heading_path)}", style="green")
    text.append(f"\n    {snippet(hit.text)}")
    if hit.also:
        others = ", ".join(one.path or one.title or one.document_id for one in hit.also[:ALSO])
        more = f" and {len(hit.also) - ALSO} more" if len(hit.also) > ALSO else ""
        text.append(f"\n    also in {others}{more}", style="cyan")
    outdated = effect_of(hit)
    if outdated is not None:
        text.append(f"\n    {outdated}", style="red")
    for warning in hit.warnings:
        text.append(f"\n    {warning}", style="yellow")
    page = f"page {hit.page}, " if hit.page is not None else ""
    text.append(f"\n    {page}{age(hit.age_s)} old, {hit.tier}, {scores(hit.scores)}\n", style="dim")
    return text


def snippet(text: str) -> str:
    """The beginning on one line, cut at a word."""
    flat = " ".join(text.split())
    if len(flat) <= SNIPPET:
        return flat
    return flat[: SNIPPET + 1].rsplit(" ", 1)[0][:SNIPPET] + " …"


def scores(found: Scores) -> str:
    """How the hit was ranked."""
    parts = [f"fused {found.fused:.4f}"]
    if found.dense_rank is not None and found.dense_distance is not None:
        parts.append(f"dense #{found.dense_rank} at {found.dense_distance:.3f}")
    if found.sparse_rank is not None and found.sparse_score is not None:
        parts.append(f"sparse #{found.sparse_rank} with {found.sparse_score:.2f}")
    if found.exact:
        parts.append("exact identifier")
    return ", ".join(parts)
