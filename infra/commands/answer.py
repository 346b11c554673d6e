"""``answer``: what the documents that one person may read say to a question."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.status import Status
from rich.text import Text

from infra.asking import QueryApi
from infra.commands import people
from infra.commands.output import JsonFlag, console, emit_json, progress_console
from infra.commands.search import MOMENT, age, complete, filters_of, snippet
from infra.errors import InfraError
from pipeline import settings as config
from query_service.client.answered import stands_in
from schemas.api_answer import (
    AnswerRequest,
    AnswerResponse,
    AnswerSentence,
    Citation,
    SentenceEvent,
    StepEvent,
    Style,
    Unsupported,
)
from schemas.wording import plainly

WORDS = {"searching": "searching", "reading": "reading", "writing": "writing", "checking": "checking every sentence"}


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(answer)


def answer(
    question: Annotated[str, typer.Argument(help="One question, in your own words.")],
    user: Annotated[str, typer.Option("--user", help="Who asks: ann, as in `user:ann` of the access rules.")],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant whose documents are used.")] = "acme",
    source: Annotated[list[str] | None, typer.Option("--source", help="Only this source; may be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this kind (page, issue); repeatable.")] = None,
    language: Annotated[list[str] | None, typer.Option("--language", help="Only this language; repeatable.")] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"Updated at or after this moment: {MOMENT}.")] = None,
    until: Annotated[str | None, typer.Option("--until", help=f"Updated before this moment: {MOMENT}.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", help=f"Only what is in effect then: {MOMENT}.")] = None,
    style: Annotated[
        Style, typer.Option("--style", help="Written by the generator, or the sources' own sentences.")
    ] = "auto",
    unsupported: Annotated[
        Unsupported | None, typer.Option("--unsupported", help="What becomes of sentences that no source supports.")
    ] = None,
    context: Annotated[
        int | None, typer.Option("--context", min=1, max=50, help="Passages to answer from, at most.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what was withheld, and why.")] = False,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Show sentences as they are released.")] = True,
    json: JsonFlag = False,
) -> None:
    """Ask as one person. Every sentence names its sources, and where they do not say it there is no answer."""
    filters = filters_of(sources=source, kinds=kind, languages=language, since=since, until=until, as_of=as_of)
    try:
        request = AnswerRequest(
            question=question, style=style, unsupported=unsupported, context=context, explain=explain, filters=filters
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InfraError(
            f"{'.'.join(map(str, first['loc']))}: {plainly(first)}.", "Correct it and ask again."
        ) from None
    with QueryApi(config.load()) as api:
        if json:
            found = api.answer(user, tenant, request)
            emit_json(found)
        elif stream:
            found = _follow(console(), api, user, tenant, request)
        else:
            found = api.answer(user, tenant, request)
            for sentence in found.sentences:
                console().print(_sentence(sentence))
            ending(console(), found)
    if found.refusal is not None and found.refusal.reason == "nothing_found":
        people.warn(tenant, user)


def _follow(out: Console, api: QueryApi, user: str, tenant: str, request: AnswerRequest) -> AnswerResponse:
    shown: list[AnswerSentence] = []
    errors = progress_console()
    status: Status | None = errors.status("asking") if errors.is_terminal else None
    with status or nullcontext():
        for event in api.stream_answer(user, tenant, request):
            if isinstance(event, StepEvent):
                if status is not None:
                    status.update(WORDS[event.step])
            elif isinstance(event, SentenceEvent):
                if status is not None:
                    status.stop()  # it would be drawn into the text
                shown.append(event.sentence)
                out.print(_sentence(event.sentence))
            else:
                whole = event
    if not shown:
        for sentence in whole.sentences:
            out.print(_sentence(sentence))
    gone = [s for s in shown if s not in whole.sentences]
    if gone:
        out.print("\nWithdrawn, since it does not rest on what may be shown any more:", style="bold red")
        for sentence in gone:
            out.print(Text(f"  {sentence.text}", style="strike"))
    ending(out, whole)
    return whole


def _sentence(sentence: AnswerSentence) -> Text:
    text = Text()
    if sentence.qualified:
        text.append("not stated plainly: ", style="yellow")
    text.append(sentence.text)
    text.append(" " + "".join(f"[{n}]" for n in sentence.citations), style="cyan")
    return text


def ending(out: Console, found: AnswerResponse) -> None:
    """What stands below the sentences: a refusal, a contradiction, sources, how the answer was made."""
    if not found.answered:
        _refusal(out, found)
    if found.needs_review:
        _review(out, found)
    if found.answered and found.citations:
        out.print("\nSources", style="bold")
        for cited in found.citations:
            out.print(_source(cited))
    for sentence in found.withheld_sentences:
        line = Text(f"withheld ({sentence.reason}, support {sentence.support:.2f}): ", style="yellow")
        out.print(line.append(sentence.text, style="default"))
    out.print()
    out.print(", ".join(_facts(found)), style="dim", highlight=False, markup=False)
    out.print(f"query {found.query_id}", style="dim", highlight=False, markup=False)
    for text in complete(found.complete_until, time.time()):
        out.print(text, style="dim", highlight=False, markup=False)


def _refusal(out: Console, found: AnswerResponse) -> None:
    out.print(Text(found.text, style="bold yellow"))
    if found.refusal is not None:
        out.print(found.refusal.detail, highlight=False, markup=False)
    if found.suggestion is not None:
        out.print(found.suggestion.text, style="cyan", highlight=False, markup=False)


def _review(out: Console, found: AnswerResponse) -> None:
    said = " ".join(sentence.text for sentence in found.sentences)
    out.print("\nNeeds review: the sources contradict each other.", style="bold yellow")
    for dispute in found.contradictions:
        if stands_in(said, dispute.sides):  # the sentences above
            out.print(Text("  " + " and ".join(f"[{side.citation}]" for side in dispute.sides), style="cyan"))
            continue
        for side in dispute.sides:
            out.print(Text(f"  [{side.citation}] ", style="cyan").append(side.text, style="default"))


def _source(cited: Citation) -> Text:
    text = Text(f"[{cited.number}] ", style="cyan")
    text.append(cited.title or cited.document_id, style="bold default")
    text.append(f"  {cited.source}:{cited.document_id}", style="cyan")
    if cited.heading_path:
        text.append(f"\n    {' › '.join(cited.heading_path)}", style="green")
    if cited.quote:
        text.append(f"\n    “{snippet(cited.quote)}”", style="default")
    if not cited.in_effect:
        text.append("\n    not in effect", style="red")
    link = f", {cited.url}" if cited.url else ""
    text.append(f"\n    {age(cited.age_s)} old{link}", style="dim default")
    return text


def _facts(found: AnswerResponse) -> list[str]:
    facts = []
    if found.refusal is not None:
        facts.append(f"no answer: {found.refusal.reason.replace('_', ' ')}")
    if found.kind == "extractive":
        facts.append("the sources' own sentences")
    elif found.kind == "generated":
        facts.append(f"written by {found.model or 'a model'}, every sentence checked")
    if found.fallback is not None:
        facts.append(f"not written by the generator: {found.fallback}")
    facts.append("1 passage" if found.supplied == 1 else f"{found.supplied} passages")
    if found.support is not None:
        facts.append(f"weakest support {found.support:.2f}")
    if found.withheld:
        facts.append(f"{found.withheld} withheld")
    if found.cached != "none":
        facts.append("kept from before, checked again")
    if found.usage.cost:
        facts.append(f"{found.usage.cost:.4f} {found.usage.currency or ''}".rstrip())
    total = found.timings_ms.get("total")
    if total is not None:
        facts.append(f"{total:.0f} ms")
    return facts
