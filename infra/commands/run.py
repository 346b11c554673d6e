"""``run``: everything started, a corpus ingested and followed, the promises checked."""

from __future__ import annotations

import json as json_module
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from infra import corpus as corpora
from infra.commands.output import console, progress_console
from infra.commands.tokens import issue
from infra.corpus import Corpus
from infra.launcher import Services
from infra.progress import reporter
from infra.rehearsal import Asker, Outcome, ReceiptsTail, Rehearsal
from infra.supervisor import Supervisor
from pipeline import settings as config
from pipeline.settings import Settings
from schemas.receipts import Receipt


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(run)


def run(
    once: Annotated[bool, typer.Option("--once", help="Check and stop; the last line is JSON.")] = False,
) -> None:
    """Start everything, ingest a corpus, answer searches within permissions, follow changes until interrupted."""
    root = Path.cwd()
    corpus = corpora.prepare(config.load().state_dir.absolute(), root)
    settings = _with_source(corpus)
    services, supervisor = Services.of(settings), Supervisor(settings)
    try:
        with reporter(progress_console()) as report:
            endpoints = services.up(report)
            supervisor.up(endpoints, report)
        outcome = _check(endpoints.apply(settings), corpus, once)
        if not once:
            _follow(endpoints.apply(settings), corpus)
    except KeyboardInterrupt:
        outcome = Outcome(faults=["interrupted"])
    finally:
        console().print("stopping", highlight=False)
        supervisor.down()
        services.down()
    if once:
        for fault in outcome.faults:
            console().print(f"fault: {fault}", highlight=False)
        line = outcome.line()
        typer.echo(json_module.dumps(line))
        raise typer.Exit(0 if line["ok"] else 1)


def _with_source(corpus: Corpus) -> Settings:
    """The settings, with the corpus as a folder source where no source is configured. Children inherit it."""
    settings = config.load()
    if not settings.sources:
        source = {"name": corpus.name, "tenant": corpus.tenant, "type": "folder", "path": str(corpus.path)}
        os.environ["HEADWATER_SOURCES"] = json_module.dumps([source])
        settings = config.load()
    return settings


def _check(settings: Settings, corpus: Corpus, once: bool) -> Outcome:
    tail = ReceiptsTail(settings, corpus.tenant, corpus.name)
    base = f"http://{settings.query.host}:{settings.query.port}"
    people = [Asker(base, issue(settings, user, corpus.tenant, 3600)[0]) for user in (corpus.wide, corpus.narrow)]
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=progress_console()) as bars:
            tasks = {}

            def report(step: str, done: int, total: int) -> None:
                if step not in tasks:
                    tasks[step] = bars.add_task(step, total=total)
                bars.update(tasks[step], completed=done, total=total)

            rehearsal = Rehearsal(corpus, tail, people[0], people[1], report)
            rehearsal.ingest()
            rehearsal.search()
            if once and not rehearsal.outcome.faults:
                rehearsal.edit()
                rehearsal.revoke()
        _tell(rehearsal.outcome, once)
        return rehearsal.outcome
    finally:
        tail.close()
        for person in people:
            person.close()


def _tell(outcome: Outcome, once: bool) -> None:
    seconds = max(outcome.seconds, 0.001)
    out = console()
    out.print(
        f"{outcome.documents} documents, {outcome.chunks} chunks in {outcome.seconds:.1f} s"
        f" ({outcome.documents / seconds:.1f} documents/s)",
        highlight=False,
    )
    out.print(
        f"{outcome.right} of {outcome.searches} searches right, {outcome.forbidden} forbidden hits", highlight=False
    )
    if once:
        for name, values in (("edit to searchable", outcome.lag), ("revocation", outcome.revocation)):
            shown = "  ".join(f"{k} {v} ms" for k, v in values.summary().items())
            out.print(f"{name}: {shown}", highlight=False)


def _follow(settings: Settings, corpus: Corpus) -> None:
    out = console()
    _addresses(out, settings, corpus)
    tail = ReceiptsTail(settings, corpus.tenant, corpus.name)
    start = time.time_ns() // 1000
    tail.listen(lambda receipt: _show(out, receipt, start))
    try:
        while True:
            time.sleep(3600)
    finally:
        tail.close()


def _addresses(out: Console, settings: Settings, corpus: Corpus) -> None:
    base = f"http://{settings.query.host}:{settings.query.port}"
    lines = [
        "",
        f"query API and web page  {base}/   (OpenAPI: {base}/docs)",
        f"change gateway          http://{settings.gateway.host}:{settings.gateway.port}/v1/changes",
        f"corpus                  {corpus.path}",
        "",
        f"Two people: {corpus.wide} may read {corpus.restricted}/, {corpus.narrow} may not.",
    ]
    for user in (corpus.wide, corpus.narrow):
        token = issue(settings, user, corpus.tenant, 8 * 3600)[0]
        lines += [
            "",
            f"# as {user}",
            f"curl -s {base}/v1/search -H 'Authorization: Bearer {token}' \\",
            '  -H \'Content-Type: application/json\' -d \'{"query": "travel policy", "k": 3}\'',
        ]
    lines += [
        "",
        f"Edit a file under {corpus.path} and search again; change allow: in",
        f"{corpus.path / corpus.restricted / '.access.yaml'} and see the hits vanish.",
        "Changes appear below. Ctrl-C stops everything.",
        "",
    ]
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True, markup=False)


def _show(out: Console, receipt: Receipt, since: int) -> None:
    visible = receipt.times.visible_at
    # of a document's access and content events that were worked off together, one line is enough
    doubled = receipt.lane == "index" and not receipt.event_type.startswith("content")
    if visible is None or visible < since or receipt.lane == "control" or doubled:
        return
    what = receipt.document.id if receipt.document is not None else receipt.principal or ""
    begun = receipt.times.source_updated_at or receipt.times.observed_at or visible
    clock = time.strftime("%H:%M:%S", time.localtime(visible / 1_000_000))
    text = f"{clock}  {receipt.lane:<10} {receipt.outcome:<10} {what}  {(visible - begun) / 1000:.0f} ms"
    out.print(text, highlight=False, markup=False)
