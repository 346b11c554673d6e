"""What can be asked of a source's owner. Nothing is written here: the owner does it and answers (invariant 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from pipeline.errors import ConfigError
from pipeline.operate.asking import Declined, Owners, conversation, request
from pipeline.ports import ProgressBar
from pipeline.settings import Settings
from schemas.keys import DocumentRef
from schemas.reconciliation import ReconciliationReport

SHORT_S = 120.0
"""How long to wait for what an owner does at once."""


def quiet(step: str, done: int, total: int | None) -> None:
    """Progress that nobody looks at."""


@dataclass
class Requester:
    """Asks owners. Each method raises Declined, Unanswered or BusUnavailable. ``asking`` makes the real one."""

    owners: Owners
    configured: Callable[[str, str], bool]  # whether this tenant's source has an owner by the settings

    def listing(
        self,
        tenant: str,
        source: str,
        *,
        repair: bool = True,
        confirm_deletions: bool = False,
        requested_by: str | None = None,
        timeout_s: float = 3600.0,
        progress: ProgressBar = quiet,
    ) -> ReconciliationReport:
        """The owner lists everything; without ``repair`` it only counts."""
        more = {"repair": repair, "confirm_deletions": confirm_deletions}
        return self._ask("listing", tenant, source, requested_by, timeout_s, progress, **more)

    def backfill(
        self,
        tenant: str,
        source: str,
        *,
        updated_from: int | None = None,
        updated_until: int | None = None,
        requested_by: str | None = None,
        timeout_s: float = 86_400.0,
        progress: ProgressBar = quiet,
    ) -> ReconciliationReport:
        """The owner appends again what was updated in the window (µs), as bulk."""
        if updated_from is not None and updated_until is not None and updated_until <= updated_from:
            raise ConfigError("until", "is not later than from", "Give a window with a beginning and a later end.")
        window = {"updated_from": updated_from, "updated_until": updated_until}
        return self._ask("backfill", tenant, source, requested_by, timeout_s, progress, **window)

    def reset(
        self,
        tenant: str,
        source: str,
        *,
        requested_by: str | None = None,
        timeout_s: float = 86_400.0,
        progress: ProgressBar = quiet,
    ) -> ReconciliationReport:
        """The owner forgets its place at the source and reads every document again; it appends what differs."""
        return self._ask("reset", tenant, source, requested_by, timeout_s, progress)

    def pause(self, tenant: str, source: str, *, requested_by: str | None = None) -> ReconciliationReport:
        """Nothing is read from the source until it is resumed, not even after a restart of the owner."""
        return self._ask("pause", tenant, source, requested_by, SHORT_S, quiet)

    def resume(self, tenant: str, source: str, *, requested_by: str | None = None) -> ReconciliationReport:
        """The source is read again, beginning with a listing."""
        return self._ask("resume", tenant, source, requested_by, SHORT_S, quiet)

    def document(
        self, document: DocumentRef, *, confirm_deletion: bool = False, requested_by: str | None = None
    ) -> ReconciliationReport:
        """The owner reads one document and says all of it again."""
        more = {"document": document, "confirm_deletions": confirm_deletion}
        return self._ask("document", document.tenant, document.source, requested_by, SHORT_S, quiet, **more)

    def undo(
        self, tenant: str, source: str, of_request: str, *, requested_by: str | None = None
    ) -> ReconciliationReport:
        """Lift every hold that one listing laid on."""
        return self._ask("undo", tenant, source, requested_by, SHORT_S, quiet, of_request=of_request)

    def lift(
        self,
        document: DocumentRef,
        hold: Literal["quarantine", "legal", "administrator"],
        *,
        requested_by: str | None = None,
    ) -> ReconciliationReport:
        """Lift one hold of one document."""
        more = {"document": document, "hold": hold}
        return self._ask("lift_hold", document.tenant, document.source, requested_by, SHORT_S, quiet, **more)

    def _ask(
        self,
        type_: str,
        tenant: str,
        source: str,
        requested_by: str | None,
        timeout_s: float,
        progress: ProgressBar,
        **more: object,
    ) -> ReconciliationReport:
        if not self.configured(tenant, source):
            raise Declined(
                f"Source {source} of {tenant} has no owner process: it is not among the configured sources.",
                "Name one of `headwater sources list`. What comes through the change gateway is sent again by its "
                "sender; a source that was taken out of the settings is ended by `headwater sources remove`.",
            )
        try:
            asked = request(type_, tenant, source, clock=self.owners.clock, requested_by=requested_by, **more)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or type_
            raise ConfigError(field, str(first["msg"]), "Correct it and ask again.") from error
        return self.owners.ask(asked, timeout_s=timeout_s, progress=progress).accepted()


@contextmanager
def asking(settings: Settings) -> Iterator[Requester]:
    """On Kafka. Raises BusUnavailable."""
    own = {(s.tenant, s.name) for s in settings.sources}
    with conversation(settings) as owners:
        yield Requester(owners, configured=lambda tenant, source: (tenant, source) in own)
