"""Dead letters as operators meet them: what is still unsettled, how much of it, and what grew.

The topic holds records of failures and of settlements; several records may speak of one failure (tried again, failed
again, discarded). A letter counts until somebody settles it, or until the store shows that its document went on: a
newer event was processed, or the same one was, by a replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pydantic import Field, ValidationError

from pipeline.ports import IndexStore, Record
from pipeline.settings import Settings
from schemas.base import ClosedModel, Micros
from schemas.documents import AccessRecord, Manifest
from schemas.keys import DocumentRef
from schemas.receipts import DeadLetter, Lane
from schemas.topics import Topic

PAGE = 200


@dataclass(frozen=True)
class Letter:
    """One failure: its newest record, with what its earlier records add. Times in microseconds."""

    newest: DeadLetter
    attempts: int  # of all its records together
    first_failed_at: int

    @property
    def name(self) -> str:
        """Coordinates as commands spell them: ``content/3/1042``."""
        at = self.newest.coordinates
        return f"{at.topic}/{at.partition}/{at.offset}"

    @property
    def tenant(self) -> str | None:
        """Tenant, where the record named a document."""
        return self.newest.document.tenant if self.newest.document is not None else None

    @property
    def source(self) -> str | None:
        """Source, where the record named a document."""
        return self.newest.document.source if self.newest.document is not None else None


class LetterGroup(ClosedModel):
    """Letters that fail alike."""

    tenant: str | None
    source: str | None
    lane: Lane
    generation: str | None
    stage: str
    kind: str
    count: int = Field(ge=1)
    parked: int = Field(ge=0, description="Of these: not tried, because the source is parked.")
    oldest_at: Micros
    newest_at: Micros


class LetterDepth(ClosedModel):
    """Unsettled letters now."""

    at: Micros
    total: int = Field(ge=0)
    groups: tuple[LetterGroup, ...] = ()

    def by_kind(self) -> dict[str, int]:
        """Counts by ``tenant/source: stage/kind``; what names no document counts as ``-``."""
        counts: Counter[str] = Counter()
        for group in self.groups:
            counts[f"{group.tenant or '-'}/{group.source or '-'}: {group.stage}/{group.kind}"] += group.count
        return dict(sorted(counts.items()))


class ParkedSource(ClosedModel):
    """A source whose content mostly failed: events that came meanwhile were set aside without being tried."""

    tenant: str
    source: str
    generation: str | None
    letters: int = Field(ge=1)
    since: Micros
    newest_at: Micros


# ---------------------------------------------------------------- pure


@dataclass
class _Folding:
    newest: DeadLetter
    attempts: int = 0
    first: int = 0


def fold(records: Iterable[Record]) -> list[Letter]:
    """Unsettled letters, oldest first, from the topic's records in order. What cannot be read is passed by."""
    known: dict[tuple[str, str | None, str, int, int], _Folding] = {}
    for record in records:
        try:
            letter = DeadLetter.model_validate_json(record.value or b"")
        except ValidationError:
            continue
        at = letter.coordinates
        key = (letter.lane, letter.generation, at.topic, at.partition, at.offset)
        if letter.settled is not None:
            known.pop(key, None)
            continue
        before = known.setdefault(key, _Folding(letter, 0, letter.failed_at))
        version = letter.version if letter.version is not None else before.newest.version
        before.newest = letter.model_copy(update={"version": version})
        before.attempts += letter.attempts
    found = [Letter(f.newest, f.attempts, f.first) for f in known.values()]
    return sorted(found, key=lambda letter: (letter.first_failed_at, letter.name))


def overtaken(letter: DeadLetter, manifest: Manifest | None, access: AccessRecord | None) -> bool:
    """Whether the document went on since: what failed, or something newer, is processed by now."""
    at, version = letter.coordinates, letter.version
    if letter.lane == "access":
        return access is not None and version is not None and access.version > version
    if manifest is None or letter.lane != "index":
        return False
    if at.topic == Topic.CONTENT:
        again = manifest.content_offset == at.offset and manifest.indexed_at >= letter.failed_at
        return manifest.content_offset > at.offset or again
    if at.topic == Topic.CURSORS:  # refused by its owner: there is no content event
        return version is not None and manifest.content_version >= version
    return False


def grouped(letters: Sequence[Letter]) -> tuple[LetterGroup, ...]:
    """Letters that fail alike together, the largest group first."""
    groups: dict[tuple[str | None, str | None, Lane, str | None, str, str], list[Letter]] = {}
    for letter in letters:
        newest = letter.newest
        kind = (letter.tenant, letter.source, newest.lane, newest.generation, newest.stage, newest.error_kind)
        groups.setdefault(kind, []).append(letter)
    made = [
        LetterGroup(
            tenant=tenant,
            source=source,
            lane=lane,
            generation=generation,
            stage=stage,
            kind=kind,
            count=len(found),
            parked=sum(letter.newest.parked for letter in found),
            oldest_at=min(letter.first_failed_at for letter in found),
            newest_at=max(letter.newest.failed_at for letter in found),
        )
        for (tenant, source, lane, generation, stage, kind), found in groups.items()
    ]
    return tuple(sorted(made, key=lambda g: (-g.count, g.oldest_at, g.stage, g.kind)))


