"""``quality``: retrieval and answers on the golden set, compared with the stored baselines."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from infra.answer_judging import assessing, embedding
from infra.answer_run import AnswerRun, run_answers
from infra.asking import QueryApi
from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from infra.commands.quality_answers import plain_answers, show_answers
from infra.corpus import pages
from infra.errors import InfraError
from infra.golden_run import NEAREST, SPARSE, Answer, Paths, Run, checkout, questions_of, run
from infra.golden_world import golden_world
from infra.launcher import Services
from infra.oracle import oracle_of
from infra.progress import Reporter, reporter
from pipeline import settings as config
from pipeline.quality import CUTS
from pipeline.quality import table as rows_of
from pipeline.settings import Settings
from pipeline.settings_sources import FolderSettings

FOLDER = "quality"
WIDTH = 130  # columns that the tables need


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(quality)


def quality(
    mode: Annotated[Literal["hybrid", "dense", "sparse"], typer.Option("--mode", help="How to search.")] = "hybrid",
    store_baseline: Annotated[
        bool, typer.Option("--store-baseline", help="Keep this run as the baseline of its mode.")
    ] = False,
    answers: Annotated[
        bool, typer.Option(help="Ask for answers too. With one list alone only the ranking is measured.")
    ] = True,
    style: Annotated[
        Literal["extractive", "generated"],
        typer.Option("--style", help="Who answers; 'generated' needs generator.url."),
    ] = "extractive",
    json: JsonFlag = False,
) -> None:
    """Ask the golden questions through the query API, for hits and for answers. Exit status 1 where a gate fails."""
    settings, paths = config.load(), checkout()
    if style == "generated" and settings.generator.url is None:
        raise InfraError("No generator is configured.", "Set HEADWATER_GENERATOR__URL, or leave --style out.")
    with reporter(progress_console()) as report, _world(settings, paths, report) as world, QueryApi(world) as api:

        def progress(done: int, total: int) -> None:
            report.step("questions", f"{done} of {total}", done / total)

        made = run(api, paths, mode, progress, store=store_baseline)
        report.finish("questions", f"{made.report.questions} asked")
        answered = _answers(api, world, paths, style, report, store_baseline) if answers and mode == "hybrid" else None
    if json:
        emit_json(plain(made, answered))
    else:
        # In a log file a console is 80 columns wide, which would fold the tables.
        out = Console(width=max(WIDTH, console().width))
        show(out, made, stored=store_baseline and made.ok)
        if answered is not None:
            show_answers(out, answered)
    if not made.ok or (answered is not None and not answered.ok):
        raise typer.Exit(1)


def _answers(
    api: QueryApi,
    world: Settings,
    paths: Paths,
    style: Literal["extractive", "generated"],
    report: Reporter,
    store_baseline: bool,
) -> AnswerRun:
    def progress(done: int, total: int) -> None:
        report.step("answers", f"{done} of {total}", done / total)

    with oracle_of(world, style) as oracle, assessing(world) as assessor:
        made = run_answers(
            api, paths, style, progress, store_run=store_baseline, oracle=oracle, assessor=assessor,
            embed=embedding(world),
        )  # fmt: skip
    report.finish("answers", f"{made.report.questions} asked, {made.report.overall.answered} answered")
    return made


@contextmanager
def _world(settings: Settings, paths: Paths, report: Reporter) -> Iterator[Settings]:
    """What runs here already where it serves exactly this corpus, else a world made for it."""
    _, tenant = questions_of(paths)
    services = Services.of(settings)
    if serves(settings, paths.wiki, tenant) and all(s.state in ("up", "external") for s in services.status()):
        with QueryApi(settings) as api:
            ready = api.ready()
        if ready:
            report.finish("corpus", "is served already")
            yield settings
            return
    ran = all(line.state in ("up", "external") for line in services.status())
    endpoints = services.up(report)
    try:
        folder = settings.state_dir.absolute() / FOLDER
        with golden_world(endpoints, folder, paths.wiki, tenant=tenant, report=report) as world:
            yield world
    finally:
        if not ran:
            services.down()


def serves(settings: Settings, wiki: Path, tenant: str) -> bool:
    """Whether the tenant's one configured source is this wiki, page by page and right by right."""
    sources = [source for source in settings.sources if source.tenant == tenant]
    if len(sources) != 1 or not isinstance(source := sources[0], FolderSettings):
        return False
    return source.path.is_dir() and same(source.path, wiki)


def same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same pages, access files and groups."""

    def names(root: Path) -> set[Path]:
        extra = [*root.rglob(".access.yaml"), *root.glob("groups.yaml")]
        return {file.relative_to(root) for file in [*pages(root), *extra]}

    listed = names(one)
    return listed == names(other) and all(filecmp.cmp(one / name, other / name, shallow=False) for name in listed)


# -- showing -----------------------------------------------------------------------------------------------------------


def plain(made: Run, answered: AnswerRun | None = None) -> dict[str, Any]:
    """The run for programs: of the ranking, and below ``answering`` of the answers."""
    ok = made.ok and (answered is None or answered.ok)
    report = made.report.model_dump(mode="json")
    return {
        "ok": ok,
        "reasons": [*made.reasons, *(answered.reasons if answered is not None else ())],
        "mode": made.mode,
        "table": rows_of(made.report),
        "report": report,
        "comparison": made.comparison.model_dump(mode="json") if made.comparison is not None else None,
        "abstention_rule": {"nearest_above": NEAREST, "sparse_below": SPARSE},
        "answers": [_evidence(answer) for answer in made.answers],
        "answering": plain_answers(answered) if answered is not None else None,
    }


def _evidence(answer: Answer) -> dict[str, Any]:
    return {
        "id": answer.question.id,
        "kind": answer.question.kind,
        "answerable": answer.question.answerable,
        "documents": [hit.document for hit in answer.retrieved.hits],
        "abstained": answer.retrieved.declined,
        "nearest": answer.nearest,
        "sparse": answer.sparse,
        "exact": answer.exact,
        "ms": answer.ms,
    }


def show(out: Console, made: Run, *, stored: bool = False) -> None:
    """One table and what stands beside it."""
    rows = rows_of(made.report)
    shown = table(*rows[0])
    for row in rows:
        shown.add_row(*row.values())
    out.print(shown)
    report, abstention = made.report, made.report.abstention
    lines = [
        f"nDCG@{max(CUTS)} {report.interval.mean:.3f}, 95 % interval {report.interval.low:.3f} to"
        f" {report.interval.high:.3f}, mode {made.mode}",
        f"abstention: {abstention.right} of {abstention.expected} where nothing can be answered, {abstention.abstained}"
        f" in all; precision {_share(abstention.precision)}, recall {_share(abstention.recall)},"
        f" F1 {_share(abstention.f1)}",
        f"identifier before its twin: {_share(report.identifier_first)}",
        f"exposures: {report.forbidden}, wrong editions: {len(report.wrong_editions)}",
    ]
    if made.comparison is not None:
        change = made.comparison.change
        lines.append(
            f"baseline {made.comparison.baseline:.3f}: change {change.mean:+.3f}, interval {change.low:+.3f} to"
            f" {change.high:+.3f}{', dropped' if made.comparison.dropped else ''}"
        )
    elif not stored:
        lines.append("no baseline is stored for this mode: --store-baseline keeps this run")
    if stored:
        lines.append("stored as the baseline of this mode")
    for line in lines:
        out.print(line, highlight=False, markup=False)
    for reason in made.reasons:
        out.print(f"fails: {reason}", style="red", highlight=False, markup=False)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
