"""``search``: what one person finds."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from infra.asking import QueryApi
from infra.commands.output import JsonFlag, console, emit_json
from pipeline import settings as config
from schemas.api import Scores, SearchHit, SearchResponse

SNIPPET = 280  # characters
ALSO = 3  # documents named


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(search)


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    user: Annotated[str, typer.Option("--user", help="Who asks: ann, as in `user:ann` of the access rules.")],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant that is searched.")] = "acme",
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="Hits wanted.")] = 10,
    mode: Annotated[Literal["hybrid", "dense", "sparse"], typer.Option("--mode", help="How to search.")] = "hybrid",
    json: JsonFlag = False,
) -> None:
    """Search as one person, through the query service like everybody else."""
    with QueryApi(config.load()) as api:
        answer = api.search(user, tenant, query, k=k, mode=mode)
    if json:
        emit_json(answer)
    else:
        _print(console(), answer, user)


def _print(out: Console, answer: SearchResponse, user: str) -> None:
    if not answer.hits:
        out.print(f"Nothing that {user} may read was found.", highlight=False, markup=False)
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
    for line in complete(answer.complete_until, time.time()):
        out.print(line, style="dim", highlight=False, markup=False)


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