def growth(before: LetterDepth, now: LetterDepth) -> dict[str, int]:
    """By ``LetterDepth.by_kind``: how many more there are than before; kinds that did not grow are absent."""
    known = before.by_kind()
    more = {kind: count - known.get(kind, 0) for kind, count in now.by_kind().items()}
    return {kind: count for kind, count in more.items() if count > 0}


def parked(letters: Sequence[Letter]) -> list[ParkedSource]:
    """Sources that have letters of a parked source, by tenant, source and generation."""
    found: dict[tuple[str, str, str | None], list[Letter]] = {}
    for letter in letters:
        if letter.newest.parked and letter.tenant is not None and letter.source is not None:
            found.setdefault((letter.tenant, letter.source, letter.newest.generation), []).append(letter)
    return [
        ParkedSource(
            tenant=tenant,
            source=source,
            generation=generation,
            letters=len(of_source),
            since=min(letter.first_failed_at for letter in of_source),
            newest_at=max(letter.newest.failed_at for letter in of_source),
        )
        for (tenant, source, generation), of_source in sorted(found.items(), key=lambda item: str(item[0]))
    ]


# ---------------------------------------------------------------- reading


def unsettled(letters: Sequence[Letter], store: IndexStore) -> list[Letter]:
    """Those that still count. Letters of generations that are retired or gone count no longer: nobody will try them.

    Raises StoreUnavailable.
    """
    generations = {name for name, g in store.read_generations().items() if g.state != "retired"}
    active = store.active_generation()
    wanted: dict[tuple[str, str], set[str]] = {}  # (generation, tenant) -> uids; '' is the access lane
    for letter in letters:
        document = letter.newest.document
        if document is not None:
            place = "" if letter.newest.lane == "access" else letter.newest.generation or active or ""
            wanted.setdefault((place, document.tenant), set()).add(document.uid)
    manifests: dict[tuple[str, str], Manifest] = {}
    access: dict[str, AccessRecord] = {}
    for (generation, tenant), uids in wanted.items():
        for page in _pages(sorted(uids)):
            if generation in generations:
                read = store.read_manifests(generation, tenant, page)
                manifests.update(((generation, uid), manifest) for uid, manifest in read.items())
            elif not generation:
                access.update(store.read_access(tenant, page))
    return [letter for letter in letters if _counts(letter, generations, active, manifests, access)]


def _counts(
    letter: Letter,
    generations: set[str],
    active: str | None,
    manifests: Mapping[tuple[str, str], Manifest],
    access: Mapping[str, AccessRecord],
) -> bool:
    newest = letter.newest
    if newest.generation is not None and newest.generation not in generations:
        return False
    if newest.document is None:
        return True
    uid = newest.document.uid
    return not overtaken(newest, manifests.get((newest.generation or active or "", uid)), access.get(uid))


def _pages(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(ids), PAGE):
        yield ids[start : start + PAGE]


def read(settings: Settings, store: IndexStore) -> list[Letter]:
    """Unsettled letters, oldest first. Raises BusUnavailable or StoreUnavailable."""
    from pipeline.bus.tail import read_compacted

    return unsettled(fold(read_compacted(settings, Topic.DEAD_LETTER)), store)


def of_document(settings: Settings, document: DocumentRef) -> list[Letter]:
    """Letters of one document that nobody settled, overtaken ones included. Raises BusUnavailable."""
    from pipeline.bus.tail import read_compacted
    from schemas.keys import partition_of

    place = partition_of(document.key, settings.kafka.partitions)
    found = fold(read_compacted(settings, Topic.DEAD_LETTER, partitions=[place]))
    return [letter for letter in found if letter.newest.document == document]


def depth(settings: Settings, store: IndexStore | None = None) -> LetterDepth:
    """How many letters are unsettled, and of what kind. Raises BusUnavailable or StoreUnavailable."""
    from pipeline.clock import SystemClock

    at = SystemClock().now()
    if store is not None:
        return _depth(at, read(settings, store))
    from pipeline.index.store import WeaviateStore

    with closing(WeaviateStore(settings)) as opened:
        return _depth(at, read(settings, opened))


def _depth(at: int, letters: Sequence[Letter]) -> LetterDepth:
    return LetterDepth(at=at, total=len(letters), groups=grouped(letters))
