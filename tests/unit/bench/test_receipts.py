"""The book of receipts: by event, by count, since a place."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from infra.bench.receipts import Book, Key, key_of
from infra.errors import InfraError
from schemas.receipts import Receipt


def _receipt(version: int = 5, **more: Any) -> Receipt:
    values: dict[str, Any] = {
        "lane": "index", "tenant": "acme", "document_uid": "u1", "event_type": "content.upserted", "outcome": "indexed",
    }  # fmt: skip
    return Receipt.model_validate({**values, "version": version, **more})


def _key(version: int = 5) -> Key:
    return Key("index", "acme", "u1", version)


def test_an_event_is_found_by_lane_subject_and_version() -> None:
    book = Book()
    book.note(_receipt(5))
    book.note(_receipt(5, lane="access", event_type="access.rule"))
    assert book.wait([_key()], 0) == {_key(): _receipt(5)}
    person = _receipt(7, lane="membership", document_uid=None, principal="user:ann", event_type="membership")
    assert key_of(person) == Key("membership", "acme", "user:ann", 7)


def test_waiting_ends_with_the_last_receipt() -> None:
    book = Book()
    book.note(_receipt(5))
    timer = threading.Timer(0.05, lambda: book.note(_receipt(6)))
    timer.start()
    assert set(book.wait([_key(5), _key(6)], 5)) == {_key(5), _key(6)}
    timer.join()


def test_what_does_not_come_is_named() -> None:
    book = Book()
    book.note(_receipt(5))
    with pytest.raises(InfraError, match="1 of 2 events"):
        book.wait([_key(5), _key(6)], 0.01)
    with pytest.raises(InfraError, match="did not come"):
        book.first(lambda r: r.version == 6, 0, 0.01)


def test_a_replayed_event_is_awaited_again() -> None:
    book = Book()
    book.note(_receipt(5))
    mark = book.mark()
    with pytest.raises(InfraError):
        book.wait([_key()], 0.01, mark=mark)
    again = _receipt(5, outcome="unchanged")
    book.note(again)
    assert book.wait([_key()], 0, mark=mark) == {_key(): again}
    assert book.since(mark) == [again]


def test_the_first_that_holds_is_given_even_if_it_came_before_the_call() -> None:
    book = Book()
    for version in (5, 6, 7):
        book.note(_receipt(version))
    assert book.first(lambda r: r.version > 5, 0, 0).version == 6
    assert book.first(lambda r: r.version > 5, 2, 0).version == 7


def test_counts_by_kind_of_event() -> None:
    book = Book()
    book.only_count("grow")
    book.note(_receipt(5))
    book.note(_receipt(6, event_type="access.rule"))
    book.note(_receipt(7, lane="access"))
    book.note(_receipt(8, tenant="grow"))
    assert [book.count("acme", kind) for kind in ("index.content", "index.access", "access")] == [1, 1, 1]
    assert book.count("grow", "index.content") == 1
    assert book.mark() == 3
