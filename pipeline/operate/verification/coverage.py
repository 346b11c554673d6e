"""Every document of the log against the manifests of a generation: present at its version, none extra, none undead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.bus.folding import UNREADABLE
from pipeline.operate.verification.expected import Expected, Letters, Logged, excuse
from pipeline.operate.verification.heads import Head, read_heads
from pipeline.operate.verification.means import Ends, Means
from schemas.documents import AccessRecord
from schemas.keys import DocumentRef, partition_of
from schemas.topics import Topic
from schemas.verification import Coverage, DocumentFault, DocumentFinding, SourceCoverage

SHOWN = 50
"""Findings of one fault that a report lists; all are counted."""

Fault = tuple[DocumentFault, str]  # with the detail


@dataclass
class Line:
    """Counts of one source, while they are made."""

    documents: int = 0
    deleted: int = 0
    matched: int = 0
    chunks: int = 0
    pending: int = 0
    faults: Counter[DocumentFault] = field(default_factory=Counter)


@dataclass
class Tally:
    """Counts by source, findings by fault, and which documents are excused."""

    sources: dict[tuple[str, str], Line] = field(default_factory=dict)
    findings: dict[DocumentFault, list[DocumentFinding]] = field(default_factory=dict)
    counted: Counter[DocumentFault] = field(default_factory=Counter)
    unprocessable: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    vectors: int = 0

    def source(self, tenant: str, source: str) -> Line:
        """The line of a source."""
        return self.sources.setdefault((tenant, source), Line())

    def find(self, tenant: str, finding: DocumentFinding) -> None:
        """Count one."""
        self.counted[finding.fault] += 1
        line = self.source(tenant, finding.document.source if finding.document is not None else "?")
        line.faults[finding.fault] += 1
        listed = self.findings.setdefault(finding.fault, [])
        if len(listed) < SHOWN:
            listed.append(finding)

    def coverage(self, behind: int) -> Coverage:
        """The section of the report."""
        return Coverage(
            sources=tuple(
                SourceCoverage(
                    tenant=tenant,
                    source=source,
                    documents=line.documents,
                    deleted=line.deleted,
                    matched=line.matched,
                    chunks=line.chunks,
                    pending=line.pending,
                    faults=dict(line.faults),
                )
                for (tenant, source), line in sorted(self.sources.items())
            ),
            behind=behind,
            vectors_checked=self.vectors,
            excused=len(self.excused),
            findings=tuple(f for fault in sorted(self.findings) for f in self.findings[fault]),
        )


@dataclass(frozen=True)
class Side:
    """One generation of one tenant as it is compared."""

    generation: str
    tenant: str
    heads: dict[str, Head]
    applied: Mapping[int, int]  # of content, by partition


class DocumentCheck:
    """Documents of one tenant in one generation. ``against`` excuses what it cannot hold either."""

    def __init__(
        self, means: Means, expected: Expected, ends: Ends, letters: Letters, side: Side, against: str | None
    ) -> None:
        self._means = means
        self._logged = expected.of(side.tenant)
        self._later = expected.later
        self._ends = ends[str(Topic.CONTENT)]
        self._letters = letters
        self._side = side
        self._against = against

    def run(self, tally: Tally) -> None:
        """Compare; what differs is read once more before it is counted, since documents go on changing.

        Raises StoreUnavailable.
        """
        side = self._side
        pending = {uid for uid, one in self._logged.items() if one.offset >= side.applied.get(one.partition, 0)}
        suspects = [uid for uid in {*self._logged, *side.heads} - pending if self._judge(uid) is not None]
        fresh = read_heads(self._means.store, side.generation, side.tenant, suspects)
        for uid in suspects:
            side.heads.pop(uid, None)
        side.heads.update(fresh)
        faults = {uid: fault for uid in suspects if (fault := self._judge(uid)) is not None}
        self._count(tally, pending, faults)
        for uid, fault in sorted(faults.items()):
            self._find(tally, uid, fault)

    def _judge(self, uid: str) -> Fault | None:
        logged, head = self._logged.get(uid), self._side.heads.get(uid)
        if logged is None:
            return self._unlogged(head)
        if logged.unreadable is not None:
            return "unprocessable", ""
        version = head.manifest.content_version if head is not None else 0
        if logged.deleted:
            alive = head is not None and head.live and version <= logged.version
            return ("undead", "its manifest is live") if alive else None
        if head is None or version == 0:
            return "missing", ""
        if version < logged.version:
            return "stale", ""
        if head.manifest.deleted and not self._newer(uid, head):
            return "missing", "its manifest says deleted"
        return ("chunk_missing", head.broken) if head.broken else None

    def _unlogged(self, head: Head | None) -> Fault | None:
        if head is None or not head.live or self._newer(head.uid, head):
            return None
        return "extra", ""

    def _newer(self, uid: str, head: Head) -> bool:
        """Whether the manifest may come from an event behind the ends."""
        return uid in self._later or head.manifest.content_offset >= self._ends.get(self._partition(uid, head), 0)

    def _partition(self, uid: str, head: Head) -> int:
        logged = self._logged.get(uid)
        return logged.partition if logged else partition_of(head.manifest.document.key, max(1, len(self._ends)))

    def _count(self, tally: Tally, pending: set[str], faults: Mapping[str, Fault]) -> None:
        for uid, one in self._logged.items():
            line = tally.source(self._side.tenant, one.document.source)
            head = self._side.heads.get(uid)
            if one.deleted:
                line.deleted += 1
            else:
                line.documents += 1
                line.matched += uid not in pending and uid not in faults
            line.pending += uid in pending
            line.chunks += head.manifest.chunk_total if head is not None and head.live else 0

    def _find(self, tally: Tally, uid: str, fault: Fault) -> None:
        kind, detail = fault
        logged, head = self._logged.get(uid), self._side.heads.get(uid)
        if logged is not None and kind in ("missing", "stale", "unprocessable"):
            reason = excuse(logged, self._side.generation, self._letters, self._means.bodies)
            if reason:
                kind, detail = "unprocessable", reason
                tally.unprocessable.add(uid)
                if self._against is None or self._lacks(logged):
                    tally.excused.add(uid)
                    detail += ", as in the active generation" if self._against is not None else ""
        tally.find(
            self._side.tenant,
            DocumentFinding(
                fault=kind,
                document=logged.document if logged is not None else _document(head),
                document_uid=uid,
                expected=logged.version if logged is not None else None,
                found=head.manifest.content_version if head is not None else None,
                detail=detail,
            ),
        )

    def _lacks(self, logged: Logged) -> bool:
        """Whether the generation that is compared with does not hold the document's last event either."""
        assert self._against is not None
        uid = logged.document.uid
        head = read_heads(self._means.store, self._against, logged.document.tenant, [uid]).get(uid)
        held = head is not None and head.live and head.manifest.content_version >= max(1, logged.version)
        return not held or logged.unreadable is not None


