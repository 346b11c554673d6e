"""What a verification of a generation found: the whole report, as it is stored with the generation.

It names documents by their keys and never holds a title, a text or a query made from one: a report outlives the
documents that it speaks of, and erasing them must not have to look here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Micros, OpenModel, Version
from schemas.generation import VerificationSummary
from schemas.keys import DocumentRef

DocumentFault = Literal[
    "missing", "stale", "extra", "undead", "unprocessable", "unlike_rule", "chunk_missing", "chunk_stray",
    "chunk_without_vector", "chunk_wrong_dimension", "chunk_other_readers", "section_missing", "section_stray",
]  # fmt: skip
FAULTS: dict[DocumentFault, str] = {
    "missing": "on the log and not in the generation",
    "stale": "an older version than the log's",
    "extra": "in the generation and not on the log",
    "undead": "deleted on the log and still standing",
    "unprocessable": "cannot be processed here",
    "unlike_rule": "its manifest holds another rule than the access record",
    "chunk_missing": "listed chunks that stand in no tier",
    "chunk_stray": "chunks that no manifest lists",
    "chunk_without_vector": "chunks without a vector",
    "chunk_wrong_dimension": "chunks whose vector has another dimension",
    "chunk_other_readers": "chunks with another pre-filter than their document's",
    "section_missing": "listed sections that do not stand",
    "section_stray": "sections that no manifest lists",
}


class DocumentFinding(OpenModel):
    """One document that is not as it should be. ``count`` counts chunks or sections, where it is about them."""

    fault: DocumentFault
    document: DocumentRef | None = Field(default=None, description="None where only an id is left of it.")
    document_uid: str
    expected: Version | None = None
    found: Version | None = None
    count: int = 1
    detail: str = ""


class SourceCoverage(OpenModel):
    """One source of one tenant: what the log says and what stands. ``faults`` counts documents by fault."""

    tenant: str
    source: str
    documents: int = Field(ge=0, description="Documents that the log says are there.")
    deleted: int = Field(ge=0, description="Documents that the log says are deleted.")
    matched: int = Field(ge=0, description="Of ``documents``, those at the log's version or a newer one.")
    chunks: int = Field(default=0, ge=0, description="Chunks that their manifests list.")
    pending: int = Field(default=0, ge=0, description="Changes that the generation has not read yet.")
    faults: dict[DocumentFault, int] = Field(default_factory=dict)


class Coverage(OpenModel):
    """Every document of the log against every manifest, chunk and section of the generation."""

    sources: tuple[SourceCoverage, ...]
    behind: int = Field(ge=0, description="Records before the log ends that the generation had not applied.")
    vectors_checked: int = Field(default=0, ge=0)
    excused: int = Field(
        default=0, ge=0, description="Of the unprocessable, those that the active generation lacks as well."
    )
    findings: tuple[DocumentFinding, ...] = Field(default=(), description="The first of each fault.")


class PrincipalSample(OpenModel):
    """How many documents one principal sees in each generation."""

    tenant: str
    principal: str
    chosen: Literal["few_groups", "many_groups", "random", "unknown", "removed"]
    principals: int = Field(ge=0, description="Size of the closure; 0 is nobody.")
    here: int = Field(ge=0)
    there: int = Field(ge=0)


class AccessDifference(OpenModel):
    """A document that a principal sees in one of the two generations only, or that a search showed wrongly.

    ``only_here`` and ``only_there`` come from evaluating the rules, ``exposed_…`` and ``unreached_…`` from searches:
    shown without permission, or permitted and found in the other generation only.
    """

    kind: Literal["only_here", "only_there", "exposed_here", "exposed_there", "unreached_here", "unreached_there"]
    tenant: str
    principal: str
    document_uid: str
    document: DocumentRef | None = None
    detail: str = ""


class AccessParity(OpenModel):
    """Sampled principals over all documents, by evaluating the rules and by real searches."""

    seed: int
    documents: int = Field(ge=0)
    decisions: int = Field(ge=0, description="Pairs of principal and document that were decided in each generation.")
    searches: int = Field(ge=0)
    principals: tuple[PrincipalSample, ...]
    difference_count: int = Field(ge=0)
    differences: tuple[AccessDifference, ...] = Field(default=(), description="The first ones.")


class MeanChange(OpenModel):
    """A figure in both generations over the same queries; ``low`` and ``high`` bound the mean difference (95 %)."""

    here: float
    there: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None


class QueryOutcome(OpenModel):
    """One query in both generations. Figures are None where the query has no label or there is no other generation."""

    query: str = Field(description="Id of a golden question, else what the query was made of.")
    tenant: str
    seen_as: str
    hits_here: int = Field(ge=0)
    hits_there: int | None = None
    overlap: float | None = Field(default=None, ge=0, le=1, description="Documents in common among the first 10.")
    same_order: bool | None = Field(default=None, description="Whether the first 10 documents come in equal order.")
    ndcg_here: float | None = None
    ndcg_there: float | None = None
    recall_here: float | None = None
    recall_there: float | None = None
    ms_here: float
    ms_there: float | None = None


class QuerySet(OpenModel):
    """The queries of one kind and what became of them."""

    name: Literal["golden", "known_item"]
    queries: int = Field(ge=0)
    left_out: int = Field(default=0, ge=0, description="Questions about documents that are not indexed here.")
    ndcg: MeanChange | None = None
    recall: MeanChange | None = None
    overlap: float | None = None
    reordered: int = Field(default=0, ge=0, description="Queries with the same documents in another order.")
    outcomes: tuple[QueryOutcome, ...]


class Latency(OpenModel):
    """Milliseconds in the query service, one request at a time."""

    count: int = Field(ge=0)
    p50: float
    p95: float


class RetrievalParity(OpenModel):
    """The same queries in the shadow against both generations."""

    seed: int
    sets: tuple[QuerySet, ...]
    latency_here: Latency | None = None
    latency_there: Latency | None = None
    remarks: tuple[str, ...] = ()


class Thresholds(OpenModel):
    """What was demanded, with the reasons."""

    coverage: str = "Exact: one missing document is one that people no longer find."
    access: str = "Exact: a difference is either a leak or a hidden document."
    smallest_drop: float = Field(description="Drops of nDCG@10 or recall@10 that are smaller do not count.")
    level: float = Field(description="Level of the interval that must lie below 0 as a whole for a drop to count.")
    latency_factor: float = Field(description="p95 may be this many times that of the active generation.")
    latency_floor_ms: float = Field(description="A p95 below this is never too slow.")


class Verdict(OpenModel):
    """Whether the generation may serve. ``failures`` stop it, ``remarks`` do not."""

    passed: bool
    failures: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class VerificationReport(OpenModel):
    """The whole verification of ``generation``, compared with ``against`` where there is another one."""

    schema_version: Literal[1] = 1
    report_id: str
    generation: str
    against: str | None = None
    started_at: Micros
    finished_at: Micros
    log_ends: dict[str, dict[int, int]] = Field(description="By topic and partition: the end that was waited for.")
    verdict: Verdict
    thresholds: Thresholds
    coverage: Coverage
    access: AccessParity | None = Field(default=None, description="None without a generation to compare with.")
    retrieval: RetrievalParity | None = None
    path: str = Field(default="", description="Folder of this report, relative to the state folder.")

    def summary(self) -> VerificationSummary:
        """What the control consumer keeps with the generation."""
        return VerificationSummary(
            report_id=self.report_id,
            passed=self.verdict.passed,
            against=self.against,
            finished_at=self.finished_at,
            failures=tuple(failure[:500] for failure in self.verdict.failures[:20]),
            path=self.path,
        )
