"""The ``headwater`` command line: one file a group of commands under ``infra/commands``."""

from __future__ import annotations

import sys

import typer

from infra.commands import (
    answer,
    audit,
    bench,
    config,
    dagster,
    deletion,
    doctor,
    duplicates,
    generation,
    keys,
    lag,
    letters,
    models,
    quality,
    queries,
    run,
    search,
    services,
    size,
    sources,
    tenant,
    tiers,
    tokens,
    topics,
    why,
)
from infra.commands.output import report_error
from pipeline.errors import HeadwaterError

GROUPS = (
    run,
    services,
    doctor,
    config,
    tokens,
    keys,
    search,
    answer,
    lag,
    generation,
    audit,
    tiers,
    letters,
    deletion,
    duplicates,
    queries,
    why,
    tenant,
    topics,
    size,
    models,
    sources,
    quality,
    dagster,
    bench,
)


def build() -> typer.Typer:
    """The application with every group registered."""
    app = typer.Typer(
        name="headwater",
        help="Event-driven, permission-aware search: start it, look at it, ask it.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for group in GROUPS:
        group.register(app)
    return app


def main() -> None:
    """Run one command. An expected error prints problem and remedy and ends with status 1."""
    try:
        build()()
    except HeadwaterError as error:
        report_error(error, as_json="--json" in sys.argv)
        sys.exit(1)


if __name__ == "__main__":
    main()
