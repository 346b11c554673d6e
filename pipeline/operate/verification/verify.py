"""A verification from beginning to end: wait, compare, judge, write the report, tell control."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pipeline.clock import Clock, SystemClock
from pipeline.errors import ConfigError
from pipeline.operate.verification.coverage import DocumentCheck, Side, Tally, check_rules
from pipeline.operate.verification.expected import Expected, Letters, fold, letters
from pipeline.operate.verification.heads import walk_heads
from pipeline.operate.verification.means import Ends, KafkaLog, Means
from pipeline.operate.verification.queries import Query, forbidden_items, golden, known_items
from pipeline.operate.verification.retrieval import Asked, Asker
from pipeline.operate.verification.standing import StandingCheck
from pipeline.operate.verification.verdict import count_differences, judge, thresholds
from pipeline.operate.verification.visibility import People, Seen, compare
from pipeline.operate.verification.waiting import TOPICS, Lane, applied, wait
from pipeline.ports import ProgressBar
from pipeline.settings import Settings
from schemas.generation import Generation, VerificationSummary
from schemas.topics import Topic
from schemas.verification import (
    AccessDifference,
    AccessParity,
    PrincipalSample,
    RetrievalParity,
    VerificationReport,
)

DIFFERENCES_SHOWN = 200
NO_LOGGED_QUERIES = "the query log keeps no text of queries, so none was drawn from it"


Tell = Callable[[str, VerificationSummary], None]
"""Hands a generation's summary to the control consumer."""


def verify(
    settings: Settings,
    generation: str,
    *,
    against: str | None = None,
    progress: ProgressBar | None = None,
    requested_by: str | None = None,
    clock: Clock | None = None,
) -> VerificationReport:
    """Verify ``generation``, compared with ``against`` (the active one where None is given), and tell control.

    report.json and report.html lie under ``state_dir``/reports/GENERATION/ID. Raises ConfigError (no such generation,
    no operator's token), Retry (log, store or query service away), Refused (control did not take the report).
    """
    clock = clock or SystemClock()

    def tell(name: str, summary: VerificationSummary) -> None:
        from pipeline.operate.control import send

        send(settings, "report", name, requested_by=requested_by, report=summary)

    with real_means(settings, clock) as means:
        return Verification(settings, means, generation, against, progress or (lambda step, done, total: None)).run(
            tell
        )


@contextlib.contextmanager
def real_means(settings: Settings, clock: Clock) -> Iterator[Means]:
    """Kafka, Weaviate, bodies and the query service, for the block."""
    from pipeline.bus.bodies import FsspecBodyStore
    from pipeline.index.store import WeaviateStore
    from pipeline.operate.verification.shadow import ShadowClient

    with contextlib.ExitStack() as opened:
        store = WeaviateStore(settings)
        opened.callback(store.close)
        shadow = ShadowClient(settings)
        opened.callback(shadow.close)
        yield Means(KafkaLog(settings), store, FsspecBodyStore.of(settings), shadow, clock)


@dataclass
class _Found:
    """What all tenants together gave."""

    tally: Tally = field(default_factory=Tally)
    asked: Asked = field(default_factory=Asked)
    samples: list[PrincipalSample] = field(default_factory=list)
    differences: list[AccessDifference] = field(default_factory=list)
    documents: int = 0
    decisions: int = 0


