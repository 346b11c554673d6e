"""``ingest_ratio`` and ``reingest``: what the pipeline costs beside its encoder, and what it costs to do nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import psutil

from infra.bench import pages
from infra.bench.pages import Page
from infra.bench.receipts import Key
from infra.bench.report import Result, at_least, quotient, rounded
from infra.bench.session import Session
from infra.bench.world import World
from infra.errors import InfraError
from pipeline.bus.groups import log_ends
from pipeline.clock import SystemClock
from pipeline.ports import SourceDocument
from schemas.access import AccessRule
from schemas.keys import DocumentRef
from schemas.receipts import Progress, Receipt
from schemas.topics import Topic

CPU_TARGET, CLOCK_TARGET = 0.90, 0.80
BATCH = 25  # documents of one request
SETTLE_S = 900.0


@dataclass(frozen=True)
class Cost:
    """What embedding some chunks took."""

    chunks: int
    cpu_s: float
    wall_s: float

    def and_(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(self.chunks + other.chunks, self.cpu_s + other.cpu_s, self.wall_s + other.wall_s)

    @property
    def per_cpu(self) -> float | None:
        """Chunks by CPU second."""
        return quotient(self.chunks, self.cpu_s)

    @property
    def per_second(self) -> float | None:
        """Chunks by the clock."""
        return quotient(self.chunks, self.wall_s)


# ---------------------------------------------------------------- ingest_ratio


def ingest_ratio(session: Session) -> Iterable[Result]:
    """Documents through gateway, log and index consumer, against the encoder alone on the same texts."""
    world = session.live()
    documents = pages.documents(session.sizes.documents)
    session.report.step("ingest_ratio", "the encoder alone")
    before = encoder_alone(world, documents)
    session.report.step("ingest_ratio", f"{len(documents)} documents through the gateway")
    made = _ingest(session, world, documents)
    session.report.step("ingest_ratio", "the encoder alone once more")  # the machine may have changed meanwhile
    after = encoder_alone(world, documents)
    session.report.finish("ingest_ratio", f"{made.chunks} chunks")
    whole, slices = (one.and_(other) for one, other in zip(before, after, strict=True))
    yield ingest_result(made, whole, slices, len(documents), before[0].chunks)


def ingest_result(made: Cost, whole: Cost, slices: Cost, documents: int, texts: int) -> Result:
    """``whole``: all texts in one call of the encoder, the fastest way it has; ``slices``: as many as a slice holds.

    ``texts``: how many the encoder alone had to embed, once.
    """
    ratio, clock = quotient(made.per_cpu, whole.per_cpu), quotient(made.per_second, whole.per_second)
    extra: dict[str, object] = {
        "documents": documents,
        "chunks": made.chunks,
        "chunks_alone": texts,
        "clock_ratio": rounded(clock),
        "clock_target": CLOCK_TARGET,
        "chunks_per_s": rounded(made.per_second),
        "alone_per_cpu_s": rounded(whole.per_cpu),
        "alone_per_s": rounded(whole.per_second),
        "ratio_in_slices": rounded(quotient(made.per_cpu, slices.per_cpu)),
        "clock_ratio_in_slices": rounded(quotient(made.per_second, slices.per_second)),
    }
    same = made.chunks == texts
    if not same:
        extra["note"] = "the pipeline embedded another number of chunks than the encoder alone"
    ok = same and at_least(ratio, CPU_TARGET) and at_least(clock, CLOCK_TARGET)
    return Result("ingest_ratio", made.per_cpu, "chunks per CPU second", CPU_TARGET, ratio, ok, extra)


def encoder_alone(world: World, documents: Sequence[Page]) -> tuple[Cost, Cost]:
    """The encoder on the chunks of the documents, in a process with the index consumer's settings."""
    file = world.folder / "alone.jsonl"
    file.write_text("".join(json.dumps(asdict(page)) + "\n" for page in documents), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "infra.bench.alone", str(file), world.generation().name],
        env=world.process_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise InfraError(f"The encoder alone failed: {ran.stderr.strip()[-600:]}", "Run `headwater doctor`.")
    said = json.loads(ran.stdout.splitlines()[-1])
    return Cost(**said["whole"]), Cost(**said["slices"])


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _ingest(session: Session, world: World, documents: Sequence[Page]) -> Cost:
    tenant, index = "ingest", world.process("index")
    mark = world.receipts.mark()
    cpu, clock = cpu_seconds(index), time.time_ns()
    keys: list[Key] = []
    for start in range(0, len(documents), BATCH):
        batch = documents[start : start + BATCH]
        reply = world.gateway.send([upsert(tenant, page, priority="bulk") for page in batch])
        keys += [Key("index", tenant, str(r.document_uid), r.content_version) for r in reply.results]
        session.progress("ingest_ratio", len(keys), len(documents))
    found = world.receipts.wait(keys, SETTLE_S, mark=mark)
    used = cpu_seconds(index) - cpu
    lost = [r for r in found.values() if r.outcome != "indexed"]
    if lost:
        raise InfraError(f"{len(lost)} documents were not indexed, one is {lost[0].outcome}: {lost[0].reason}.", "")
    end = max(visible(r) for r in found.values())
    return Cost(sum(r.chunks_embedded for r in found.values()), used, (end - clock // 1000) / 1e6)


def visible(receipt: Receipt) -> int:
    """When the event took effect, µs."""
    return receipt.times.visible_at or 0


def upsert(tenant: str, page: Page, *, priority: str = "live") -> dict[str, object]:
    """A page as a change for the gateway."""
    return {
        "type": "upsert",
        "tenant": tenant,
        "id": page.id,
        "title": page.title,
        "text": page.text,
        "content_type": page.content_type,
        "access": {"allow": ["everyone"]},
        "priority": priority,
    }


# ---------------------------------------------------------------- reingest


def reingest(session: Session) -> Iterable[Result]:
    """The same versions again, newer versions of the same text, and one changed paragraph of a large document."""
    world, tenant, sizes = session.live(), "again", session.sizes
    feeder, report = world.feeder(tenant, "owned"), session.report
    pool = pages.sentences(page.text for page in pages.wiki_pages(pages.WIKI))
    small = [observed(tenant, page) for page in pages.shuffled(pool, sizes.again, seed=17)]
    paragraphs = pages.long_page(pool, sizes.big_chunks, seed=18)
    everything = [*small, observed(tenant, big_page(paragraphs))]
    report.step("reingest", f"{len(everything)} documents")
    first = world.receipts.wait(feeder.write(everything, priority="bulk").content, SETTLE_S)
    total = max(receipt.chunks_total for receipt in first.values())

    report.step("reingest", "the same versions again")
    same = _replay(world, [seen.document for seen in everything], first)
    report.step("reingest", "newer versions of the same text")
    forced = feeder.write(everything, priority="bulk", force=True)
    newer = _totals(world.receipts.wait(forced.content, SETTLE_S).values())
    report.step("reingest", "one changed paragraph")
    changed = big_page(pages.with_one_paragraph_changed(paragraphs, pool, seed=19))
    edited = _totals(world.receipts.wait(feeder.write([observed(tenant, changed)]).content, SETTLE_S).values())
    report.finish("reingest")
    yield reingest_result(same, newer, edited, total)


@dataclass(frozen=True)
class Work:
    """What some events cost."""

    events: int
    embedded: int
    written: int
    manifests: int = 0  # that are not as they were

    @property
    def all(self) -> int:
        """Chunks embedded and objects written."""
        return self.embedded + self.written + self.manifests


def reingest_result(same: Work, newer: Work, edited: Work, big_chunks: int) -> Result:
    """Nothing for the same versions, no chunk for newer ones of the same text, two chunks for one paragraph."""
    ok = same.all == 0 and newer.embedded == newer.written == 0 and edited.embedded <= 2
    extra = {
        "replayed": same.events,
        "embedded": same.embedded,
        "written": same.written + same.manifests,
        "newer_versions": newer.events,
        "newer_embedded": newer.embedded,
        "newer_written": newer.written,
        "edit_of_chunks": big_chunks,
        "edit_embedded": edited.embedded,
        "edit_target": 2,
    }
    return Result("reingest", same.all, "chunks embedded + objects written", 0, None, ok, extra)


def big_page(paragraphs: Sequence[str]) -> Page:
    """A page of one chunk a heading."""
    return Page("big.md", "A large page", "\n\n".join(paragraphs))


def observed(tenant: str, page: Page, *, source: str = "owned", rule: AccessRule | None = None) -> SourceDocument:
    """A page as a connector reads it."""
    return SourceDocument(
        document=DocumentRef(tenant=tenant, source=source, id=page.id),
        title=page.title,
        body=page.text.encode(),
        content_type=page.content_type,
        rule=rule or AccessRule.any_of("everyone"),
        path=page.id,
    )


def _totals(receipts: Iterable[Receipt], manifests: int = 0) -> Work:
    found = list(receipts)
    return Work(len(found), sum(r.chunks_embedded for r in found), sum(r.chunks_written for r in found), manifests)


def _replay(world: World, documents: Sequence[DocumentRef], first: dict[Key, Receipt]) -> Work:
    """Set the index consumer's progress back to the log's beginning and let it read everything again."""
    tenant, generation = documents[0].tenant, world.generation().name
    uids = [document.uid for document in documents]
    before = world.store.read_manifests(generation, tenant, uids)
    world.stop("index")
    mark = world.receipts.mark()
    rewind(world, generation)
    world.start("index")
    world.receipts.wait(first, SETTLE_S, mark=mark)
    await_end(world, generation)
    after = world.store.read_manifests(generation, tenant, uids)
    again = [r for r in world.receipts.since(mark) if r.lane == "index"]
    return _totals(again, sum(before.get(uid) != after.get(uid) for uid in uids))


def rewind(world: World, generation: str) -> None:
    """Progress records at offset 0, as if their owner had left in order there: what a restored store would say."""
    now = SystemClock().now()
    world.store.write_progress(
        [
            Progress(
                lane="index", generation=generation, topic=str(topic), partition=partition, offset=0, clean=True,
                lease_until=now, written_at=now,
            )
            for topic in (Topic.CONTENT, Topic.ACCESS)
            for partition in range(world.settings.kafka.partitions)
        ]
    )  # fmt: skip


def await_end(world: World, generation: str, seconds: float = SETTLE_S) -> None:
    """Wait until the index consumer has applied everything that is on the log now. Raises InfraError."""
    _, ends = log_ends(world.settings, [Topic.CONTENT])
    end = time.monotonic() + seconds
    while True:
        progress = world.store.read_progress("index", generation, str(Topic.CONTENT))
        behind = [s for s, offset in ends.items() if offset > 0 and _offset(progress, s.partition) < offset]
        if not behind:
            return
        if time.monotonic() > end:
            raise InfraError(f"The index consumer was not at the log's end within {seconds:.0f} s.", "Run it again.")
        time.sleep(0.1)


def _offset(progress: dict[int, Progress], partition: int) -> int:
    found = progress.get(partition)
    return found.offset if found is not None else 0
