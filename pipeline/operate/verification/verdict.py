"""Whether the generation may serve, in sentences. The thresholds stand here with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pipeline.operate.verification.retrieval import SLOW_MS
from pipeline.operate.verification.waiting import Lane
from pipeline.quality import LEVEL, SMALLEST_DROP
from schemas.verification import (
    FAULTS,
    AccessParity,
    Coverage,
    DocumentFault,
    DocumentFinding,
    MeanChange,
    QuerySet,
    RetrievalParity,
    Thresholds,
    Verdict,
)

LATENCY_FACTOR = 2.0
_DIFFERENCES = {
    "only_here": "{pairs} of a sampled person and a document that is seen here and not in {against}",
    "only_there": "{pairs} of a sampled person and a document that is seen in {against} and not here",
    "exposed_here": "{pairs} of a person and a hit here that the person may not read",
    "exposed_there": "{pairs} of a person and a hit in {against} that the person may not read",
    "unreached_here": "{pairs} of a person and a document that {against} finds and that cannot be found here",
    "unreached_there": "{pairs} of a person and a document that is found here and cannot be found in {against}",
}
_REMARKS = ("exposed_there", "unreached_there")  # of the other generation: said, but no reason to keep this one back


def thresholds() -> Thresholds:
    """What is demanded."""
    return Thresholds(
        smallest_drop=SMALLEST_DROP,
        level=LEVEL,
        latency_factor=LATENCY_FACTOR,
        latency_floor_ms=SLOW_MS,
    )


def judge(
    generation: str,
    against: str | None,
    behind: Mapping[Lane, int],
    coverage: Coverage,
    counted: Mapping[DocumentFault, int],
    access: AccessParity | None,
    differences: Mapping[str, int],
    retrieval: RetrievalParity | None,
) -> Verdict:
    """Every failure and remark, the gravest first."""
    failures: list[str] = []
    remarks: list[str] = []
    for lane, left in behind.items():
        if left:
            said = f"{_count(left, 'record')} before the log's end not applied by {lane.name}"
            (failures if lane.generation in ("", generation) else remarks).append(said)
    _coverage(coverage, counted, against, failures, remarks)
    for kind, count in differences.items():
        sentence = _DIFFERENCES[kind].format(pairs=_count(count, "pair"), against=against)
        (remarks if kind in _REMARKS else failures).append(sentence + _example(access, kind))
    if retrieval is not None:
        _retrieval(retrieval, failures, remarks)
        remarks += retrieval.remarks
    return Verdict(passed=not failures, failures=tuple(failures), remarks=tuple(remarks))


def _coverage(
    coverage: Coverage, counted: Mapping[DocumentFault, int], against: str | None, failures: list[str],
    remarks: list[str],
) -> None:  # fmt: skip
    named = {finding.fault: finding for finding in reversed(coverage.findings)}
    for fault, count in counted.items():
        said = f"{_count(count, 'document')}: {FAULTS[fault]}{_first(named.get(fault))}"
        if fault != "unprocessable":
            failures.append(said)
            continue
        if count > coverage.excused:
            failures.append(f"{said}; {against} serves {count - coverage.excused} of them")
        if coverage.excused:
            why = "as in the active generation" if against is not None else "there is no generation that has them"
            remarks.append(
                f"{_count(coverage.excused, 'document')} that cannot be processed, {why}{_first(named.get(fault))}"
            )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _first(finding: DocumentFinding | None) -> str:
    if finding is None:
        return ""
    name = finding.document.key if finding.document is not None else finding.document_uid
    return f", first {name}" + (f" ({finding.detail})" if finding.detail else "")


def _example(access: AccessParity | None, kind: str) -> str:
    if access is None:
        return ""
    for one in access.differences:
        if one.kind == kind:
            name = one.document.key if one.document is not None else one.document_uid
            return f", first {one.principal} and {name} ({one.detail})"
    return ""


def _retrieval(retrieval: RetrievalParity, failures: list[str], remarks: list[str]) -> None:
    for queries in retrieval.sets:
        for name, change in (("nDCG@10", queries.ndcg), ("recall@10", queries.recall)):
            if change is not None and dropped(change):
                failures.append(
                    f"{name} of the {set_name(queries)} fell from {change.there:.3f} to {change.here:.3f}, "
                    f"interval of the change {change.low:+.3f} to {change.high:+.3f}"
                )
        if queries.reordered:
            remarks.append(f"{queries.reordered} of the {set_name(queries)} give the same documents in another order")
    here, there = retrieval.latency_here, retrieval.latency_there
    if here is not None and there is not None and here.p95 > max(LATENCY_FACTOR * there.p95, SLOW_MS):
        failures.append(
            f"searches are slower: p95 {here.p95:.0f} ms against {there.p95:.0f} ms, at most {LATENCY_FACTOR:g} times "
            f"that (or {SLOW_MS:.0f} ms) is allowed"
        )


def dropped(change: MeanChange) -> bool:
    """Whether the whole interval of the paired difference lies below 0 and the drop is one that matters."""
    if change.change is None or change.high is None:
        return False
    return change.high < 0 and change.change < -SMALLEST_DROP


def set_name(queries: QuerySet) -> str:
    """For people."""
    return "golden questions" if queries.name == "golden" else "known-item queries"


def count_differences(access: list[str]) -> dict[str, int]:
    """By kind, in the order of gravity."""
    counts = Counter(access)
    return {kind: counts[kind] for kind in _DIFFERENCES if counts[kind]}
