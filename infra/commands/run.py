"""``run``: everything started, a corpus ingested and followed, the promises checked."""

from __future__ import annotations

import fcntl
import json as json_module
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from infra import corpus as corpora
from infra.commands.output import console, progress_console
from infra.commands.tokens import issue
from infra.corpus import Corpus
from infra.errors import InfraError
from infra.launcher import Services
from infra.progress import reporter
from infra.rehearsal import Asker, Outcome, ReceiptsTail, Rehearsal
from infra.supervisor import Supervisor
from pipeline import settings as config
from pipeline.settings import Settings
from schemas.receipts import Receipt

OLD_US = 60_000_000  # a change seen later than this after its file's time was not made at that time


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(run)


def run(
    once: Annotated[bool, typer.Option("--once", help="Check and stop; the last line is JSON.")] = False,
) -> None:
    """Start everything, ingest a corpus, answer searches within permissions, follow changes until interrupted."""
    settings = config.load()
    state_dir = settings.state_dir.absolute()
    with _alone(state_dir):
        corpus = _corpus(settings, once)
        if corpus is not None:
            settings = _with_source(corpus)
        for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal stops everything too
            signal.signal(number, _interrupt)
        services, supervisor = Services.of(settings), Supervisor(settings)
        outcome = Outcome()
        try:
            with reporter(progress_console()) as report:
                endpoints = services.up(report)
                supervisor.up(endpoints, report)
            ready = endpoints.apply(settings)
            if corpus is not None:
                outcome = _check(ready, corpus, once)
            if not once:
                _follow(ready, corpus, supervisor)
        except KeyboardInterrupt:
            outcome.faults.append("interrupted")
        finally:
            console().print("stopping", highlight=False)
            supervisor.down()
            services.down()
            console().print(f"stopped; data stays in {state_dir}", highlight=False, soft_wrap=True)
    if once:
        _end(outcome)


def _end(outcome: Outcome) -> None:
    for page in outcome.missed:
        console().print(f"not found: {page}", highlight=False, markup=False, soft_wrap=True)
    for fault in outcome.faults:
        console().print(f"fault: {fault}", highlight=False, markup=False, soft_wrap=True)
    line = outcome.line()
    typer.echo(json_module.dumps(line))
    raise typer.Exit(0 if line["ok"] else 1)


@contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    """Hold the state directory. A second run would stop, at its end, what the first one shows."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "run.lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfraError(
                f"headwater run is already at work in {state_dir}.",
                "Use it from a second terminal, or end it by Ctrl-C in its own.",
            ) from None
        yield


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _corpus(settings: Settings, once: bool) -> Corpus | None:
    """The corpus that is laid out and checked; None where the settings name sources of their own."""
    if not settings.sources:
        return corpora.prepare(settings.state_dir.absolute(), Path.cwd())
    if once:
        raise InfraError(
            "run --once checks a corpus of its own, and the settings name sources.",
            "Leave --once out (make run without ONCE=1), or take the sources out of the settings.",
        )
    return None


def _with_source(corpus: Corpus) -> Settings:
    """The settings with the corpus as their folder source. Children inherit it."""
    source = {"name": corpus.name, "tenant": corpus.tenant, "type": "folder", "path": str(corpus.path)}
    os.environ["HEADWATER_SOURCES"] = json_module.dumps([source])
    return config.load()


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
    out = console()
    took = "already there"
    if outcome.seconds >= 1:
        took = f"in {outcome.seconds:.1f} s ({outcome.documents / outcome.seconds:.1f} documents/s)"
    out.print(f"{outcome.documents} documents, {outcome.chunks} chunks {took}", highlight=False)
    out.print(
        f"{outcome.right} of {outcome.searches} searches right, {outcome.forbidden} forbidden hits", highlight=False
    )
    if once:
        for name, values in (("edit to searchable", outcome.lag), ("revocation", outcome.revocation)):
            shown = "  ".join(f"{k} {v} ms" for k, v in values.summary().items())
            out.print(f"{name}: {shown}", highlight=False)


def _follow(settings: Settings, corpus: Corpus | None, supervisor: Supervisor) -> None:
    """Show each change until interrupted, or until everything was stopped from elsewhere."""
    out = console()
    for line in _addresses(settings, corpus):
        out.print(line, highlight=False, soft_wrap=True, markup=False)
    tail = ReceiptsTail(settings)
    start = time.time_ns() // 1000
    hidden = settings.canary.tenant
    tail.listen(lambda receipt: None if receipt.tenant == hidden else _show(out, receipt, start))
    running = set(supervisor.names)
    try:
        while running:
            time.sleep(1)
            ended = {name for name in running if not supervisor.managed(name).alive()}
            for name in sorted(ended):
                out.print(f"{name} has ended: see headwater logs {name}", style="red", highlight=False)
            running -= ended
    finally:
        tail.close()


def _addresses(settings: Settings, corpus: Corpus | None) -> Iterator[str]:
    base = f"http://{settings.query.host}:{settings.query.port}"
    yield ""
    yield f"query API and web page  {base}/   (OpenAPI: {base}/openapi.json)"
    yield f"change gateway          http://{settings.gateway.host}:{settings.gateway.port}/v1/changes"
    if settings.dagster.enabled:
        yield f"Dagster                 http://{settings.dagster.host}:{settings.dagster.port}/"
    if corpus is None:
        for source in settings.sources:
            yield f"source {source.name:<16} {source.where()}"
    else:
        yield f"corpus                  {corpus.path}"
        yield ""
        yield f"Two people: {corpus.wide} may read {corpus.restricted}/, {corpus.narrow} may not."
        for user in (corpus.wide, corpus.narrow):
            token = issue(settings, user, corpus.tenant, 8 * 3600)[0]
            body = json_module.dumps({"query": corpus.question, "k": 3})
            yield ""
            yield f"# as {user}"
            yield f"curl -s {base}/v1/search -H 'Authorization: Bearer {token}' \\"
            yield f"  -H 'Content-Type: application/json' -d '{body}'"
        yield ""
        yield f"Edit a file under {corpus.path} and search again; change allow: in"
        yield f"{corpus.path / corpus.restricted / '.access.yaml'} and see the hits vanish."
    yield "Changes appear below. Ctrl-C stops everything."
    yield ""


def _show(out: Console, receipt: Receipt, since: int) -> None:
    visible = receipt.times.visible_at
    # of a document's access and content events that were worked off together, one line is enough
    doubled = receipt.lane == "index" and not receipt.event_type.startswith("content")
    if visible is None or visible < since or receipt.lane == "control" or doubled:
        return
    what = receipt.document.id if receipt.document is not None else receipt.principal or ""
    begun = receipt.times.source_updated_at or visible
    observed = receipt.times.observed_at
    if observed is not None and (receipt.times.source_updated_at is None or observed - begun > OLD_US):
        begun = observed  # a moved or copied file keeps the time of its last edit
    clock = time.strftime("%H:%M:%S", time.localtime(visible / 1_000_000))
    text = f"{clock}  {receipt.lane:<10} {receipt.outcome:<10} {what}  {(visible - begun) / 1000:.0f} ms"
    out.print(text, highlight=False, markup=False)