def _document(head: Head | None) -> DocumentRef | None:
    return head.manifest.document if head is not None else None


def check_rules(side: Side, records: Mapping[str, AccessRecord], tally: Tally) -> None:
    """Manifests that saw the access record's version hold its rule, and the pre-filter that follows from it."""
    for uid, head in side.heads.items():
        manifest, record = head.manifest, records.get(uid)
        if not head.live:
            continue
        detail = ""
        same = record is not None and record.version == manifest.seen_access_version and not record.tombstone
        readable = record is not None and not any(hold.startswith(UNREADABLE) for hold in record.holds)
        paired = manifest.seen_content_version <= manifest.content_version
        allow, allow2 = manifest.seen_rule.prefilter()
        if same and readable and record is not None and manifest.seen_rule != record.rule:
            detail = "the rule that it saw is not the access record's"
        elif paired and manifest.rule != manifest.seen_rule:
            detail = "the rule of its content is not the one that it saw"
        elif manifest.chunk_total and (manifest.allow, manifest.allow2) != (tuple(allow), tuple(allow2)):
            detail = "its pre-filter does not follow from its rule"
        if detail:
            finding = DocumentFinding(
                fault="unlike_rule", document=manifest.document, document_uid=uid, detail=detail,
                expected=record.version if record is not None else None, found=manifest.seen_access_version,
            )  # fmt: skip
            tally.find(side.tenant, finding)
