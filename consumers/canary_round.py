"""One round of the canary: a document and its reader appear, the reader loses it, then it is gone for everybody.

Two people look. The reader is in the group that may read, and loses the document; the witness is named in the rule
and keeps it, so that it can still be seen when it is deleted, and so that a revocation that hides too much is seen.
Documents and readers come from a fixed set, one for each partition: segments roll everywhere, and nothing piles up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from consumers.canary_client import Away, Refused
from pipeline.clock import Clock
from schemas.access import group
from schemas.api_changes import AccessChange, AccessInput, Change, DeleteChange, MembershipChange, UpsertChange
from schemas.keys import DocumentRef, membership_key, partition_of

BOUND_S = 10.0
"""A step that takes longer has failed."""
STAYS_S = 1.0
"""How long what has vanished must stay away."""
QUICK_S = 2.0  # polls are close together at first: their distance is the error of the measurement
QUICK_PAUSE_S, SLOW_PAUSE_S = 0.02, 0.2

Revocation = Literal["membership", "access"]
Outcome = Literal["running", "ok", "failed", "interrupted"]
Wait = Callable[[float], bool]
"""Sleeps so many seconds; true at once when the process is asked to stop."""


class Leaving(Exception):
    """The process was asked to stop."""


class Writes(Protocol):
    """The change gateway as far as a round needs it."""

    def send(self, changes: Sequence[Change]) -> object: ...


class Asks(Protocol):
    """The query service as far as a round needs it."""

    def found(self, user: str, uid: str, word: str) -> bool: ...
    def shown(self, user: str, uid: str, word: str) -> bool: ...


@dataclass(frozen=True)
class Slot:
    """What one round works with."""

    partition: int
    document: DocumentRef
    reader: str


@dataclass
class Round:
    """What came of a round. ``seconds`` by step: None where the step exceeded its bound."""

    partition: int
    document_id: str
    revocation: Revocation
    started_at: int  # µs
    outcome: Outcome = "running"
    seconds: dict[str, float | None] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def fail(self, step: str, why: str) -> None:
        """Note a failure."""
        self.failures.append(f"{step}: {why}")


def slots(tenant: str, source: str, partitions: int) -> tuple[Slot, ...]:
    """One document and one reader for each partition: their keys fall there."""
    documents: dict[int, DocumentRef] = {}
    readers: dict[int, str] = {}
    number = 0
    while len(documents) < partitions or len(readers) < partitions:
        document = DocumentRef(tenant=tenant, source=source, kind="page", id=f"canary-{number}")
        reader = f"user:canary-reader-{number}"
        documents.setdefault(partition_of(document.key, partitions), document)
        readers.setdefault(partition_of(membership_key(tenant, reader), partitions), reader)
        number += 1
    return tuple(Slot(p, documents[p], readers[p]) for p in range(partitions))


class Runner:
    """Runs rounds."""

    def __init__(self, tenant: str, source: str, writes: Writes, asks: Asks, clock: Clock, wait: Wait) -> None:
        self._tenant = tenant
        self._writes = writes
        self._asks = asks
        self._clock = clock
        self._wait = wait
        self._group = group(source, "canary-readers")
        self._witness = "user:canary-witness"

    def run(self, slot: Slot, revocation: Revocation, word: str) -> Round:
        """One round; ``word`` stands in this round's text alone. Raises Away, Refused or Leaving.

        Whatever ends it, the document is deleted as far as the gateway can be reached.
        """
        done = Round(slot.partition, slot.document.id, revocation, self._clock.now())
        try:
            self._steps(done, slot, word)
        except BaseException:
            done.outcome = "interrupted"
            with contextlib.suppress(Away, Refused):
                self._writes.send(self._removal(slot))
            raise
        done.outcome = "failed" if done.failures else "ok"
        return done

    def _steps(self, done: Round, slot: Slot, word: str) -> None:
        uid = slot.document.uid
        self._take(done, "found", self._arrival(slot, word), lambda: self._asks.found(slot.reader, uid, word))
        if done.seconds["found"] is None:
            self._writes.send(self._removal(slot))  # what was never seen cannot be seen to vanish
            return
        self._require(done, "kept", "the witness does not find the document", slot, word)
        hidden = self._revocation(slot, done.revocation)
        self._take(done, "hidden", hidden, lambda: not self._asks.shown(slot.reader, uid, word))
        self._stays(done, "hidden", slot.reader, uid, word)
        self._require(done, "kept", "a revocation hid the document from the witness too", slot, word)
        everybody = (self._witness, slot.reader)
        gone = self._removal(slot)
        self._take(done, "gone", gone, lambda: not any(self._asks.shown(user, uid, word) for user in everybody))
        self._stays(done, "gone", self._witness, uid, word)

    # ------------------------------------------------------------ changes

    def _arrival(self, slot: Slot, word: str) -> list[Change]:
        document = slot.document
        return [
            MembershipChange(type="membership", tenant=self._tenant, principal=self._group),
            MembershipChange(type="membership", tenant=self._tenant, principal=self._witness),
            MembershipChange(
                type="membership", tenant=self._tenant, principal=slot.reader, parents=(self._group,)
            ),
            UpsertChange(
                type="upsert",
                tenant=self._tenant,
                kind=document.kind,
                id=document.id,
                title="Canary",
                text=f"# Canary\n\nThe word of this round is {word}.",
                content_type="text/markdown; charset=utf-8",
                updated_at=self._clock.now(),
                access=AccessInput(allow=(self._group, self._witness)),
            ),
        ]  # fmt: skip

    def _revocation(self, slot: Slot, revocation: Revocation) -> list[Change]:
        if revocation == "membership":
            return [MembershipChange(type="membership", tenant=self._tenant, principal=slot.reader)]
        rule = AccessInput(allow=(self._witness,))
        document = slot.document
        return [AccessChange(type="access", tenant=self._tenant, kind=document.kind, id=document.id, access=rule)]

    def _removal(self, slot: Slot) -> list[Change]:
        document = slot.document
        return [
            DeleteChange(type="delete", tenant=self._tenant, kind=document.kind, id=document.id),
            MembershipChange(type="membership", tenant=self._tenant, principal=slot.reader, removed=True),
        ]

    # ------------------------------------------------------------ steps

    def _take(self, done: Round, step: str, changes: list[Change], holds: Callable[[], bool]) -> None:
        """Send the changes and measure until ``holds``."""
        begun = self._clock.elapsed()
        self._writes.send(changes)
        taken = self._until(begun, holds)
        done.seconds[step] = None if taken is None else round(taken, 4)
        if taken is None:
            done.fail(step, f"not within {BOUND_S:.0f} s")

    def _require(self, done: Round, step: str, why: str, slot: Slot, word: str) -> None:
        uid = slot.document.uid
        if self._until(self._clock.elapsed(), lambda: self._asks.found(self._witness, uid, word)) is None:
            done.fail(step, why)

    def _until(self, begun: float, holds: Callable[[], bool]) -> float | None:
        """Seconds from ``begun`` until ``holds``, None when the bound is over.

        A service that is away for a moment is asked again; Away is raised when it still is at the bound.
        """
        while True:
            away: Away | None = None
            try:
                if holds():
                    return self._clock.elapsed() - begun
            except Away as error:
                away = error
            spent = self._clock.elapsed() - begun
            if spent >= BOUND_S:
                if away is not None:
                    raise away
                return None
            quick = spent < QUICK_S and away is None
            self._pause(QUICK_PAUSE_S if quick else SLOW_PAUSE_S)

    def _stays(self, done: Round, step: str, user: str, uid: str, word: str) -> None:
        """What has vanished must not come back."""
        if done.seconds[step] is None:
            return
        end = self._clock.elapsed() + STAYS_S
        while self._clock.elapsed() < end:
            self._pause(SLOW_PAUSE_S)
            with contextlib.suppress(Away):
                if self._asks.shown(user, uid, word):
                    done.fail(step, "it came back")
                    return

    def _pause(self, seconds: float) -> None:
        if self._wait(seconds):
            raise Leaving
