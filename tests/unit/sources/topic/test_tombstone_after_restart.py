"""A repeated deletion and a changed column of a key delete no newer row."""

from __future__ import annotations

import pytest

from tests.unit.sources.topic.test_topic import EVENTS, TOPIC, FakeRecords, Owner, page, row


@pytest.mark.requirement("A6", "A8")
@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_deletion_split_by_a_restart_deletes_nothing_newer(restart: bool) -> None:
    records = FakeRecords({TOPIC: [], EVENTS: []})
    created, deleted, again = row("c", 10, page(1, "one")), row("d", 20, None, page(1)), row("c", 30, page(1, "two"))
    for event in (created, deleted, None, again):
        records.add(TOPIC, {"id": 1}, event)
    owner = Owner(records)
    owner.take()
    assert owner.live() == {"1"}
    records.add(TOPIC, {"id": 1}, deleted)  # the connector crashed and tells its last rows once more
    owner.take()
    if restart:
        owner.begin()
    for event in (None, again):
        records.add(TOPIC, {"id": 1}, event)
    owner.take()
    assert owner.live() == {"1"}


@pytest.mark.requirement("A6", "A8")
def test_a_key_that_changes_in_other_columns_keeps_the_document() -> None:
    """Key (id, lang): its other column changes, so Debezium tells d and c at one lsn, of two keys, so perhaps of two
    partitions, and the creation may be read first."""
    records = FakeRecords({TOPIC: [], EVENTS: []})
    records.add(TOPIC, {"id": 1, "lang": "en"}, row("c", 10, page(1, "one", lang="en")))
    owner = Owner(records)
    owner.take()
    records.add(TOPIC, {"id": 1, "lang": "de"}, row("c", 20, page(1, "one", lang="de")))
    records.add(TOPIC, {"id": 1, "lang": "en"}, row("d", 20, None, page(1, "one", lang="en")))
    records.add(TOPIC, {"id": 1, "lang": "en"}, None)
    owner.take()
    assert owner.live() == {"1"}
