"""Commands, records and evidence for tests of transitions."""

from __future__ import annotations

from typing import Any

from pipeline.bus.instances import Instance
from pipeline.generations import Evidence
from schemas.events import ControlCommand
from schemas.generation import BackendChoice, EncoderSpec, Generation, GenerationState, VerificationSummary
from schemas.instances import InstanceHeartbeat

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000


def command(kind: str, name: str = "g2", **fields: Any) -> ControlCommand:
    return ControlCommand.model_validate(
        {"type": kind, "generation": name, "request_id": "r", "requested_at": NOW, "requested_by": "ops", **fields}
    )


def generation(name: str, state: GenerationState, dimension: int = 384, **fields: Any) -> Generation:
    return Generation(
        name=name, state=state, encoder=EncoderSpec(dimension=dimension), created_at=1,
        backend=BackendChoice(name="stub", agreement=1.0), **fields,
    )  # fmt: skip


def report(
    against: str | None = "g1", *, passed: bool = True, age_us: int = 0, report_id: str = "v-1"
) -> VerificationSummary:
    failures = () if passed else ("coverage: 2 documents missing",)
    return VerificationSummary(
        report_id=report_id, passed=passed, against=against, finished_at=NOW - age_us, failures=failures
    )


def instance(name: str = "q1", *, heard_at: int = NOW, **fields: Any) -> Instance:
    return Instance(InstanceHeartbeat(instance=name, started_at=1, at=heard_at, **fields), heard_at)


def two(state: GenerationState = "ready", *, summary: VerificationSummary | None = None, **evidence: Any) -> Evidence:
    """g1 serves, g2 is to follow with a fresh passing report."""
    known = {
        "g1": generation("g1", "active", activated_at=1, state_since=1),
        "g2": generation("g2", state, report=summary if summary is not None else report()),
    }
    return Evidence(known, "g1", **evidence)
