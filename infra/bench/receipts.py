"""Follows what became of every event of a namespace."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from infra.errors import InfraError
from pipeline.bus.codec import decode
from pipeline.bus.tail import KafkaTail
from pipeline.errors import Reject, Retry
from pipeline.settings import Settings
from schemas.receipts import Lane, Receipt
from schemas.topics import Topic


class Key(NamedTuple):
    """One event: ``subject`` is a document's uid or a principal. Versions are given out once a source."""

    lane: Lane
    tenant: str
    subject: str
    version: int


def key_of(receipt: Receipt) -> Key:
    """The event that a receipt speaks of."""
    subject = receipt.document_uid or receipt.principal or ""
    return Key(receipt.lane, receipt.tenant, subject, receipt.version)


class Book:
    """Receipts in order of arrival, found by event. Thread-safe."""

    def __init__(self) -> None:
        self._all: list[Receipt] = []
        self._last: dict[Key, int] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counted: set[str] = set()
        self._changed = threading.Condition()

    def only_count(self, tenant: str) -> None:
        """From now on a tenant's receipts are counted and not kept."""
        with self._changed:
            self._counted.add(tenant)

    def note(self, receipt: Receipt) -> None:
        """Take one in."""
        with self._changed:
            if receipt.tenant not in self._counted:
                self._last[key_of(receipt)] = len(self._all)
                self._all.append(receipt)
            self._counts[receipt.tenant, _kind(receipt)] += 1
            self._changed.notify_all()

    def mark(self) -> int:
        """A place in the order of arrival."""
        with self._changed:
            return len(self._all)

    def since(self, mark: int) -> list[Receipt]:
        """Receipts that arrived at the place or later."""
        with self._changed:
            return self._all[mark:]

    def count(self, tenant: str, kind: str) -> int:
        """Receipts of a tenant by kind: "content" or "access" of the index lane by its events, else the lane's name.

        Kinds: index.content, index.access, index.maintenance, access, membership, control.
        """
        with self._changed:
            return self._counts[tenant, kind]

    def wait(self, keys: Iterable[Key], seconds: float, *, mark: int = 0) -> dict[Key, Receipt]:
        """The newest receipt of each event, once all have one since ``mark``. Raises InfraError when time is over."""
        wanted = set(keys)
        missing = set(wanted)
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                missing = {key for key in missing if self._last.get(key, -1) < mark}
                if not missing:
                    return {key: self._all[self._last[key]] for key in wanted}
                left = end - time.monotonic()
                if left <= 0:
                    raise InfraError(
                        f"{len(missing)} of {len(wanted)} events have no receipt after {seconds:.0f} s, one of them "
                        f"{min(missing)}.",
                        "The logs of the benchmark's processes say why; run it again on a less busy machine.",
                    )
                self._changed.wait(left)

    def first(self, holds: Callable[[Receipt], bool], mark: int, seconds: float) -> Receipt:
        """The first receipt since ``mark`` of which ``holds`` says yes. Raises InfraError when time is over."""
        end = time.monotonic() + seconds
        at = mark
        with self._changed:
            while True:
                for receipt in self._all[at:]:
                    if holds(receipt):
                        return receipt
                at = len(self._all)
                left = end - time.monotonic()
                if left <= 0:
                    raise InfraError(
                        f"What was waited for did not come within {seconds:.0f} s.", "Run it on a less busy machine."
                    )
                self._changed.wait(left)


def _kind(receipt: Receipt) -> str:
    return f"index.{receipt.event_type.split('.', 1)[0]}" if receipt.lane == "index" else receipt.lane


class Receipts(Book):
    """A book that the topic ``receipts`` is read into by a thread."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        # Uncommitted is enough: receipts are not written in transactions.
        self._tail = KafkaTail(settings, [Topic.RECEIPTS], since="beginning", isolation="read_uncommitted")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-receipts", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                records = self._tail.poll(100)
            except Retry:
                self._stop.wait(0.5)
                continue
            for record in records:
                try:
                    self.note(decode(record, Receipt))
                except Reject:
                    continue  # not of this release: nothing that a benchmark waits for

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(5)
        self._tail.close()
