"""``headwater sources``: dates, tables, and what is refused before anybody is asked."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from infra.cli import build
from infra.commands.sources import moment
from infra.commands.sources_view import show
from infra.errors import InfraError
from schemas.reconciliation import IndexReport, ReconciliationReport, SourceReconciliation


def test_moments_are_microseconds_in_utc() -> None:
    assert moment("--from", None) is None
    assert moment("--from", "1970-01-02") == 86_400_000_000
    assert moment("--from", "1970-01-01T01:00+01:00") == 0
    with pytest.raises(InfraError, match="--until yesterday"):
        moment("--until", "yesterday")


def test_a_report_shows_counts_that_are_not_zero_with_documents_for_instance() -> None:
    listing = ReconciliationReport(
        type="listing", tenant="acme", source="wiki", request_id="r1", complete=False, why=("eng: Permission denied",),
        listed=1200, new=4, examples={"new": ("a", "b", "c", "d")}, began_at=0, finished_at=1_500_000,
    )  # fmt: skip
    index = IndexReport(generation="minilm", known=1200, manifests=1199, access=1300, missing=1, examples={})
    out = Console(file=io.StringIO(), width=120)
    show(out, SourceReconciliation(tenant="acme", source="wiki", listing=listing, index=index, problem="late"))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    for said in ("1,200 documents, not complete", "1.5 s", "listing r1", "a, b, c …", "Permission denied", "late",
                 "index minilm: 1,199 manifests"):  # fmt: skip
        assert said in text, text
    assert "stale" not in text and "extra" not in text


def test_a_dry_run_that_would_delete_is_refused() -> None:
    done = CliRunner().invoke(build(), ["sources", "reconcile", "--dry-run", "--confirm-deletions"])
    assert isinstance(done.exception, InfraError) and "--dry-run" in str(done.exception)