class Verification:
    """One run. The seed comes from the generation's name: a repetition looks at the same people and documents."""

    def __init__(
        self, settings: Settings, means: Means, generation: str, against: str | None, progress: ProgressBar
    ) -> None:
        self._settings = settings
        self._means = means
        self._progress = progress
        self.generation, self.against = _named(means, generation, against)
        self.seed = zlib.crc32(generation.encode())

    def run(self, tell: Tell) -> VerificationReport:
        """Raises as ``verify``."""
        means, names = self._means, [self.generation.name, *([self.against.name] if self.against else [])]
        started = means.clock.now()
        ends = means.log.ends(TOPICS)
        behind = wait(means, names, ends, self._progress)
        self._progress("reading the log", 0, None)
        expected, given_up = fold(means.log, ends), letters(means.log, names)
        found = _Found()
        tenants = sorted({*expected.documents, *means.store.tenants(self.generation.name)})
        for number, tenant in enumerate(tenants):
            self._progress("comparing tenants", number, len(tenants))
            self._tenant(tenant, expected, ends, given_up, found)
        self._progress("comparing tenants", len(tenants), len(tenants))
        report = self._report(started, ends, behind, found)
        write(self._settings.state_dir, report)
        tell(self.generation.name, report.summary())
        return report

    # ------------------------------------------------------------ one tenant

    def _side(self, generation: Generation, tenant: str) -> Side:
        lane = Lane("index", generation.name, Topic.CONTENT)
        at = applied(self._means.store, lane)  # before the manifests are read: they are at least as far
        return Side(generation.name, tenant, walk_heads(self._means.store, generation.name, tenant), at)

    def _tenant(self, tenant: str, expected: Expected, ends: Ends, given_up: Letters, found: _Found) -> None:
        means, tally = self._means, found.tally
        here = self._side(self.generation, tenant)
        there = self._side(self.against, tenant) if self.against is not None else None
        against = self.against.name if self.against is not None else None
        DocumentCheck(means, expected, ends, given_up, here, against).run(tally)
        people = People.read(means, tenant)
        check_rules(here, people.records, tally)
        StandingCheck(means, expected, here).run(tally, self.generation.encoder.dimension, self.seed)
        seen = compare(means, people, here, there, tally.unprocessable, self.seed)
        found.samples += seen.samples
        found.differences += seen.differences
        found.documents += seen.documents
        found.decisions += seen.documents * len(seen.samples)
        if tenant != self._settings.canary.tenant:
            self._ask(tenant, people, here, there, seen, found)

    def _ask(self, tenant: str, people: People, here: Side, there: Side | None, seen: Seen, found: _Found) -> None:
        questions, left_out = golden(self._settings.generations.golden, tenant, here.heads)
        found.asked.left_out += left_out
        items = known_items(self._means.store, here.generation, tenant, here.heads, seen, self.seed)
        queries: list[Query] = [*questions, *items, *forbidden_items(items, here.heads, seen, self.seed)]
        done = 0

        def tick() -> None:
            nonlocal done
            done += 1
            self._progress(f"asking as people of {tenant}", done, len(queries))

        Asker(self._means, people, here, there, seen, found.tally.unprocessable).run(queries, found.asked, tick)

    # ------------------------------------------------------------ report

    def _report(self, started: int, ends: Ends, behind: dict[Lane, int], found: _Found) -> VerificationReport:
        against = self.against.name if self.against is not None else None
        mine = sum(left for lane, left in behind.items() if lane.generation == self.generation.name)
        coverage = found.tally.coverage(mine)
        differences = [*found.differences, *found.asked.differences]
        access = AccessParity(
            seed=self.seed,
            documents=found.documents,
            decisions=found.decisions,
            searches=found.asked.searches,
            principals=tuple(found.samples),
            difference_count=len(differences),
            differences=tuple(differences[:DIFFERENCES_SHOWN]),
        )
        retrieval = RetrievalParity(
            seed=self.seed,
            sets=found.asked.sets(),
            latency_here=found.asked.latency(here=True),
            latency_there=found.asked.latency(here=False),
            remarks=self._remarks(found),
        )
        verdict = judge(
            self.generation.name, against, behind, coverage, found.tally.counted, access,
            count_differences([d.kind for d in differences]), retrieval,
        )  # fmt: skip
        finished = self._means.clock.now()
        report_id = datetime.fromtimestamp(started / 1_000_000, UTC).strftime("%Y%m%dT%H%M%S-%f")
        return VerificationReport(
            report_id=report_id,
            generation=self.generation.name,
            against=against,
            started_at=started,
            finished_at=finished,
            log_ends=ends,
            verdict=verdict,
            thresholds=thresholds(),
            coverage=coverage,
            access=access,
            retrieval=retrieval,
            path=f"reports/{self.generation.name}/{report_id}",
        )

    def _remarks(self, found: _Found) -> tuple[str, ...]:
        remarks = [NO_LOGGED_QUERIES]
        if self._settings.generations.golden is None:
            remarks.append("there is no golden set (generations.golden); known-item queries took its place")
        elif found.asked.left_out:
            remarks.append(f"{found.asked.left_out} golden questions name documents that are not indexed here")
        if not found.asked.outcomes:
            remarks.append("nothing could be asked: no sampled person may read any document")
        if self.against is None:
            remarks.append("there is no other generation to compare with")
        return tuple(remarks)


def _named(means: Means, generation: str, against: str | None) -> tuple[Generation, Generation | None]:
    """The records of both. Raises ConfigError for a name that is none, or one that is compared with itself."""
    known = means.store.read_generations()
    wanted = known.get(generation)
    if wanted is None or wanted.dropped_at is not None:
        raise ConfigError("generation", f"there is none named {generation}", f"Name one of {sorted(known)}.")
    if against is None:
        active = means.store.active_generation()
        against = active if active != generation else None
    if against is None:
        return wanted, None
    other = known.get(against)
    if other is None or other.state == "retired" or against == generation:
        raise ConfigError("against", f"{against} is nothing to compare with", "Name another generation that stands.")
    return wanted, other


def write(state_dir: Path, report: VerificationReport) -> Path:
    """report.json and report.html; the folder."""
    from pipeline.operate.verification.page import page

    folder = state_dir / report.path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("report.json", report.model_dump_json(indent=1)), ("report.html", page(report))):
        fresh = folder / f".{name}.new"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(folder / name)
    return folder
