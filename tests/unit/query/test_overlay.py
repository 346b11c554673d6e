"""The overlay: the newest word of the log over the store's records; what cannot be read closes."""

from __future__ import annotations

from typing import Any

import pytest

from query_service.overlay import Overlay
from schemas.access import AccessRule
from schemas.documents import AccessRecord
from schemas.events import AccessSet, AccessTombstone, HoldChanged
from schemas.keys import DocumentRef, membership_key
from schemas.topics import Topic
from tests.unit.query.world import TENANT, FakeLog, ref

DOCUMENT = ref("page")
OPEN = AccessRule.any_of("everyone")
ANN = AccessRule.any_of("user:ann")


def stored(**changes: Any) -> AccessRecord:
    return AccessRecord(**{"document": DOCUMENT, "version": 10, "content_version": 5, "rule": OPEN, **changes})


def rule(version: int, **changes: Any) -> AccessSet:
    fields = {"document": DOCUMENT, "version": version, "content_version": 5, "rule": ANN, "observed_at": version}
    return AccessSet(**{**fields, **changes})


def tombstone(version: int, not_before: int = 6) -> AccessTombstone:
    return AccessTombstone(document=DOCUMENT, version=version, not_before=not_before, observed_at=version)


def hold(version: int, active: bool = True, document: DocumentRef = DOCUMENT) -> HoldChanged:
    return HoldChanged(document=document, hold="legal", active=active, version=version, observed_at=version)


def after(*events: Any) -> Overlay:
    overlay, log = Overlay(), FakeLog()
    for event in events:
        assert overlay.apply(log.event(event))
    return overlay


def effective(overlay: Overlay, record: AccessRecord | None) -> AccessRecord:
    found = overlay.access(DOCUMENT.uid, record)
    assert found is not None
    return found


@pytest.mark.requirement("I3", "A8")
def test_without_an_entry_the_store_decides() -> None:
    assert Overlay().access(DOCUMENT.uid, stored()) == stored()
    assert Overlay().access(DOCUMENT.uid, None) is None


@pytest.mark.requirement("A8", "I4")
def test_a_newer_rule_of_the_tail_wins_and_an_older_one_does_not() -> None:
    newer = effective(after(rule(11)), stored())
    assert (newer.version, newer.rule) == (11, ANN)
    older = effective(after(rule(9)), stored())
    assert (older.version, older.rule) == (10, OPEN)


@pytest.mark.requirement("A8")
def test_a_tombstone_hides_and_a_stale_store_cannot_undo_it() -> None:
    overlay = after(tombstone(11))
    for record in (stored(), None, stored(version=3)):
        found = effective(overlay, record)
        assert found.tombstone and found.not_before == 6
    assert not effective(overlay, stored(version=12)).tombstone


@pytest.mark.requirement("I3", "I5")
def test_a_late_older_event_changes_nothing() -> None:
    overlay = after(tombstone(11), rule(10))
    assert effective(overlay, stored(version=9)).tombstone


@pytest.mark.requirement("I3")
def test_not_before_is_kept_by_later_rules() -> None:
    assert effective(after(rule(11, not_before=0)), stored(not_before=8)).not_before == 8
    assert effective(after(rule(11, not_before=9), rule(12, not_before=0)), stored()).not_before == 9


@pytest.mark.requirement("I3")
def test_a_rule_after_a_tombstone_restores_under_not_before() -> None:
    found = effective(after(tombstone(11), rule(12, not_before=6)), stored())
    assert not found.tombstone and found.rule == ANN and found.not_before == 6
    again = effective(after(rule(12, not_before=6)), stored(version=11, tombstone=True, not_before=6))
    assert not again.tombstone


@pytest.mark.requirement("I3")
def test_holds_live_beside_the_rule() -> None:
    assert effective(after(hold(11)), stored()).holds == {"legal": 11}
    assert effective(after(hold(11), rule(12)), stored()).holds == {"legal": 11}
    lifted = effective(after(hold(12, active=False)), stored(holds={"legal": 11}))
    assert lifted.holds == {} and lifted.lifted == {"legal": 12}
    assert effective(after(hold(10, active=False)), stored(holds={"legal": 11})).holds == {"legal": 11}
    assert effective(after(hold(10)), stored(lifted={"legal": 11})).holds == {}


@pytest.mark.requirement("I3")
def test_a_hold_alone_is_no_access() -> None:
    assert after(hold(11, active=False)).access(DOCUMENT.uid, None) is None


BROKEN = [
    b"", b"\xff\xfe", b"null", b"{}", b'{"type":"rule"}',
    rule(11).model_dump_json().replace('"schema_version":1', '"schema_version":2').encode(),
    rule(11).model_dump_json().replace('"type":"rule"', '"type":"rule","except":["user:ann"]').encode(),
    rule(11, document=ref("other")).model_dump_json().encode(),
    None,
]  # fmt: skip


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("value", BROKEN)
def test_what_cannot_be_read_closes_its_document(value: bytes | None) -> None:
    overlay, log = after(rule(11)), FakeLog()
    assert not overlay.apply(log.append(Topic.ACCESS, DOCUMENT.key, value))
    assert overlay.undecodable == 1
    for record in (stored(), stored(version=99), None):
        assert effective(overlay, record).rule.prefilter()[0] == ["nobody"]
    assert overlay.apply(log.event(rule(12)))
    assert effective(overlay, stored()).rule == ANN


@pytest.mark.requirement("I12")
def test_an_unreadable_hold_closes_until_that_hold_is_read_again() -> None:
    overlay, log = after(rule(11)), FakeLog()
    overlay.apply(log.append(Topic.ACCESS, DOCUMENT.hold_key("legal"), b"{}", partition_key=DOCUMENT.key))
    overlay.apply(log.event(rule(12)))
    assert effective(overlay, stored()).rule.prefilter()[0] == ["nobody"]
    overlay.apply(log.event(hold(13, active=False)))
    assert effective(overlay, stored()).rule == ANN


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("key", [None, "", "x", "[]", '["a","b"]'])
def test_a_record_that_names_nothing_is_an_alarm_only(key: str | None) -> None:
    overlay = after(rule(11))
    assert not overlay.apply(FakeLog().append(Topic.ACCESS, key, b"{}"))
    assert overlay.undecodable == 1
    assert effective(overlay, stored()).rule == ANN


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"type":"membership","tenant":"acme","principal":"user:bob"}'])
def test_an_unreadable_membership_removes_its_principal(value: bytes | None) -> None:
    overlay = Overlay()
    heard: list[tuple[str, str]] = []
    overlay.subscribe(lambda tenant, principal: heard.append((tenant, principal)))
    key = membership_key(TENANT, "user:ann", "wiki")
    assert not overlay.apply(FakeLog().append(Topic.MEMBERSHIP, key, value))
    found = overlay.principal(TENANT, "user:ann", None)
    assert found is not None and found.removed
    assert heard == [(TENANT, "user:ann")]


@pytest.mark.requirement("A8")
def test_entries_go_only_when_old_and_applied() -> None:
    overlay, log = Overlay(), FakeLog()
    first = log.event(rule(11), at=100)
    overlay.apply(first)
    slot = (Topic.ACCESS.value, first.partition)
    assert overlay.prune(100, {slot: 1}) == 0, "not old enough"
    assert overlay.prune(101, {slot: 0}) == 0, "not applied yet"
    assert overlay.prune(101, {}) == 0, "nothing known of the lane"
    assert len(overlay) == 1
    assert overlay.prune(101, {slot: 1}) == 1
    assert overlay.access(DOCUMENT.uid, stored()) == stored()
