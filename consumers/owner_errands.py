"""Requests that an owner serves at once: one document, one hold, an undo."""

from __future__ import annotations

from collections.abc import Callable

from consumers.owner_absence import Absences
from consumers.owner_jobs import Job
from pipeline.clock import Clock
from pipeline.ports import SourceDeletion
from pipeline.sources.changes import Change
from pipeline.sources.connector import Connector, Look, Seen
from pipeline.sources.ledger import Ledger
from pipeline.sources.states import QUARANTINE, HoldName
from pipeline.sources.tally import Tally
from schemas.events import SourceRequest
from schemas.keys import DocumentRef


class Errands:
    """Used by the owner's thread. ``observe`` and ``write`` are the owner's own."""

    def __init__(
        self,
        ledger: Ledger,
        connector: Connector,
        absences: Absences,
        clock: Clock,
        observe: Callable[[Seen, Job, list[Change]], list[Change]],
        write: Callable[[list[Change]], int],
    ) -> None:
        self._ledger, self._connector, self._absences = ledger, connector, absences
        self._clock, self._observe, self._write = clock, observe, write

    def serve(self, request: SourceRequest, tally: Tally) -> str | None:
        """Do what is asked at once; why it is refused, None where it is done."""
        if request.type == "undo":
            self._undo(request, tally)
            return None
        if request.type == "notify":
            self._connector.notify(request.document)
            return None
        document = request.document
        if document is None or (document.tenant, document.source) != (self._ledger.tenant, self._ledger.source):
            return "document: must name a document of this source"
        if request.type == "lift_hold":
            if request.hold is None:
                return "hold: must say which"
            self._lift([document], request.hold, f"lifted by request {request.request_id}", tally)
            return None
        return self._document(document, request, tally)

    def _undo(self, request: SourceRequest, tally: Tally) -> None:
        held = [
            document
            for document, known in self._ledger.states()
            if QUARANTINE in known.holds and known.quarantine is not None and known.quarantine.by == request.of_request
        ]
        self._lift(held, QUARANTINE, f"undone by request {request.request_id}", tally)
        if held:
            self._absences.alarm = None
        else:
            tally.why[f"no hold that {request.of_request} laid on stands"] = None

    def _lift(self, documents: list[DocumentRef], name: HoldName, reason: str, tally: Tally) -> None:
        changes: list[Change] = []
        for document in documents:
            if name == QUARANTINE:
                lifted = self._ledger.overrule(document, reason)
                self._connector.held(document)  # it is still in doubt: to be read when it is met
            else:
                lifted = self._ledger.hold(document, active=False, reason=reason, name=name)
            if lifted:
                tally.note("released", document)
                tally.note("repaired", document)
            changes += lifted
        self._write(changes)

    def _named(self, document: DocumentRef) -> DocumentRef:
        """The document that is meant: people know the path of one rather than its id."""
        if self._ledger.state(document) is not None:
            return document
        same = [d for d, known in self._ledger.states() if known.path == document.id and not known.deleted]
        return same[0] if len(same) == 1 else document

    def _document(self, document: DocumentRef, request: SourceRequest, tally: Tally) -> str | None:
        """One document as it is now, all of it said again."""
        document = self._named(document)
        seen = self._connector.read(document)
        state = self._ledger.state(document)
        if seen is None:
            if state is not None and not state.deleted:
                return "document: cannot be said to be there or gone; ask again when its source answers"
            if not request.confirm_deletions:
                return (
                    f"document: no {document.kind} {document.id!r} is known at the source; ids stand in the field "
                    "document_id of `headwater search --json`"
                )
            seen = SourceDeletion(document, reason="not known at the source")
        if isinstance(seen, SourceDeletion):
            settled = self._absences.delete(seen, tally, force=True)
            settled.tell(self._connector)
            self._write(settled.changes)
            return None
        look = Look(self._clock.now(), iter(()))
        self._write(self._observe(seen, Job(look, "live", tally, "again"), []))
        self._write(self._ledger.restate_holds(document))
        return None
