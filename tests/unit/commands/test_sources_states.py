"""``headwater sources``: states at a glance, one source in full, what owners are asked, what a try finds out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import build
from infra.commands import sources, sources_look
from infra.errors import InfraError
from pipeline.errors import ConfigError
from pipeline.operate import owned, requests
from pipeline.operate.owned import SourceStatus
from pipeline.operate.requests import Requester
from pipeline.settings import Settings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.remote.contract import Finding
from schemas.reconciliation import OpenRequest, OwnerStatus, ReconciliationReport

SETTINGS = {
    "sources": [
        {"name": "wiki", "path": "/srv/wiki"},
        {"name": "tickets", "type": "redmine", "url": "https://tickets.example/", "api_key": "very-secret-key"},
        {"name": "orders", "type": "outbox", "dsn": "postgresql://u:hidden@db/x", "slot": "orders"},
    ]
}


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1e6)


def status(name: str, state: str = "waiting", seen: float = 1.0, **more: Any) -> SourceStatus:
    """A source whose owner said ``state`` and wrote a cursor ``seen`` seconds ago."""
    told = OwnerStatus.model_validate(
        {"state": state, "since": ago(60), "listed": 1200, "listed_at": ago(11_000)} | more
    )
    return SourceStatus(
        "acme", name, configured=True, type="folder", where="/srv", documents=1200, polled_at=ago(3), told=told,
        seen_at=ago(seen), paused=state == "paused",
    )  # fmt: skip


class Asked(Requester):
    """Keeps what is asked."""

    def __init__(self, **report: Any) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._report = report

    def _ask(self, type_: str, tenant: str, source: str, *rest: Any, **more: Any) -> ReconciliationReport:
        self.asked.append((type_, {name: value for name, value in more.items() if value}))
        made = {
            "type": type_, "tenant": tenant, "source": source, "request_id": "r1", "listed": 1200, "repaired": 2,
            "began_at": 0, "finished_at": 1_500_000,
        }  # fmt: skip
        return ReconciliationReport.model_validate(made | self._report)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs ``sources …`` on what the log and the owners are told to be."""

    def run(
        *arguments: str, log: list[SourceStatus] | None = None, owner: Asked | None = None, typed: str | None = None
    ) -> Result:
        @contextmanager
        def asking(settings: Settings) -> Iterator[Asked]:
            yield owner or Asked()

        for module in (sources, sources_look):
            monkeypatch.setattr(module, "located", lambda: Settings.model_validate(SETTINGS))
        monkeypatch.setattr("pipeline.settings.load", lambda: Settings.model_validate(SETTINGS))
        found = log if log is not None else [status("wiki"), status("tickets")]
        monkeypatch.setattr(owned, "sources", lambda settings: found)
        monkeypatch.setattr(requests, "asking", asking)
        monkeypatch.setenv("COLUMNS", "200")
        return CliRunner().invoke(build(), ["sources", *arguments], input=typed)

    return run


@pytest.mark.requirement("A11")
def test_one_glance_tells_starved_waiting_and_dead_apart(run: Callable[..., Result]) -> None:
    gateway = SourceStatus("acme", "pushed", documents=5, polled_at=ago(3))
    begun = OpenRequest(offset=3, request_id="r", type="backfill", state="begun", done=4, expected=9)
    starved = status("shop", "starved", backlog=2500, limited=3, limited_s=9.0, alarms=("no groups",))
    starved.requests = (begun,)
    log = [
        status("wiki"), starved, status("old", "waiting", seen=25), status("far", "unreachable"),
        status("still", "paused"), gateway,
    ]  # fmt: skip
    done = run("list", log=log)
    rows = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("acme")}
    assert {name: row.split()[3] for name, row in rows.items() if name != "pushed"} == {
        "wiki": "waiting", "shop": "starved", "old": "dead", "far": "unreachable", "still": "paused",
    }  # fmt: skip
    assert "pushed, or read by headwater run" in rows["pushed"]
    for part in ("2,500", "3 h ago, 1,200", "3 times, for 9 s", "backfill begun 4/9"):
        assert part in rows["shop"], rows["shop"]
    assert "old: no sign of its owner" in done.stdout and "wiki: no sign" not in done.stdout

    (_, shown, dead, *_) = json.loads(run("list", "--json", log=log).stdout)
    assert (shown["state"], shown["owner"]["backlog"], dead["state"]) == ("starved", 2500, "dead")
    assert 2.5 < shown["lag_s"] < 30 and shown["documents"] == 1200


def test_an_unknown_source_names_the_known_ones(run: Callable[..., Result]) -> None:
    for command in ("pause", "resume", "reset", "sync", "describe", "test", "reconcile"):
        done = run(command, "wikki")
        assert isinstance(done.exception, InfraError), (command, done.output)
        assert "wikki" in done.exception.problem and "tickets (acme), wiki (acme)" in done.exception.remedy, command


@pytest.mark.requirement("A1")
def test_owners_are_paused_and_resumed(run: Callable[..., Result]) -> None:
    owner = Asked()
    assert "wiki is paused" in run("pause", "wiki", owner=owner).stdout
    assert json.loads(run("resume", "wiki", "--json", owner=owner).stdout)["type"] == "resume"
    assert [type_ for type_, _ in owner.asked] == ["pause", "resume"]


