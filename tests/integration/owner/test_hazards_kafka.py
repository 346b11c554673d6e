"""A folder whose listings come in part, fail and race with changes; its owner on real Kafka, asked as by operators."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumers.owner_log import KafkaOwnerLog, RequestFeed
from pipeline.bus.tail import read_compacted
from pipeline.operate.asking import Answer, Owners, conversation, request
from pipeline.operate.owned import held, memory
from pipeline.sources.folder.tree import Tree as Files
from schemas.events import AccessTombstone, HoldChanged
from schemas.receipts import Receipt
from schemas.reconciliation import ReconciliationReport
from schemas.topics import Topic
from tests.integration.owner.conftest import Seen, Tree


@pytest.fixture
def owners(tree: Tree) -> Iterator[Owners]:
    def wake(tenant: str, source: str) -> None:
        for owner, _ in tree.running:
            owner.wake()

    tree.feed = RequestFeed(tree.settings, wake)
    with conversation(tree.settings) as talking:
        yield talking


def ask(owners: Owners, type_: str, **more: object) -> Answer:
    asked = request(type_, "acme", "wiki", clock=owners.clock, requested_by="test", **more)
    return owners.ask(asked, timeout_s=60)


def listing(owners: Owners, **more: object) -> ReconciliationReport:
    return ask(owners, "listing", **more).report


def hidden(seen: Seen) -> set[str]:
    last = {e.document.id: e.active for e in seen.of(Topic.ACCESS) if isinstance(e, HoldChanged)}
    return {id_ for id_, active in last.items() if active}


def buried(seen: Seen) -> set[str]:
    return {e.document.id for e in seen.of(Topic.ACCESS) if isinstance(e, AccessTombstone)}


@pytest.mark.requirement("F02", "A8", "I9")
def test_a_partial_and_a_failing_listing_end_in_an_answer_and_in_no_deletion(
    tree: Tree, seen: Seen, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.own()
    real = Files._list

    def partial(self: Files, folder: str, walked: object, todo: list[str]) -> None:
        if folder == "eng":
            raise PermissionError(13, "Permission denied")
        real(self, folder, walked, todo)  # type: ignore[arg-type]

    monkeypatch.setattr(Files, "_list", partial)
    found = listing(owners, confirm_deletions=True)
    assert not found.complete and "Permission denied" in found.why[0] and (found.missing, found.purged) == (0, 0)
    shutil.move(tree.root, tree.root.parent / "away")
    answer = ask(owners, "listing", confirm_deletions=True)
    assert answer.refused is not None and "root folder" in answer.refused
    assert not buried(seen) and not hidden(seen)
    monkeypatch.undo()
    shutil.move(tree.root.parent / "away", tree.root)
    found = listing(owners)
    assert found.complete and (found.listed, found.missing) == (2, 0)


@pytest.mark.requirement("F02", "A1", "I9", "A6")
def test_listings_that_race_with_changes_lose_no_edit_and_delete_nothing_that_is_there(
    tree: Tree, seen: Seen, owners: Owners
) -> None:
    chance = random.Random(7)
    for n in range(40):
        tree.put(f"race/p{n}.md", f"# Page {n}\n\nVersion 0.")
    tree.own()
    ids = {f"race/p{n}.md" for n in range(40)}
    texts = dict.fromkeys(ids, "Version 0.")
    deleted: set[str] = set()
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            path = f"race/p{chance.randrange(40)}.md"
            file = tree.root / path
            act = chance.random()
            if act < 0.5 and file.exists():
                temporary = file.with_suffix(".tmp")
                temporary.write_text(f"# {path}\n\nVersion {number}.")
                os.replace(temporary, file)
                texts[path] = f"Version {number}."
            elif act < 0.7:
                tree.put(f"race/new{number}.md", f"# New {number}\n\nVersion {number}.")
                texts[f"race/new{number}.md"] = f"Version {number}."
            elif act < 0.8 and file.exists() and len(deleted) < 8:
                file.unlink()
                deleted.add(path)
                texts.pop(path, None)
            time.sleep(0.01)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        reports = [listing(owners) for _ in range(8)]
    finally:
        stop.set()
        thread.join(5)
    assert all(report.complete and report.held == 0 for report in reports)
    last = listing(owners)
    assert last.listed == len(texts) + 2
    ledger = memory(tree.settings, "acme", "wiki")
    assert {d.id for d, known in ledger.states() if not known.deleted} == {*texts, "index.md", "eng/runbook.md"}

    def arrived() -> bool:
        newest: dict[str, Any] = {e.document.id: e for e in seen.of(Topic.CONTENT)}  # type: ignore[attr-defined]
        return all(newest[id_].body.text.endswith(text) for id_, text in texts.items())

    seen.await_(arrived)
    assert buried(seen) - deleted == set() and not hidden(seen)


@pytest.mark.requirement("F02", "A8", "I1")
def test_what_was_hidden_is_listed_undone_and_survives_the_death_of_its_owner(
    tree: Tree, seen: Seen, owners: Owners
) -> None:
    for n in range(25):
        tree.put(f"many/p{n}.md", f"# Page {n}")
    tree.own()
    tree.leave()
    away: Path = tree.root.parent / "away"
    shutil.move(tree.root / "many", away)
    tree.own()
    seen.await_(lambda: len(hidden(seen)) == 25)
    holds = list(held(memory(tree.settings, "acme", "wiki"), 7))
    (walk,) = {hold.by for hold in holds}
    assert len(holds) == 25 and walk.startswith("walk-") and {hold.reason for hold in holds} == {"missing"}
    report = ask(owners, "undo", of_request=walk).accepted()
    assert report.released == 25
    seen.await_(lambda: not hidden(seen))
    again = listing(owners)
    assert (again.missing, again.held, again.purged) == (25, 0, 0)
    other = KafkaOwnerLog(tree.settings, "acme", "wiki")  # whoever owns it now dies at its next write
    asked = request("listing", "acme", "wiki", clock=owners.clock, requested_by=None, confirm_deletions=True)
    answer = owners.ask(asked, timeout_s=90, answer_s=60)
    other.close()
    assert answer.report.purged == 25 and buried(seen) >= {f"many/p{n}.md" for n in range(25)}
    receipts = [Receipt.model_validate_json(r.value or b"") for r in read_compacted(tree.settings, Topic.RECEIPTS)]
    assert [r.request_id for r in receipts if r.request_id == asked.request_id] == [asked.request_id]


@pytest.mark.requirement("F02")
def test_a_dry_run_changes_nothing_on_the_log(tree: Tree, seen: Seen, owners: Owners) -> None:
    tree.own()
    tree.put("index.md", "# Home\n\nWelcome again.")
    seen.await_(lambda: any("again" in e.body.text for e in seen.of(Topic.CONTENT)))  # type: ignore[attr-defined]
    count = len(seen.records)
    found = listing(owners, repair=False)
    assert (found.listed, found.new, found.stale, found.missing, found.repaired) == (2, 0, 0, 0, 0)
    assert ask(owners, "backfill", updated_from=0, updated_until=1).report.repaired == 0
    assert len(seen.records) == count
    assert ask(owners, "backfill").report.repaired == 2
    seen.await_(lambda: len(seen.records) == count + 4)  # rule and content of each
