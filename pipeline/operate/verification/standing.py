"""Chunks, sections and vectors against the manifests that list them: all there, none that nobody lists."""

from __future__ import annotations

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.operate.verification.coverage import Side, Tally
from pipeline.operate.verification.expected import Expected, newest
from pipeline.operate.verification.heads import Head, read_heads
from pipeline.operate.verification.means import Means
from schemas.documents import Tier
from schemas.keys import DocumentRef
from schemas.verification import DocumentFault, DocumentFinding

TIERS: tuple[Tier, Tier] = ("hot", "cold")
VECTORS = 2000
"""Chunks of a tenant whose vectors are read; chunk ids are compared for all."""
ROUNDS = 4
ROUND_S = 0.5
BATCH = 200


Readers = tuple[tuple[str, ...], tuple[str, ...]]  # allow, allow2


@dataclass
class _Seen:
    """What the walks met; ``readers`` holds pre-filters that differ from the walked manifest's."""

    chunks: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    sections: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    readers: dict[str, dict[bytes, Readers]] = field(default_factory=lambda: defaultdict(dict))
    suspects: set[str] = field(default_factory=set)


class StandingCheck:
    """Chunks, sections and vectors of one tenant in one generation."""

    def __init__(self, means: Means, expected: Expected, side: Side) -> None:
        self._means = means
        self._store = means.store
        self._logged = expected.of(side.tenant)
        self._side = side
        self._walked = dict(side.heads)

    def run(self, tally: Tally, dimension: int, seed: int) -> None:
        """Walk both tiers and the sections, then look at each suspect. Raises StoreUnavailable, BusUnavailable."""
        seen = self._walk()
        for uid, head in self._walked.items():
            if head.live and (head.chunks - seen.chunks[uid] or head.sections - seen.sections[uid]):
                seen.suspects.add(uid)
        for finding in self._settle(seen, tally.unprocessable):
            tally.find(self._side.tenant, finding)
        self._check_vectors(tally, dimension, seed)

    # ------------------------------------------------------------ walking

    def _walk(self) -> _Seen:
        seen, side = _Seen(), self._side
        for tier in TIERS:
            for chunk in self._store.walk_chunks(side.generation, tier, side.tenant):
                uid, packed = chunk.document_uid, uuid.UUID(chunk.chunk_id).bytes
                seen.chunks[uid].add(packed)
                head = self._walked.get(uid)
                if head is None or (packed not in head.chunks and packed not in head.leaving):
                    seen.suspects.add(uid)
                elif packed in head.chunks and (chunk.allow, chunk.allow2) != _readers(head):
                    seen.readers[uid][packed] = (chunk.allow, chunk.allow2)
                    seen.suspects.add(uid)
        for section_id, uid in self._store.walk_sections(side.generation, side.tenant):
            packed = uuid.UUID(section_id).bytes
            seen.sections[uid].add(packed)
            head = self._walked.get(uid)
            if head is None or (packed not in head.sections and packed not in head.leaving):
                seen.suspects.add(uid)
        return seen

    # ------------------------------------------------------------ judging

    def _settle(self, seen: _Seen, unprocessable: set[str]) -> list[DocumentFinding]:
        """Documents change while they are walked over: only what stays wrong under an unchanged manifest counts."""
        left, found = set(seen.suspects), dict[str, list[DocumentFinding]]()
        for number in range(ROUNDS):
            if left and number:
                self._means.sleep(ROUND_S)
            found = {uid: faults for uid in left if (faults := self._look(seen, uid))}
            left = set(found)
        if not left:
            return []
        # What is being written right now has chunks before its manifest: the log knows of it.
        log = newest(self._means.log, left)
        kept: list[DocumentFinding] = []
        for uid in sorted(left - unprocessable):
            head = self._side.heads.get(uid)
            if log.get(uid, 0) <= (head.manifest.content_version if head is not None else 0):
                kept += found[uid]
        return kept

    def _look(self, seen: _Seen, uid: str) -> list[DocumentFinding]:
        """What is wrong with one document now; nothing where its manifest changes under our eyes."""
        head = self._read(uid)
        document = self._document(uid, head)
        chunks = self._chunks(seen, uid, document)
        sections = self._sections(head, seen.sections[uid])
        if self._read(uid) != head:
            return []
        self._remember(uid, head)
        logged = self._logged.get(uid)
        deleted = head.manifest.deleted if head is not None else logged is not None and logged.deleted
        live = head is not None and head.live
        listed = head.chunks if live and head is not None else frozenset[bytes]()
        passages = head.sections if live and head is not None else frozenset[bytes]()
        leaving = head.leaving if head is not None else frozenset[bytes]()
        kinds: list[tuple[DocumentFault, int, str]] = [
            ("chunk_missing", len(listed - chunks), ""),
            ("chunk_other_readers", self._other_readers(seen, uid, head, listed & chunks), ""),
            ("undead" if deleted else "chunk_stray", len(chunks - listed - leaving), "chunks that stand"),
            ("section_missing", len(passages - sections), ""),
            ("undead" if deleted else "section_stray", len(sections - passages - leaving), "sections that stand"),
        ]
        return [
            DocumentFinding(fault=fault, document=document, document_uid=uid, count=count, detail=detail)
            for fault, count, detail in kinds
            if count
        ]

    def _read(self, uid: str) -> Head | None:
        return read_heads(self._store, self._side.generation, self._side.tenant, [uid]).get(uid)

    def _remember(self, uid: str, head: Head | None) -> None:
        if head is None:
            self._side.heads.pop(uid, None)
        else:
            self._side.heads[uid] = head

    def _document(self, uid: str, head: Head | None) -> DocumentRef | None:
        logged = self._logged.get(uid)
        return head.manifest.document if head is not None else logged.document if logged is not None else None

    def _chunks(self, seen: _Seen, uid: str, document: DocumentRef | None) -> set[bytes]:
        if document is None:
            return seen.chunks[uid]  # only an id is known, by which nothing can be asked
        standing = self._store.chunk_ids_of(self._side.generation, document)
        return {uuid.UUID(chunk_id).bytes for ids in standing.values() for chunk_id in ids}

    def _sections(self, head: Head | None, walked: set[bytes]) -> set[bytes]:
        wanted = sorted(_unpacked(walked | (head.sections if head is not None else frozenset())))
        found: set[bytes] = set()
        for start in range(0, len(wanted), BATCH):
            read = self._store.read_sections(self._side.generation, self._side.tenant, wanted[start : start + BATCH])
            found |= {uuid.UUID(section_id).bytes for section_id in read}
        return found

    def _other_readers(self, seen: _Seen, uid: str, head: Head | None, listed: frozenset[bytes]) -> int:
        """Chunks with another pre-filter, while the manifest kept the one that it had when they were walked over."""
        walked = self._walked.get(uid)
        if head is None or walked is None or _readers(walked) != _readers(head):
            return 0
        return sum(1 for chunk in seen.readers[uid] if chunk in listed)

    # ------------------------------------------------------------ vectors

    def _check_vectors(self, tally: Tally, dimension: int, seed: int) -> None:
        """A seeded sample of the chunks that stand: each has a vector, of the encoder's dimension."""
        sample = self._sample(seed)
        for start in range(0, len(sample), BATCH):
            batch = sample[start : start + BATCH]
            faults = self._vector_faults(batch, dimension)
            if faults:  # a chunk that was just replaced is hidden for a moment
                self._means.sleep(ROUND_S)
                faults = self._vector_faults([pair for pair in batch if pair[1] in faults], dimension)
            tally.vectors += len(batch)
            for uid, kinds in _by_document(batch, faults).items():
                for fault, count in kinds.items():
                    document = self._document(uid, self._side.heads.get(uid))
                    finding = DocumentFinding(fault=fault, document=document, document_uid=uid, count=count)
                    tally.find(self._side.tenant, finding)

    def _sample(self, seed: int) -> list[tuple[str, str]]:
        """(document uid, chunk id), documents in a seeded order until there are VECTORS."""
        uids = sorted(uid for uid, head in self._side.heads.items() if head.live)
        random.Random(f"{seed} {self._side.tenant}").shuffle(uids)
        found: list[tuple[str, str]] = []
        for uid in uids:
            if len(found) >= VECTORS:
                break
            found += [(uid, chunk_id) for chunk_id in sorted(_unpacked(self._side.heads[uid].chunks))]
        return found[:VECTORS]

    def _vector_faults(self, batch: Sequence[tuple[str, str]], dimension: int) -> dict[str, DocumentFault]:
        """By chunk id. A chunk that does not stand at all was counted already, or has gone since."""
        side = self._side
        vectors = self._store.read_vectors(side.generation, side.tenant, [chunk_id for _, chunk_id in batch])
        without = {uid for uid, chunk_id in batch if chunk_id not in vectors}
        standing = {uid: self._still(uid) for uid in without}
        faults: dict[str, DocumentFault] = {}
        for uid, chunk_id in batch:
            if chunk_id not in vectors:
                if uuid.UUID(chunk_id).bytes in standing[uid]:
                    faults[chunk_id] = "chunk_without_vector"
            elif vectors[chunk_id].shape != (dimension,):
                faults[chunk_id] = "chunk_wrong_dimension"
        return faults

    def _still(self, uid: str) -> set[bytes]:
        head = self._read(uid)
        if head is None or not head.live:
            return set()
        return self._chunks(_Seen(), uid, head.manifest.document) & head.chunks


def _readers(head: Head) -> Readers:
    return head.manifest.allow, head.manifest.allow2


def _unpacked(ids: Iterable[bytes]) -> list[str]:
    return [str(uuid.UUID(bytes=one)) for one in ids]


def _by_document(
    batch: Sequence[tuple[str, str]], faults: Mapping[str, DocumentFault]
) -> dict[str, Counter[DocumentFault]]:
    found: dict[str, Counter[DocumentFault]] = defaultdict(Counter)
    for uid, chunk_id in batch:
        if chunk_id in faults:
            found[uid][faults[chunk_id]] += 1
    return found
