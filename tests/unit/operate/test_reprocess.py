"""Which documents are processed again, and with how many commands under way."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pipeline.clock import ManualClock
from pipeline.errors import ConfigError
from pipeline.operate.maintenance import Maintenance
from pipeline.operate.reprocess import Found, Selection, carry_out, newest
from pipeline.ports import Appended, Outgoing, Record
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, Receipt


def ref(name: str, source: str = "wiki", tenant: str = "acme") -> DocumentRef:
    return DocumentRef(tenant=tenant, source=source, id=name)


def event(offset: int, name: str, *, updated: int | None = None, type: str = "upserted", observed: int = 50) -> Record:
    value = {"type": type, "observed_at": observed, "source_facts": {"updated_at": updated}}
    return Record("content", 0, offset, 0, ref(name).key, json.dumps(value).encode())


def offsets(found: Sequence[Found]) -> list[int]:
    return [item.offset for item in found]


@pytest.mark.requirement("A10")
def test_the_newest_event_of_each_document_counts_and_deleted_ones_are_left_out() -> None:
    log = [event(1, "a"), event(2, "b"), event(3, "a"), event(4, "b", type="deleted"), event(5, "c"),
           Record("content", 0, 6, 0, ref("c").key, b"no json"), Record("content", 0, 7, 0, None, b"{}"),
           event(8, "d"), Record("content", 0, 9, 0, ref("d").key, None)]  # fmt: skip
    assert offsets(newest(log, Selection(tenant="acme"))) == [3]


def test_a_time_range_is_the_sources_own_time_and_else_the_owners() -> None:
    log = [event(1, "early", updated=10), event(2, "in", updated=20), event(3, "end", updated=30),
           event(4, "unknown", observed=25), event(5, "moved", updated=20), event(6, "moved", updated=90)]  # fmt: skip
    assert offsets(newest(log, Selection(updated_from=20, updated_until=30))) == [2, 4]


def test_a_selection_by_tenant_source_and_document() -> None:
    key = ref("a", "wiki", "acme").key
    assert Selection(tenant="acme").has(key) and Selection(source="wiki").has(key)
    assert Selection(document=ref("a")).has(key) and not Selection(document=ref("b")).has(key)
    assert not Selection(tenant="other").has(key) and not Selection(tenant="acme", source="notes").has(key)
    assert not Selection(tenant="acme").has(None) and not Selection(tenant="acme").has('["acme","wiki"]')
    with pytest.raises(ConfigError, match="names nothing"):
        Selection()


class Owners:
    """Publisher and receipts in one: answers ``at_once`` commands a poll, and notes the most that were under way."""

    def __init__(self, at_once: int = 3, outcome: str = "done", silent: bool = False) -> None:
        self.clock = ManualClock()
        self.waiting: list[tuple[int, MaintenanceCommand]] = []
        self.sent: list[MaintenanceCommand] = []
        self.most = 0
        self._at_once, self._outcome, self._silent = at_once, outcome, silent

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        places = []
        for record in records:
            command = MaintenanceCommand.model_validate_json(record.value or b"")
            self.waiting.append((len(self.sent), command))
            places.append(Appended(record.topic, 0, len(self.sent), 0))
            self.sent.append(command)
        self.most = max(self.most, len(self.waiting))
        return places

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        self.clock.advance(1)
        if self._silent:
            return []
        answered, self.waiting = self.waiting[: self._at_once], self.waiting[self._at_once :]
        return [Record("receipts", 0, 0, 0, None, self._receipt(*item)) for item in answered]

    def _receipt(self, offset: int, command: MaintenanceCommand) -> bytes:
        made = Receipt(
            lane="index", generation=command.generation, tenant="acme", event_type="maintenance.reprocess", version=1,
            outcome=self._outcome, coordinates=Coordinates(topic="maintenance", partition=0, offset=offset),
            reason="why",
        )  # fmt: skip
        return made.model_dump_json().encode()

    def caught_up(self) -> bool:
        return True

    def behind(self) -> int:
        return 0

    def positions(self) -> dict[object, int]:
        return {}

    def close(self) -> None:
        pass


def talk(owners: Owners) -> Maintenance:
    return Maintenance(owners, owners, owners.clock)  # type: ignore[arg-type]


PAGES = [Found(ref(f"p{n}").key, 0, 100 + n) for n in range(50)]


@pytest.mark.requirement("I13", "A10")
def test_no_more_than_the_credit_is_under_way_and_every_generation_gets_every_document() -> None:
    owners, seen = Owners(), []
    result = carry_out(
        talk(owners), PAGES, ["one", "two"], 7, credit=8, progress=lambda step, done, total: seen.append((done, total))
    )
    assert owners.most == 8 and result.outcomes == {"done": 100} and seen[-1] == (100, 100)
    assert not result.stopped and result.failed == 0
    sent = {(c.generation, c.document.id, c.offset) for c in owners.sent}
    assert sent == {(g, f"p{n}", 100 + n) for g in ("one", "two") for n in range(50)}
    assert {c.priority for c in owners.sent} == {"bulk"}


@pytest.mark.requirement("A10")
def test_a_stop_sends_nothing_more_and_waits_for_what_is_under_way() -> None:
    owners = Owners()
    result = carry_out(talk(owners), PAGES, ["one"], 7, credit=4, stop=lambda: len(owners.sent) >= 8)
    assert result.stopped and not owners.waiting
    assert sum(result.outcomes.values()) == len(owners.sent) < 20


@pytest.mark.requirement("I8")
def test_failures_are_named_and_silence_ends_the_wait() -> None:
    result = carry_out(talk(Owners(outcome="dead_letter")), PAGES[:2], ["one"], 7)
    assert result.failed == 2 and result.failures == [("one", ref(f"p{n}").key, "why") for n in range(2)]
    silent = carry_out(talk(Owners(silent=True)), PAGES, ["one"], 7, credit=4)
    assert silent.unanswered == 50 and not silent.outcomes and not silent.stopped
