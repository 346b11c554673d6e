"""``bench``: benchmarks of the running product, one JSON line each."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands import bench_answers, bench_quality, bench_search
from infra.commands.output import emit_json, progress_console
from infra.files import exclusive
from infra.launcher import Services
from infra.progress import Lines, Quiet, Reporter
from pipeline import settings as config
from pipeline.errors import HeadwaterError
from pipeline.settings import Settings

if TYPE_CHECKING:
    from infra.bench.registry import Bench
    from infra.bench.report import Result
    from infra.bench.session import Session
    from infra.bench.sizes import Sizes

FOLDER = "bench"
_QUALITY = "Of quality"
_FIGURES = "Of quality, search and context"
_MODEL = "Of answers"


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(bench)


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which ones; all but the long ones by default.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say which there are, and run none.")] = False,
    json_only: Annotated[bool, typer.Option("--json-only", help="No progress on standard error.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that it works.")] = False,
    long: Annotated[bool, typer.Option("--long", help="The long ones too.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit status 1 also where a target is missed.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of tables.", rich_help_panel=_QUALITY)
    ] = False,
    baseline_python: Annotated[
        Path | None,
        typer.Option(help="A Python that has unstructured; this one by default.", rich_help_panel=_QUALITY),
    ] = None,
    size: Annotated[
        bench_search.Size, typer.Option(help="'large' adds 100,000 chunks.", rich_help_panel="Of search")
    ] = bench_search.Size.small,
    picture: Annotated[Path | None, typer.Option(help="Draw an SVG there.", rich_help_panel=_FIGURES)] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Show an earlier run's JSON.", rich_help_panel=_FIGURES)
    ] = None,
    model_path: Annotated[
        Path | None, typer.Option(help="A GGUF file; needs the extra llm.", rich_help_panel=_MODEL)
    ] = None,
    server_url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server: http://host:port/v1.", rich_help_panel=_MODEL)
    ] = None,
    sentences: Annotated[
        Path | None, typer.Option(help="Write each sentence there, to be labelled.", rich_help_panel=_MODEL)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Ask no new question after so long.", min=0, rich_help_panel=_MODEL)
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Count sentences that were labelled, run nothing.", rich_help_panel=_MODEL)
    ] = None,
) -> None:
    """Measure, each benchmark in a namespace of its own. Exit status 1 where one could not be measured.

    ``bench quality`` compares extraction and chunking and needs no services; ``bench search`` is ranking's quality and
    times. Each runs alone.
    """
    from infra.bench.registry import BENCHES, chosen
    from infra.bench.sizes import FULL, QUICK
    from infra.errors import InfraError

    if listed:
        for one in BENCHES:
            mark = " (long)" if one.extra else ""
            typer.echo(f"{one.name:<24} {one.requirement:<4} {one.summary}{mark}")
        typer.echo(f"{bench_quality.NAME:<24} {'A2':<4} fidelity of extraction, retrieval by strategy (alone)")
        typer.echo(f"{bench_search.NAME:<24} {'D2':<4} ranking_quality, ranking_10k, and a table of them (alone)")
        typer.echo(f"{bench_answers.NAME:<24} {'C2':<4} a small model's answers, raw and checked (alone)")
        return
    if names == [bench_quality.NAME]:
        bench_quality.quality(
            baseline_python=baseline_python, as_json=json, quiet=json_only, quick=quick, picture=picture, source=source
        )
        return
    if names and bench_quality.NAME in names:
        raise InfraError("quality needs no services and runs alone.", f"headwater bench {bench_quality.NAME}")
    if names and bench_search.NAME in names and len(names) > 1:
        raise InfraError("search runs alone.", f"headwater bench {bench_search.NAME}")
    if labels is not None:
        emit_json(bench_answers.labelled(labels))
        return
    modelled = bench_answers.NAME in (names or [])
    if (modelled and names != [bench_answers.NAME]) or (
        not modelled and (model_path or server_url or sentences or minutes)
    ):
        raise InfraError("answers runs alone, with --model-path or --server-url.", "headwater bench answers")
    searching, supplying = names == [bench_search.NAME], names == [bench_answers.CONTEXT]
    if json or baseline_python or ((picture or source) and not searching and not supplying):
        raise InfraError("--json, --baseline-python, --picture and --from are options of quality.", "Name it.")
    if size is bench_search.Size.large and not searching:
        raise InfraError("--size is an option of search.", "Name it.")
    if source is not None:
        of = bench_search if searching else bench_answers
        of.show(of.read(source), picture)
        return
    if modelled:
        wanted = [bench_answers.bench(model_path, server_url, sentences, minutes)]
    else:
        wanted = chosen(bench_search.benches(size) if searching else names or [], long=long)
    report: Reporter = Quiet() if json_only else Lines(progress_console())
    results = measure(config.load(), wanted, QUICK if quick else FULL, report)
    if searching and not json_only:
        bench_search.show([result.line(0.0) for result in results], picture)
    if supplying and not json_only:
        bench_answers.show([result.line(0.0) for result in results], picture)
    broken = any("error" in result.extra for result in results)
    missed = any(result.ok is False for result in results)
    if broken or (strict and missed):
        raise typer.Exit(1)


def measure(settings: Settings, wanted: list[Bench], sizes: Sizes, report: Reporter) -> list[Result]:
    """Run them on services of their own, which are left as they were found; each line is printed when it is there."""
    from infra.bench.session import session

    folder = settings.state_dir.absolute() / FOLDER
    services = Services(folder, cache_dir=settings.cache_dir, settings=settings)
    found: list[Result] = []
    with exclusive(folder / "bench.lock", "benchmarks"):  # a second run would disturb this one: it waits
        ran = all(line.state in ("up", "external") for line in services.status())
        try:
            with session(services.up(report), folder, sizes, report) as made:
                for one in wanted:
                    found += _run(one, made)
        finally:
            if not ran:
                services.down()
    return found


def _run(one: Bench, made: Session) -> list[Result]:
    """One benchmark; an error is its result, and the next one starts in a fresh world."""
    from infra.bench.report import failed

    load1 = os.getloadavg()[0]
    results: list[Result] = []
    try:
        for result in one.run(made):
            results.append(result)
            say(result, load1)
    except Exception as error:  # whatever it is, the other figures are still wanted
        if not isinstance(error, HeadwaterError):
            traceback.print_exc()
        results.append(failed(one.name, str(error) or type(error).__name__))
        say(results[-1], load1)
        made.close_world()
    return results


def say(result: Result, load1: float) -> None:
    """Print one line."""
    emit_json(result.line(load1))
    sys.stdout.flush()
