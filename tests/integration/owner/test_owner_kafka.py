"""Owners on real Kafka: versions over restarts, fencing, death inside a transaction, the watch's lag, requests."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest

from consumers.owner_log import KafkaOwnerLog, RequestFeed
from pipeline.bus.producer import KafkaPublisher
from pipeline.bus.tail import read_compacted
from pipeline.clock import SystemClock
from pipeline.errors import Crash
from pipeline.ports import Outgoing
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import cursor_record
from pipeline.sources.ledger import Ledger
from schemas.events import AccessTombstone, ContentDeleted, ContentUpserted, SourceCursor, SourceRequest
from schemas.keys import DocumentRef, cursor_key
from schemas.receipts import Receipt
from schemas.topics import Topic
from tests.integration.owner.conftest import GROUPS, Seen, Tree


def newest(seen: Seen) -> dict[str, Any]:
    return {e.document.id: e for e in seen.of(Topic.CONTENT)}  # type: ignore[attr-defined]


def parents(seen: Seen) -> dict[str, Any]:
    return {e.principal: e.parents for e in seen.of(Topic.MEMBERSHIP) if not e.removed}  # type: ignore[attr-defined]


def cursor(tree: Tree) -> SourceCursor:
    key = cursor_key("acme", "wiki", "changes")
    records = list(read_compacted(tree.settings, Topic.CURSORS, wanted=lambda k: k == key))
    return SourceCursor.model_validate_json(records[-1].value or b"")


@pytest.mark.requirement("A1", "A6", "I1", "I9")
def test_a_restart_appends_nothing_and_versions_go_on(tree: Tree, seen: Seen) -> None:
    tree.own()
    seen.await_(lambda: len(newest(seen)) == 2)
    tree.leave()
    count, last = len(seen.records), cursor(tree).last_version
    tree.own()
    tree.put("index.md", "# Home\n\nNew.")
    seen.await_(lambda: newest(seen)["index.md"].body.text.endswith("New."))
    assert len(seen.records) == count + 1 and newest(seen)["index.md"].version > last
    seen.await_(lambda: cursor(tree).last_version == newest(seen)["index.md"].version)


@pytest.mark.requirement("A1", "D4", "D5", "A8", "I4")
def test_every_kind_of_change_is_on_the_log_within_half_a_second(tree: Tree, seen: Seen) -> None:
    tree.own()
    seen.await_(lambda: len(newest(seen)) == 2)
    runbook = tree.root / "eng" / "runbook.md"

    def access(text: str) -> Callable[[], object]:
        return lambda: (tree.root / "eng" / ".access.yaml").write_text(text)

    steps: list[tuple[str, Callable[[], object], Callable[[], bool]]] = [
        ("create", lambda: tree.put("new.md", "# New"), lambda: "new.md" in newest(seen)),
        ("edit", lambda: runbook.write_text("# Edited"), lambda: newest(seen)["eng/runbook.md"].title == "Edited"),
        (
            "rename",
            lambda: runbook.rename(tree.root / "moved.md"),
            lambda: newest(seen)["eng/runbook.md"].path == "moved.md",
        ),
        (
            "permission",
            access("allow: [user:cleo]"),
            lambda: "audience:wiki/eng" not in parents(seen)["group:wiki/eng"],
        ),
        (
            "group",
            lambda: tree.put("groups.yaml", "users: [ann, bob, cleo]\ngroups:\n  eng: [ann]\n"),
            lambda: parents(seen)["user:bob"] == (),
        ),
        (
            "delete",
            lambda: (tree.root / "moved.md").unlink(),
            lambda: isinstance(newest(seen)["eng/runbook.md"], ContentDeleted),
        ),
    ]
    taken = {}
    for name, act, happened in steps:
        act()
        taken[name] = seen.await_(happened)
    print({name: round(seconds * 1000) for name, seconds in taken.items()}, "ms")
    assert max(taken.values()) < 0.5, taken
    assert any(isinstance(e, AccessTombstone) for e in seen.of(Topic.ACCESS))


@pytest.mark.requirement("I1", "I9")
def test_a_second_owner_fences_the_first_before_it_reads(tree: Tree) -> None:
    first = KafkaOwnerLog(tree.settings, "acme", "wiki")
    ledger = Ledger("acme", "wiki", SystemClock(), BodyPlacer(None))
    record = Outgoing(Topic.CURSORS, "x", ledger.cursor(polled_at=1, pending=False).model_dump_json().encode())
    first.appender.append([record])
    second = KafkaOwnerLog(tree.settings, "acme", "wiki")
    with pytest.raises(Crash):
        first.appender.append([record])
    second.appender.append([record])
    other = KafkaOwnerLog(tree.settings, "acme", "other")  # another source is not concerned
    second.appender.append([record])
    for log in (first, second, other):
        log.close()


@pytest.mark.requirement("I1")
def test_an_owner_that_was_taken_over_stands_by_until_its_successor_is_gone(tree: Tree, seen: Seen) -> None:
    first = tree.own()
    seen.await_(lambda: len(newest(seen)) == 2)
    second = KafkaOwnerLog(tree.settings, "acme", "wiki")
    ledger = Ledger("acme", "wiki", SystemClock(), BodyPlacer(None))

    def beat() -> None:
        second.appender.append([cursor_record(ledger.cursor(polled_at=ledger.next_version(), pending=False))])

    tree.put("groups.yaml", GROUPS.replace("[ann, bob]", "[cleo]"))  # several events in one transaction
    tree.put("index.md", "# Whose")
    seen.await_(lambda: first.state == "standby")
    for _ in range(12):  # alive: it writes more often than the standby looks
        beat()
        time.sleep(0.25)
    assert first.state == "standby" and newest(seen)["index.md"].title == "Home"
    seen.await_(lambda: newest(seen)["index.md"].title == "Whose", 30)  # no more heartbeats: taken back
    with pytest.raises(Crash):
        beat()
    second.close()


DYING = """
import os, signal, sys
from pipeline.bus.producer import KafkaAppender, _send
from pipeline.settings import load
from pipeline.ports import Outgoing