@pytest.mark.requirement("A6")
def test_a_reset_says_what_it_costs_and_asks(run: Callable[..., Result]) -> None:
    owner = Asked()
    refused = run("reset", "wiki", owner=owner, typed="n\n")
    assert refused.exit_code == 1 and owner.asked == []
    for said in ("1,200 are known", "read again", "Nothing is deleted", "neither appended nor embedded"):
        assert said in " ".join(refused.output.split())
    assert run("reset", "wiki", owner=owner, typed="y\n").exit_code == 0
    assert run("reset", "wiki", "--yes", owner=owner).exit_code == 0
    assert [type_ for type_, _ in owner.asked] == ["reset", "reset"]


@pytest.mark.requirement("A1", "F02")
def test_sync_lists_and_repairs_or_reads_one_document(run: Callable[..., Result]) -> None:
    owner = Asked()
    listed = run("sync", "wiki", owner=owner)
    assert listed.exit_code == 0 and "1,200 documents, complete" in listed.stdout
    assert run("sync", "tickets", "--document", "7", "--kind", "issue", owner=owner).exit_code == 0
    (listing, more), (document, named) = owner.asked
    assert (listing, more, document) == ("listing", {"repair": True}, "document")
    assert (named["document"].source, named["document"].kind, named["document"].id) == ("tickets", "issue", "7")
    assert run("sync", "wiki", owner=Asked(complete=False, why=("eng: no access",))).exit_code == 1


def test_what_a_paused_owner_would_not_begin_is_refused(run: Callable[..., Result]) -> None:
    owner = Asked()
    for command in (["sync", "wiki"], ["reset", "wiki", "--yes"]):
        done = run(*command, owner=owner, log=[status("wiki", "paused")])
        assert isinstance(done.exception, InfraError) and "sources resume wiki" in done.exception.remedy
    assert owner.asked == []


def test_a_source_is_described_without_its_secrets(run: Callable[..., Result]) -> None:
    told = status("wiki", "unreachable", why="refused", alarms=("groups.yaml is missing",), notes={"version": "5.1"})
    shown = run("describe", "wiki", log=[told]).stdout
    for said in ("/srv/wiki", "unreachable", "refused", "groups.yaml is missing", "5.1", "listed in full", "30.0"):
        assert said in shown, shown
    orders = json.loads(run("describe", "orders", "--json", log=[status("orders")]).stdout)
    assert orders["settings"]["dsn"] == "**********" and "hidden" not in json.dumps(orders)
    assert orders["rhythm"] == {"poll_s": 0.25, "walk_s": 3600.0}
    assert orders["system"]["deletions"] == "events"
    assert orders["state"]["state"] == "waiting"


def test_a_try_shows_findings_and_fails_where_one_is_not_good(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Any] = {
        "wiki": [Finding("12 documents", True)],
        "tickets": ConfigError("sources.tickets.api_key", "is not an administrator's", "Use another."),
        "orders": SourceUnavailable("connection refused"),
    }

    def found(settings: Settings, source: Any, clock: Any) -> list[Finding]:
        answer = answers[source.name]
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    monkeypatch.setattr("consumers.connectors.findings_of", found)
    assert run("test", "wiki").exit_code == 0
    done = run("test")
    assert done.exit_code == 1
    for said in ("12 documents", "sources.1.api_key: is not an administrator's", "Use another.", "connection refused"):
        assert said in done.stdout
    by_name = {one["source"]: one for one in json.loads(run("test", "--json").stdout)}
    assert (by_name["wiki"]["good"], by_name["orders"]["good"]) == (True, False)
    assert by_name["orders"]["findings"][0]["remedy"]


def test_the_table_of_an_outbox_is_printed(run: Callable[..., Result]) -> None:
    assert "CREATE TABLE public.headwater_outbox" in run("outbox-ddl", "orders").stdout
    assert isinstance(run("outbox-ddl", "wiki").exception, InfraError)


@pytest.mark.requirement("E5")
def test_settings_of_sources_are_checked(tmp_path: Path) -> None:
    from infra.commands.config import problems

    wiki = {"type": "mediawiki", "url": "https://w.example", "udp": "127.0.0.1:9"}
    outbox = {"type": "outbox", "dsn": "postgresql://db/x"}
    hook = "s" * 40
    settings = Settings.model_validate(
        {
            "gateway": {"secret": hook},
            "people": [
                {"id": "ann", "emails": ["ann@x.example"]},
                {"id": "ann"},
                {"id": "bob", "emails": ["Ann@x.example"]},
                {"id": "ann", "tenant": "other"},
            ],
            "sources": [
                {"name": "a", "path": str(tmp_path / "nowhere")},
                {"name": "b", **wiki, "identity": {"people": {"17": "anne", "18": "ann"}}},
                {"name": "c", **wiki, "tenant": "third", "identity": {"people": {"17": "anyone"}}},
                {"name": "d", **outbox},
                {"name": "e", **outbox},
                {"name": "f", **outbox, "mode": "poll"},
                {"name": "g", "type": "git", "url": str(tmp_path / "nowhere.git"), "webhook_secret": "short"},
                {"name": "h", "type": "git", "url": str(tmp_path), "webhook_secret": hook},
                {"name": "i", "type": "git", "url": str(tmp_path)},
            ],
        }
    )
    assert {finding.field for finding in problems(settings)} == {
        "sources.0.path", "sources.1.identity.people.17", "sources.2.udp", "sources.4.slot", "sources.6.url",
        "sources.6.webhook_secret", "sources.7.webhook_secret", "people.1.id", "people.2.emails",
    }  # fmt: skip
