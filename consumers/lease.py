"""Leases: until when this process may write for a partition (invariant 1).

The broker keeps a member for one session after it received a heartbeat. A lease counts the same time from when the
newest *confirmed* heartbeat was *sent*, less a margin, on a clock that runs on while process or machine is
suspended; so it always ends before the broker can give the partition to another member.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pipeline.clock import Clock
from pipeline.errors import LeaseLost
from pipeline.ports import Deadline, Outgoing, Publisher
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef, membership_key
from schemas.topics import Topic


class EndedLate(LeaseLost):
    """A write ended after the lease: it may have overtaken the new owner's. A recheck must be asked for first."""


class NotSent(LeaseLost):
    """The lease had ended (or nearly) before the write was sent: nothing was written."""


def margin_of(session_s: float) -> float:
    """Seconds kept back from a session for transit and clock granularity: a sixth, at most a second."""
    return min(1.0, session_s / 6)


class Lease:
    """The lease of one partition for one assignment. Implements ``pipeline.ports.Deadline``; thread-safe.

    ``confirmed`` gives ``clock.elapsed()`` at the sending of the newest confirmed heartbeat, None where there was
    none. ``before_write`` is a hook for fault tests that stop the process between check and send.
    """

    def __init__(
        self,
        confirmed: Callable[[], float | None],
        *,
        clock: Clock,
        session_s: float,
        timeout_s: float,
        partition: int = -1,
        before_write: Callable[[], None] | None = None,
    ) -> None:
        self._confirmed = confirmed
        self._clock = clock
        self._span = session_s - margin_of(session_s)
        self._timeout = timeout_s
        self._partition = partition
        self._before_write = before_write
        self._lock = threading.Lock()
        self._given_up = False
        # A write needs a little time; with less left it is not sent at all.
        self._least = min(0.05, self._span / 20)

    def left(self) -> float:
        """Seconds until the lease ends; 0 or less when it has ended, is given up or was never confirmed."""
        with self._lock:
            if self._given_up:
                return 0.0
        confirmed = self._confirmed()
        if confirmed is None:
            return 0.0
        return confirmed + self._span - self._clock.elapsed()

    def remaining(self) -> float:
        """Seconds that a write may take. Raises NotSent (a LeaseLost) when nothing is left."""
        left = self.left()
        if left < self._least:
            raise NotSent(f"the lease of partition {self._partition} has ended; the write was not sent")
        if self._before_write is not None:
            self._before_write()
        return min(left, self._timeout)

    def check_ended(self) -> None:
        """Call after a write. Raises EndedLate (a LeaseLost) when it ended after the lease."""
        if self.left() <= 0:
            raise EndedLate(f"a write for partition {self._partition} ended after its lease")

    def give_up(self) -> None:
        """End the lease for good: the partition is revoked."""
        with self._lock:
            self._given_up = True

    @property
    def given_up(self) -> bool:
        """Whether the partition was revoked."""
        with self._lock:
            return self._given_up


class JointLease:
    """Several partitions' leases as one deadline, for a write that carries records of all of them."""

    def __init__(self, leases: Iterable[Deadline]) -> None:
        self._leases = list(dict.fromkeys(leases))

    def remaining(self) -> float:
        """The shortest of them. Raises LeaseLost when one has ended."""
        return min(lease.remaining() for lease in self._leases)

    def check_ended(self) -> None:
        """Raises LeaseLost when the write ended after one of them."""
        for lease in self._leases:
            lease.check_ended()


PRINCIPALS = "-membership"
"""Source of the stand-in document by which a recheck names a principal: its kind is 'principal', its id the name."""


def principal_document(tenant: str, principal: str) -> DocumentRef:
    """The stand-in document of a principal; it lies on the partition of the principal's membership record."""
    return DocumentRef(tenant=tenant, source=PRINCIPALS, kind="principal", id=principal)


class Rechecks:
    """Documents whose write ended late, and the requests to the partition's present owner to look at them again.

    Anyone may send such a request: it appends no content or access event. ``generation`` narrows it to one view
    (``ACCESS_ONLY`` for the access lane); None asks all.
    """

    def __init__(self, publisher: Publisher, clock: Clock, generation: str | None) -> None:
        self._publisher = publisher
        self._clock = clock
        self._generation = generation
        self._owed: dict[str, DocumentRef] = {}
        self._lock = threading.Lock()

    def owe(self, documents: Iterable[DocumentRef]) -> None:
        """Remember documents; they are asked for before anything else is done."""
        with self._lock:
            self._owed |= {document.key: document for document in documents}

    def owed(self) -> list[str]:
        """Keys of documents not yet asked for."""
        with self._lock:
            return list(self._owed)

    def settle(self) -> None:
        """Ask for all that is owed. Raises BusUnavailable; then it stays owed."""
        with self._lock:
            documents = list(self._owed.values())
        if not documents:
            return
        self._publisher.publish([self._request(document) for document in documents])
        with self._lock:
            for document in documents:
                self._owed.pop(document.key, None)

    def _request(self, document: DocumentRef) -> Outgoing:
        command = MaintenanceCommand(
            type="recheck",
            document=document,
            generation=self._generation,
            requested_at=self._clock.now(),
            priority="live",
        )
        partition_key = document.key
        if document.source == PRINCIPALS:
            partition_key = membership_key(document.tenant, document.id)
        value = command.model_dump_json().encode("utf-8")
        return Outgoing(str(Topic.MAINTENANCE), document.key, value, partition_key=partition_key)