settings = load()
appender = KafkaAppender(settings, "owner.acme.wiki")
producer = appender._producer
producer.begin_transaction()
for n in range(5):
    _send(producer, settings, Outgoing("content", f'["acme","wiki","page","dead{n}"]', b"{}")).get(timeout=20)
print("inside", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.requirement("I9", "I1")
def test_an_owner_killed_inside_its_transaction_leaves_nothing_and_blocks_nobody(
    tree: Tree, seen: Seen, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tree.settings
    config = tmp_path / "dying.toml"
    config.write_text(
        f'namespace = "{settings.namespace}"\n[kafka]\nbootstrap = "{settings.kafka.bootstrap}"\npartitions = 3\n'
    )
    monkeypatch.setenv("HEADWATER_CONFIG", str(config))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DYING)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL and "inside" in done.stdout, done.stderr
    started = time.monotonic()
    tree.own()  # takes the transactional id over, which ends the dead transaction
    seen.await_(lambda: len(newest(seen)) == 2)
    assert time.monotonic() - started < 15
    assert not any("dead" in (r.key or "") for _, r in seen.records)


@pytest.mark.requirement("A6")
def test_a_request_on_the_topic_reaches_the_owner(tree: Tree, seen: Seen) -> None:
    owners: list[Any] = []

    def wake(tenant: str, source: str) -> None:
        for owner in owners:
            owner.wake()

    tree.feed = RequestFeed(tree.settings, wake)
    owners.append(tree.own())
    seen.await_(lambda: len(newest(seen)) == 2)
    count = len(seen.of(Topic.CONTENT))
    request = SourceRequest(
        type="document",
        tenant="acme",
        source="wiki",
        document=DocumentRef(tenant="acme", source="wiki", id="index.md"),
        request_id="again",
        requested_at=1,
    )
    publisher = KafkaPublisher(tree.settings)
    publisher.publish([Outgoing(Topic.REQUESTS, "again", request.model_dump_json().encode())])
    publisher.close()
    seen.await_(lambda: len(seen.of(Topic.CONTENT)) == count + 1)
    assert isinstance(newest(seen)["index.md"], ContentUpserted)

    def answered() -> bool:
        records = [r.value for r in read_compacted(tree.settings, Topic.RECEIPTS)]
        return [Receipt.model_validate_json(r or b"").request_id for r in records] == ["again"]

    seen.await_(answered)
