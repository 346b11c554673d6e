"""Admission once more, after texts were read: by records read then and a closure confirmed then (invariant 3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from query_service.admit import admit_document
from query_service.overlay import Overlay
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.documents import Manifest
from schemas.generation import Generation

Confirm = Callable[[], Awaitable[Closure]]
Version = tuple[str, int]  # document uid, content version


@dataclass(frozen=True)
class Asked:
    """What a request may see, and until when it may be looked for (monotonic s)."""

    generation: Generation
    narrowing: Narrowing
    closure: Closure
    confirm: Confirm
    deadline: float

    @property
    def tenant(self) -> str:
        """The caller's own."""
        return self.narrowing.tenant


def version_of(manifest: Manifest) -> Version:
    """What was admitted: a document in one version."""
    return manifest.document.uid, manifest.content_version


class Gate:
    """One for the process."""

    def __init__(self, reader: IndexReader, overlay: Overlay, clock: Clock) -> None:
        self._reader = reader
        self._overlay = overlay
        self._clock = clock

    def moment(self, asked: Asked) -> int:
        """At which documents are to be in effect (µs): the one asked for, else now."""
        return self._clock.now() if asked.narrowing.as_of is None else asked.narrowing.as_of

    async def readable(
        self, asked: Asked, manifests: Iterable[Manifest], closure: Closure | None = None
    ) -> set[Version]:
        """Those that the caller may read now. Without ``closure`` by one confirmed after the records were read, which
        is what a last check needs. Raises StoreUnavailable."""
        standing = list(manifests)
        uids = sorted({manifest.document.uid for manifest in standing})
        if not uids:
            return set()
        records = await self._reader.access(asked.tenant, uids)
        if closure is None:
            closure = await asked.confirm()
        now = self._clock.now()
        admitted: set[Version] = set()
        for manifest in standing:
            uid = manifest.document.uid
            record = self._overlay.access(uid, records.get(uid))
            if admit_document(manifest, record, closure, asked.narrowing, now) is None:
                admitted.add(version_of(manifest))
        return admitted
