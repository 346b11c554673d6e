"""``bench quality``: no services, tables or JSON, an earlier run shown again and drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra import cli
from infra.bench.quality.run import Places, Quality, run
from infra.commands import bench as command
from infra.errors import InfraError
from infra.progress import Quiet
from pipeline.settings import Settings

SHARES = {"recall": 0.9, "precision": 0.8, "cells": 1.0, "code": None, "paths": 0.5, "links": None, "leaks": 0.0}
EARLIER = {
    "bench": "quality", "encoder": "mini", "unstructured": "not installed", "quick": True, "not_measured": [],
    "fidelity": [{"reader": "headwater", "formats": {"all": {"files": 2, **SHARES}}, "files": []}],
    "retrieval": [
        {"corpus": "golden", "strategy": "recursive", "ndcg": {"mean": 0.71, "low": 0.61, "high": 0.8}, "recall": 0.9,
         "questions": 5, "chunks": 9, "tokens": 120.4},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_services(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("quality needs no services")

    monkeypatch.setattr(command, "Services", refuse)


@pytest.mark.requirement("A2", "A4")
def test_an_earlier_run_is_shown_printed_and_drawn(tmp_path: Path) -> None:
    kept, drawn = tmp_path / "kept.json", tmp_path / "quality.svg"
    kept.write_text(json.dumps(EARLIER), encoding="utf-8")
    shown = CliRunner().invoke(cli.build(), ["bench", "quality", "--from", str(kept), "--picture", str(drawn)])
    assert shown.exit_code == 0, shown.output
    assert "recursive" in shown.stdout and "0.710" in shown.stdout and "not installed" in shown.stdout
    assert drawn.read_text(encoding="utf-8").startswith("<svg")
    printed = CliRunner().invoke(cli.build(), ["bench", "quality", "--from", str(kept), "--json"])
    assert json.loads(printed.stdout) == EARLIER


def test_it_runs_alone_and_its_options_are_its_own() -> None:
    for arguments in (["quality", "lag_idle"], ["lag_idle", "--json"]):
        answer = CliRunner().invoke(cli.build(), ["bench", *arguments])
        assert isinstance(answer.exception, InfraError)


@pytest.mark.requirement("A2")
def test_fidelity_is_measured_without_the_other_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.bench.quality.run.PlainUnstructured.start", lambda python: None)
    made = run(Settings(), Places.of_checkout(), Quiet(), quick=True, only=("fidelity",), formats=("Markdown",)).plain()
    assert made["unstructured"] == "not installed"
    (own,) = made["fidelity"]
    assert own["formats"]["Markdown"]["recall"] == 1.0
    assert own["formats"]["Markdown"]["code"] == 1.0
    assert json.loads(json.dumps(made))["quick"] is True


def test_what_was_measured_is_one_object() -> None:
    assert set(Quality("mini", "1.0", 0.5, False).plain()) == {
        "bench", "encoder", "unstructured", "load1", "quick", "fidelity", "retrieval", "not_measured", "seconds",
    }  # fmt: skip
