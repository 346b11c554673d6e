"""The end of a source: deletions of all its documents, its memberships and its cursor; done again, nothing more."""

from __future__ import annotations

import pytest

from consumers.owner_remove import remove_source
from pipeline.errors import BusUnavailable, Crash
from pipeline.observe import Metrics
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Limits
from schemas.events import AccessTombstone, ContentDeleted
from schemas.receipts import Receipt
from schemas.reconciliation import ReconciliationReport
from schemas.topics import Topic
from tests.unit.owner.support import MemoryOwnerLog, Wiki


def remove(wiki: Wiki) -> ReconciliationReport:
    return remove_source(
        "acme", "wiki", open_log=lambda: MemoryOwnerLog(wiki.log, wiki.clock), bodies=BodyPlacer(wiki.bodies, 0, 1_000),
        clock=wiki.clock, observed=Metrics(), limits=Limits(events=20), request_id="end",
        progress=lambda step, done, total: None,
    )  # fmt: skip


@pytest.mark.requirement("A8", "F01", "I1")
def test_a_removed_source_leaves_tombstones_and_nobody_with_a_right(wiki: Wiki) -> None:
    wiki.inline_limit = 0
    for n in range(30):
        wiki.put(f"many/{n}.md", f"# Page {n}")
    wiki.start()
    wiki.settle()
    assert len(wiki.bodies.bodies) == 32 and wiki.log.parents()
    wiki.log.fail_next = 1
    with pytest.raises(BusUnavailable):
        remove(wiki)
    report = remove(wiki)  # begun anew
    assert (report.purged, report.known, report.complete) == (32, 32, True)
    newest = {e.document.id: e for e in wiki.log.content()}  # type: ignore[attr-defined]
    assert len(newest) == 32 and all(isinstance(e, ContentDeleted) for e in newest.values())
    assert sum(isinstance(e, AccessTombstone) for e in wiki.log.access()) == 32
    assert wiki.log.parents() == {} and wiki.bodies.bodies == {}
    last = [r for r in wiki.log.topic(Topic.CURSORS) if r.key == '["acme","wiki","cursor","changes"]'][-1]
    assert last.value is None
    (receipt,) = [Receipt.model_validate_json(r.value or b"") for r in wiki.log.topic(Topic.RECEIPTS)]
    assert (receipt.event_type, receipt.outcome, receipt.request_id) == ("request.remove", "done", "end")
    with pytest.raises(Crash):  # whoever owned it is fenced
        wiki.clock.advance(10)
        wiki.settle()
    events = wiki.log.events()
    assert remove(wiki).purged == 0 and wiki.log.events() == events


@pytest.mark.requirement("A1", "I1")
def test_a_source_that_is_configured_again_brings_its_documents_back(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    last = wiki.log.cursor().last_version
    wiki.engine.close()
    remove(wiki)
    wiki.start()
    wiki.settle()
    newest = {e.document.id: e for e in wiki.log.content()}  # type: ignore[attr-defined]
    assert {e.type for e in newest.values()} == {"upserted"} and len(newest) == 2  # type: ignore[attr-defined]
    assert all(e.version > last for e in newest.values())  # type: ignore[attr-defined]
    assert "audience:wiki/" in wiki.log.parents()["everyone"]
