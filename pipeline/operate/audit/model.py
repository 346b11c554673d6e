"""What a check says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, computed_field

from schemas.base import ClosedModel, Micros
from schemas.keys import DocumentRef

MAX_FINDINGS = 10_000  # kept for mending; the count goes on

Mend = Literal["recheck", "recheck_access", "reprocess", "ask_owner", "drop_generation"]


class Finding(ClosedModel):
    """One thing that is wrong. ``mend`` None: a person has to look, ``detail`` says at what."""

    tenant: str | None = None
    source: str | None = None
    document: DocumentRef | None = None
    document_uid: str | None = None
    detail: str
    chunk_ids: tuple[str, ...] = ()
    section_ids: tuple[str, ...] = ()
    generation: str | None = None
    offset: int | None = Field(default=None, description="Content offset to process again.")
    mend: Mend | None = None


class CheckResult(ClosedModel):
    """What one check found. ``by`` counts findings by tenant/source; ``figures`` are measurements for plots."""

    name: str
    title: str
    generation: str | None = None
    examined: int = Field(default=0, ge=0)
    count: int = Field(default=0, ge=0)
    by: dict[str, int] = Field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    figures: dict[str, float] = Field(default_factory=dict)
    note: str | None = Field(default=None, description="What was left out and why.")
    seconds: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return self.count == 0

    @property
    def mendable(self) -> bool:
        """Whether something that was found has a mend."""
        return any(finding.mend is not None for finding in self.findings)

    def shortened(self, samples: int = 20) -> CheckResult:
        """With the first findings only, for showing."""
        return self.model_copy(update={"findings": self.findings[:samples]})


class AuditReport(ClosedModel):
    """All checks of a run."""

    at: Micros
    generation: str | None
    results: tuple[CheckResult, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(result.passed for result in self.results)


def result(
    findings: Iterable[Finding],
    *,
    examined: int,
    figures: dict[str, float] | None = None,
    note: str | None = None,
) -> CheckResult:
    """A result whose name, title and time the caller of the check fills in."""
    kept: list[Finding] = []
    by: Counter[str] = Counter()
    for finding in findings:
        by["/".join(part or "-" for part in (finding.tenant, finding.source))] += 1
        if len(kept) < MAX_FINDINGS:
            kept.append(finding)
    return CheckResult(
        name="",
        title="",
        examined=examined,
        count=by.total(),
        by=dict(sorted(by.items())),
        findings=tuple(kept),
        figures=figures or {},
        note=note,
    )
