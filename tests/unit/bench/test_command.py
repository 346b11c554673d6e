"""The registry and the command around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from infra import cli
from infra.bench import registry
from infra.bench import session as sessions
from infra.bench.feeding import Gateway
from infra.bench.registry import BENCHES, Bench, chosen
from infra.bench.report import Result
from infra.commands import bench as command
from infra.errors import InfraError

WANTED = (
    "ingest_ratio", "lag_idle", "lag_bulk", "delete_lag", "revoke_lag", "revoke_lag_backlog", "reingest", "search_10k",
    "search_100k", "search_under_backfill", "handbook_replay",
)  # fmt: skip


@pytest.mark.requirement("D1", "D3", "D4", "D5", "D6")
def test_all_figures_have_a_benchmark_that_runs_by_default() -> None:
    assert set(WANTED) <= {bench.name for bench in chosen([], long=False)}
    assert not any(bench.extra for bench in chosen([], long=False))
    assert {bench.name for bench in chosen([], long=True)} == {bench.name for bench in BENCHES}


def test_benchmarks_keep_their_order_however_they_are_named() -> None:
    assert [b.name for b in chosen(["search_10k", "lag_idle", "memory"], long=False)] == [
        "lag_idle", "search_10k", "memory",
    ]  # fmt: skip


def test_an_unknown_benchmark_is_named_with_the_known_ones() -> None:
    with pytest.raises(InfraError, match=r"no benchmark lag_idel.*lag_idle"):
        chosen(["lag_idel"], long=False)


def _run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str, benches: tuple[Bench, ...]) -> Any:
    """The command with these benchmarks, on services that are not started; the state directory is temporary."""

    class Nothing:
        """Services that run."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.endpoints = None

        def status(self) -> list[Any]:
            return [SimpleNamespace(state="up")]

        def up(self, report: Any) -> None:
            return None

    @contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(close_world=lambda: None)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HEADWATER_CONFIG", raising=False)
    monkeypatch.setattr(registry, "BENCHES", benches)
    monkeypatch.setattr(command, "Services", Nothing)
    monkeypatch.setattr(sessions, "session", session)
    return CliRunner().invoke(cli.build(), ["bench", *arguments])


def _good(session: Any) -> list[Result]:
    return [Result("good", 1.0, "ms", 2.0, 0.5, True)]


def _missed(session: Any) -> list[Result]:
    return [Result("missed", 3.0, "ms", 2.0, 1.5, False)]


def _broken(session: Any) -> Iterator[Result]:
    yield Result("half", 1.0, "ms")
    raise InfraError("The broker is gone.", "Start it.")


def test_lines_are_printed_and_a_missed_target_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    benches = (Bench("good", _good, "D1", "x"), Bench("missed", _missed, "D1", "y"))
    answer = _run(monkeypatch, tmp_path, "--json-only", benches=benches)
    assert answer.exit_code == 0, answer.output
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(line["bench"], line["ok"]) for line in lines] == [("good", True), ("missed", False)]
    assert all(isinstance(line["load1"], float) for line in lines)
    assert _run(monkeypatch, tmp_path, "--strict", benches=benches).exit_code == 1


def test_what_breaks_is_a_line_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    benches = (Bench("broken", _broken, "D1", "x"), Bench("good", _good, "D1", "y"))
    answer = _run(monkeypatch, tmp_path, "--json-only", benches=benches)
    assert answer.exit_code == 1
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [line["bench"] for line in lines] == ["half", "broken", "good"]
    assert "The broker is gone. Start it." in lines[1]["error"]


def test_the_list_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = _run(monkeypatch, tmp_path, "--list", benches=BENCHES)
    assert answer.exit_code == 0
    assert [line.split()[0] for line in answer.stdout.splitlines()] == [
        *(bench.name for bench in BENCHES),
        "quality",
        "search",
        "answers",
    ]
    assert not (tmp_path / "state").exists()


def test_the_gateway_is_asked_again_when_it_says_so() -> None:
    answers = [
        httpx.Response(429, headers={"Retry-After": "0"}),
        httpx.Response(200, json={"token": "t", "results": [{"changed": True, "content_version": 4}]}),
    ]
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answers.pop(0)

    gateway = Gateway("http://gateway", "secret", transport=httpx.MockTransport(answer))
    reply = gateway.send([{"type": "delete", "tenant": "acme", "id": "x"}], wait="applied")
    assert reply.results[0].content_version == 4
    assert len(seen) == 2
    assert seen[0].url.params["wait"] == "applied"
    assert json.loads(seen[0].content) == {"type": "delete", "tenant": "acme", "id": "x"}


def test_a_refusal_of_the_gateway_is_told() -> None:
    refuse = httpx.MockTransport(lambda request: httpx.Response(422, text="title: too long"))
    with pytest.raises(InfraError, match="422: title: too long"):
        Gateway("http://gateway", "secret", transport=refuse).send([{}, {}])
