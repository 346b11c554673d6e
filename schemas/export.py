"""Writes the contracts as JSON Schemas: ``python -m schemas.export [--check | --freeze]``.

``schemas/json/{topics,records,api}/`` follows the code; ``--check`` fails when it does not, or when the code can no
longer read (or, for responses, no longer serves) what ``schemas/json/v1/`` promised. ``--freeze`` adds contracts that
are not frozen yet and extends frozen ones by compatible changes; it refuses the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from schemas.api import (
    DocumentResponse,
    FreshnessResponse,
    HealthResponse,
    Problem,
    SearchRequest,
    SearchResponse,
    TraceResponse,
)
from schemas.api_changes import CHANGES, ChangesProblem, ChangesReply
from schemas.api_feedback import (
    FeedbackRequest,
    FeedbackResponse,
    LoggedQuery,
    PurgeRequest,
    PurgeResponse,
    QueriesResponse,
    WhoResponse,
)
from schemas.api_neighbours import NeighboursResponse
from schemas.api_operator import OperatorSearch
from schemas.api_why import WhyResponse
from schemas.cloudevents import CloudEvent, EventResult, EventsReply
from schemas.compat import breaks
from schemas.deletion import DeletionResponse
from schemas.documents import AccessRecord, Manifest, PrincipalRecord
from schemas.events import (
    ACCESS_EVENT,
    CONTENT_EVENT,
    ControlCommand,
    DocumentState,
    MaintenanceCommand,
    MembershipSet,
    SourceCursor,
    SourceRequest,
)
from schemas.generation import Generation
from schemas.instances import InstanceHeartbeat
from schemas.querylog import LOG_RECORD
from schemas.receipts import DeadLetter, Progress, Receipt
from schemas.tokens import FreshnessToken
from schemas.topics import Topic
from schemas.verification import VerificationReport

ROOT = Path(__file__).parent / "json"
FROZEN = "v1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# One adapter a topic: what may stand on it.
PAYLOADS: dict[Topic, TypeAdapter[Any]] = {
    Topic.CONTENT: CONTENT_EVENT,
    Topic.ACCESS: ACCESS_EVENT,
    Topic.MEMBERSHIP: TypeAdapter(MembershipSet),
    Topic.CURSORS: TypeAdapter(DocumentState | SourceCursor),
    Topic.MAINTENANCE: TypeAdapter(MaintenanceCommand),
    Topic.REQUESTS: TypeAdapter(SourceRequest),
    Topic.CONTROL: TypeAdapter(ControlCommand),
    Topic.RECEIPTS: TypeAdapter(Receipt),
    Topic.DEAD_LETTER: TypeAdapter(DeadLetter),
    Topic.INSTANCES: TypeAdapter(InstanceHeartbeat),
    Topic.QUERIES: LOG_RECORD,
}
RECORDS: dict[str, TypeAdapter[Any]] = {
    "access-record": TypeAdapter(AccessRecord),
    "freshness-token": TypeAdapter(FreshnessToken),
    "generation": TypeAdapter(Generation),
    "manifest": TypeAdapter(Manifest),
    "principal-record": TypeAdapter(PrincipalRecord),
    "progress": TypeAdapter(Progress),
    "verification-report": TypeAdapter(VerificationReport),
}
REQUESTS: dict[str, TypeAdapter[Any]] = {
    "changes-request": CHANGES,
    "event-request": TypeAdapter(CloudEvent),
    "feedback-request": TypeAdapter(FeedbackRequest),
    "operator-search-request": TypeAdapter(OperatorSearch),
    "purge-request": TypeAdapter(PurgeRequest),
    "search-request": TypeAdapter(SearchRequest),
}
RESPONSES: dict[str, TypeAdapter[Any]] = {
    "changes-response": TypeAdapter(ChangesReply),
    "deletion-response": TypeAdapter(DeletionResponse),
    "document-response": TypeAdapter(DocumentResponse),
    "event-response": TypeAdapter(EventResult),
    "events-response": TypeAdapter(EventsReply),
    "feedback-response": TypeAdapter(FeedbackResponse),
    "freshness-response": TypeAdapter(FreshnessResponse),
    "logged-query": TypeAdapter(LoggedQuery),
    "neighbours-response": TypeAdapter(NeighboursResponse),
    "purge-response": TypeAdapter(PurgeResponse),
    "queries-response": TypeAdapter(QueriesResponse),
    "changes-problem": TypeAdapter(ChangesProblem),
    "health-response": TypeAdapter(HealthResponse),
    "problem": TypeAdapter(Problem),
    "search-response": TypeAdapter(SearchResponse),
    "trace-response": TypeAdapter(TraceResponse),
    "who-response": TypeAdapter(WhoResponse),
    "why-response": TypeAdapter(WhyResponse),
}


@dataclass(frozen=True)
class Contract:
    """One exported schema. ``role`` says who reads: we (payload) or clients (response)."""

    path: str
    adapter: TypeAdapter[Any]
    role: Literal["payload", "response"]

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema as a plain tree."""
        mode: Literal["validation", "serialization"] = "serialization" if self.role == "response" else "validation"
        return {"$schema": DIALECT, "title": self.path, **self.adapter.json_schema(mode=mode)}

    def text(self) -> str:
        """The file's content: keys sorted, so that equal contracts are equal files."""
        return json.dumps(self.schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def breaks(self, frozen: dict[str, Any]) -> list[str]:
        """What the current code breaks of a frozen schema."""
        if self.role == "response":
            return breaks(self.schema(), frozen, unknown_ignored=True)
        return breaks(frozen, self.schema())


def contracts() -> list[Contract]:
    """Every contract, by path below ``schemas/json``."""
    found = [Contract(f"topics/{topic}", adapter, "payload") for topic, adapter in PAYLOADS.items()]
    found += [Contract(f"records/{name}", adapter, "payload") for name, adapter in RECORDS.items()]
    found += [Contract(f"api/{name}", adapter, "payload") for name, adapter in REQUESTS.items()]
    found += [Contract(f"api/{name}", adapter, "response") for name, adapter in RESPONSES.items()]
    return sorted(found, key=lambda c: c.path)


def drift(root: Path = ROOT) -> list[str]:
    """Files under ``root`` that differ from the code, are missing or belong to nothing."""
    wanted = {f"{c.path}.json": c.text() for c in contracts()}
    problems = [
        f"{name}: {'differs from the code' if (root / name).is_file() else 'is missing'}"
        for name, text in wanted.items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    ]
    present = {p.relative_to(root).as_posix() for p in root.rglob("*.json")}
    problems += [
        f"{name}: belongs to no contract" for name in sorted(present - set(wanted)) if not name.startswith(f"{FROZEN}/")
    ]
    return problems


def broken_promises(root: Path = ROOT) -> list[str]:
    """Where the code no longer keeps a frozen contract, or a contract is not frozen, or a frozen one is gone."""
    problems = []
    known = {f"{c.path}.json": c for c in contracts()}
    for name, contract in known.items():
        file = root / FROZEN / name
        if not file.is_file():
            problems.append(f"{FROZEN}/{name}: not frozen yet; run python -m schemas.export --freeze")
            continue
        problems += [f"{name}: {reason}" for reason in contract.breaks(json.loads(file.read_text(encoding="utf-8")))]
    frozen = {p.relative_to(root / FROZEN).as_posix() for p in (root / FROZEN).rglob("*.json")}
    return problems + [f"{FROZEN}/{name}: the contract is gone" for name in sorted(frozen - set(known))]


def write(root: Path = ROOT) -> int:
    """Write all schemas; the number of files that changed."""
    changed = 0
    for contract in contracts():
        changed += _put(root / f"{contract.path}.json", contract.text())
    return changed


def freeze(root: Path = ROOT) -> tuple[int, list[str]]:
    """Freeze what is new or compatible; the number of files that changed and why others were refused."""
    changed, refused = 0, []
    for contract in contracts():
        file = root / FROZEN / f"{contract.path}.json"
        reasons = contract.breaks(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else []
        if reasons:
            refused += [f"{contract.path}: {reason}" for reason in reasons]
        else:
            changed += _put(file, contract.text())
    return changed, refused


def _put(file: Path, text: str) -> bool:
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit status 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m schemas.export", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="compare only; fail on drift and on broken promises")
    choice.add_argument("--freeze", action="store_true", help="also freeze new contracts and compatible extensions")
    options = parser.parse_args(arguments)
    if options.check:
        problems = drift() + broken_promises()
    else:
        print(f"{write()} of {len(contracts())} schemas changed")
        problems = []
        if options.freeze:
            changed, problems = freeze()
            print(f"{changed} frozen schemas changed")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Run python -m schemas.export for drift; a broken promise needs a new schema_version.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
