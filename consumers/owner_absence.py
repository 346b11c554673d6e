"""Documents that are no longer there: deleted, or hidden first where their absence may have another reason.

- Seen going (watched): deleted at once; suspiciously many are hidden at once and deleted at a second look.
- Looked for one by one by a complete listing: deleted at once while they are few.
- Only lacking in a complete listing, or suspiciously many: hidden at once, deleted when a complete listing lacks them
  still after the quarantine. A listing that met nothing at all never ends a quarantine.
- An undo keeps them visible until they are seen again, seen going, or a request confirms their deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.ports import SourceDeletion
from pipeline.sources.changes import Change
from pipeline.sources.connector import Connector, Look
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from pipeline.sources.states import QUARANTINE, Known
from pipeline.sources.tally import Tally
from schemas.events import Quarantine
from schemas.keys import DocumentRef


@dataclass
class Settled:
    """What is to be written, deletions first, and what the connector has to be told."""

    changes: list[Change] = field(default_factory=list)
    deleted: list[DocumentRef] = field(default_factory=list)
    held: list[DocumentRef] = field(default_factory=list)
    again: bool = False  # a second look is due soon

    def tell(self, connector: Connector) -> None:
        """First what is deleted, whose places are free then."""
        for document in self.deleted:
            connector.deleted(document)
        for document in self.held:
            connector.held(document)


class Absences:
    """Decides. Used by the thread that owns the ledger."""

    def __init__(
        self, ledger: Ledger, clock: Clock, guard: DeletionGuard, *, quarantine_s: float, second_look_s: float
    ) -> None:
        self._ledger, self._clock, self._guard = ledger, clock, guard
        self._quarantine_us, self._second_look_s = int(quarantine_s * 1e6), second_look_s
        self._condemned: dict[DocumentRef, float] = {}  # seen going: from when on a second look deletes them
        self.alarm: str | None = None  # suspiciously many missing documents, as of the newest listing

    def seen(self, document: DocumentRef) -> None:
        """It is there: its going says nothing of another time."""
        self._condemned.pop(document, None)

    def settle(
        self, look: Look, lacking: list[SourceDeletion], tally: Tally, *, proven: bool, confirmed: bool
    ) -> Settled:
        """``lacking`` are documents that the look did not meet, ``proven`` where each was looked for by itself.

        ``confirmed``: somebody says that what is missing is deleted.
        """
        settled = Settled()
        rest: list[tuple[SourceDeletion, Known]] = []
        for deletion in lacking:
            state = self._live(deletion.document)
            if state is None:
                continue
            tally.note("missing", deletion.document)
            if confirmed or (proven and self._due(deletion.document)):
                self._delete(deletion, tally, settled)
            elif state.quarantine is not None and state.quarantine.overruled and not look.watched:
                tally.why["an undo keeps missing documents visible"] = None
            else:
                rest.append((deletion, state))
        live = self._ledger.live() + len(settled.deleted)
        suspicious = self._guard.suspicious(len(rest), live)
        if suspicious and not look.watched:
            self.alarm = (
                f"{len(rest)} of {live} documents are missing: hidden, not deleted; bring them back, undo it, "
                "or request a listing that confirms the deletions"
            )
            tally.why[self.alarm] = None
        for deletion, state in rest:
            if (proven and not suspicious) or self._served(state, look):
                self._delete(deletion, tally, settled)
            else:
                self._hide(deletion, state, tally, settled, condemned=proven and look.watched)
        return settled

    def count(self, lacking: list[SourceDeletion], tally: Tally) -> None:
        """Only count what is missing."""
        for deletion in lacking:
            if self._live(deletion.document) is not None:
                tally.note("missing", deletion.document)

    def delete(self, deletion: SourceDeletion, tally: Tally, *, force: bool = False) -> Settled:
        """One document that surely is gone; ``force`` says it again of a deleted one."""
        settled = Settled()
        self._delete(deletion, tally, settled, force=force)
        return settled

    # ------------------------------------------------------------ deciding

    def _live(self, document: DocumentRef) -> Known | None:
        state = self._ledger.state(document)
        return None if state is None or state.deleted else state

    def _due(self, document: DocumentRef) -> bool:
        """Whether it was seen going long enough ago."""
        at = self._condemned.get(document)
        return at is not None and self._clock.elapsed() >= at

    def _served(self, state: Known, look: Look) -> bool:
        """Whether its quarantine is over and this look may end it."""
        cause = state.quarantine
        if QUARANTINE not in state.holds or cause is None or not cause.absent or not look.listed:
            return False
        return look.listing and self._clock.now() - cause.since >= self._quarantine_us

    def _delete(self, deletion: SourceDeletion, tally: Tally, settled: Settled, *, force: bool = False) -> None:
        changes = self._ledger.deletion(deletion, force=force)
        if changes:
            tally.note("purged", deletion.document)
            tally.note("repaired", deletion.document)
        settled.changes += changes
        settled.deleted.append(deletion.document)
        self._condemned.pop(deletion.document, None)

    def _hide(self, deletion: SourceDeletion, state: Known, tally: Tally, settled: Settled, *, condemned: bool) -> None:
        document = deletion.document
        cause = Quarantine(since=self._clock.now(), by=tally.id, absent=True)
        settled.changes += self._ledger.hold(document, active=True, reason="missing at the source", quarantine=cause)
        settled.held.append(document)
        if QUARANTINE not in state.holds:
            tally.note("held", document)
            tally.note("repaired", document)
        if condemned:
            self._condemned[document] = self._clock.elapsed() + self._second_look_s
            settled.again = True
