"""What ``headwater run`` checks against the running product, from outside: ingest, searches, edits, revocations.

Everything goes the way that people go: files are edited, the query API is asked with signed tokens, receipts are read
from the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml

from infra.corpus import Corpus, known_items, pages, readable
from pipeline.bus.consumer import KafkaTail
from pipeline.clock import SystemClock
from pipeline.errors import Retry
from pipeline.settings import Settings
from schemas.receipts import Receipt
from schemas.topics import Topic

SETTLED = ("indexed", "unchanged", "superseded", "dead_letter", "body_gone", "parked")


@dataclass
class Percentiles:
    """Milliseconds."""

    values: list[float] = field(default_factory=list)

    def at(self, share: float) -> float | None:
        """The value below which ``share`` of the values lie (nearest rank), rounded; None without values."""
        if not self.values:
            return None
        ordered = sorted(self.values)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)

    def summary(self) -> dict[str, float | None]:
        """p50, p95, p99."""
        return {"p50": self.at(0.5), "p95": self.at(0.95), "p99": self.at(0.99)}


class ReceiptsTail:
    """Follows the receipts topic in a thread and keeps what concerns one source of one tenant; None: any."""

    def __init__(self, settings: Settings, tenant: str | None = None, source: str | None = None) -> None:
        self._tail = KafkaTail(settings, [Topic.RECEIPTS], since="beginning")
        self._tenant = tenant
        self._source = source
        self._lock = threading.Condition()
        self._stopping = False
        self.receipts: list[Receipt] = []
        self.documents: dict[str, str] = {}  # document id -> newest outcome in the index lane
        self.chunks: dict[str, int] = {}
        self._listeners: list[Callable[[Receipt], None]] = []
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)
        self._thread.start()

    def listen(self, listener: Callable[[Receipt], None]) -> None:
        """Call for every receipt from now on."""
        self._listeners.append(listener)

    def _run(self) -> None:
        while not self._stopping:
            try:
                records = self._tail.poll(100)
            except Retry:
                time.sleep(0.5)
                continue
            for record in records:
                receipt = Receipt.model_validate_json(record.value or b"{}")
                ours = self._tenant in (None, receipt.tenant)
                if ours and (self._source is None or receipt.source in (self._source, None)):
                    self._note(receipt)

    def _note(self, receipt: Receipt) -> None:
        with self._lock:
            self.receipts.append(receipt)
            if receipt.lane == "index" and receipt.document is not None and receipt.event_type.startswith("content"):
                self.documents[receipt.document.id] = receipt.outcome
                if receipt.outcome in ("indexed", "unchanged"):
                    self.chunks[receipt.document.id] = receipt.chunks_total
                elif receipt.outcome == "deleted":
                    self.chunks.pop(receipt.document.id, None)
                    self.documents.pop(receipt.document.id, None)
            self._lock.notify_all()
        for listener in self._listeners:
            listener(receipt)

    def mark(self) -> int:
        """A place in the receipts so far."""
        with self._lock:
            return len(self.receipts)

    def wait(self, holds: Callable[[list[Receipt]], bool], mark: int, seconds: float) -> bool:
        """Wait until ``holds`` of the receipts since ``mark``."""
        end = time.monotonic() + seconds
        with self._lock:
            while not holds(self.receipts[mark:]):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._lock.wait(left)
            return True

    def close(self) -> None:
        """End the thread."""
        self._stopping = True
        self._thread.join(3)
        self._tail.close()


class Asker:
    """The query API as one person."""

    def __init__(self, base: str, token: str) -> None:
        self._client = httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=30)

    def search(self, query: str, k: int = 10, mode: str = "hybrid") -> list[dict[str, object]]:
        """Hits of one search."""
        body = {"query": query, "k": k, "mode": mode, "rerank": "off", "cache": False}
        answer = self._client.post("/v1/search", json=body)
        answer.raise_for_status()
        hits = answer.json()["hits"]
        assert isinstance(hits, list)
        return hits

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


@dataclass
class Outcome:
    """What the rehearsal found."""

    documents: int = 0
    chunks: int = 0
    seconds: float = 0.0
    lag: Percentiles = field(default_factory=Percentiles)
    revocation: Percentiles = field(default_factory=Percentiles)
    searches: int = 0
    right: int = 0
    forbidden: int = 0
    missed: list[str] = field(default_factory=list)  # pages that their searches did not find
    faults: list[str] = field(default_factory=list)

    def line(self) -> dict[str, object]:
        """The last line of ``headwater run --once``."""
        enough = self.searches > 0 and self.right >= 0.95 * self.searches
        ok = not self.faults and self.forbidden == 0 and enough and self.documents > 0
        return {
            "documents": self.documents,
            "chunks": self.chunks,
            "seconds": round(self.seconds, 1),
            "lag_ms": self.lag.summary(),
            "revocation_ms": self.revocation.summary(),
            "searches": self.searches,
            "right": self.right,
            "forbidden": self.forbidden,
            "ok": ok,
        }


class Rehearsal:
    """Runs the checks against a corpus; ``report`` gets one line of progress at a time."""

    def __init__(
        self, corpus: Corpus, tail: ReceiptsTail, wide: Asker, narrow: Asker, report: Callable[[str, int, int], None]
    ) -> None:
        self._corpus = corpus
        self._tail = tail
        self._wide = wide
        self._narrow = narrow
        self._report = report
        self._clock = SystemClock()
        self._open_to_wide = readable(corpus.path, corpus.wide)
        self.outcome = Outcome()

    def ingest(self, seconds: float = 1800) -> None:
        """Wait until every page of the corpus has its receipt."""
        wanted = sum(1 for _ in pages(self._corpus.path))
        started = time.monotonic()
        while True:
            settled = [d for d, outcome in dict(self._tail.documents).items() if outcome in SETTLED]
            self._report("ingest", min(len(settled), wanted), wanted)
            if len(settled) >= wanted:
                break
            if time.monotonic() - started > seconds:
                self.outcome.faults.append(f"{wanted - len(settled)} pages were not ingested in {seconds:.0f} s")
                break
            time.sleep(0.2)
        bad = [d for d, outcome in self._tail.documents.items() if outcome in ("dead_letter", "body_gone", "parked")]
        if bad:
            self.outcome.faults.append(f"pages that could not be processed: {', '.join(sorted(bad)[:5])}")
        self.outcome.seconds = time.monotonic() - started
        self.outcome.documents = len(self._tail.documents)
        self.outcome.chunks = sum(self._tail.chunks.values())

    def search(self, count: int = 40) -> None:
        """Known-item searches by both people: the page must come, and never to who may not read it."""
        questions = known_items(self._corpus.path, count, wanted=self._open_to_wide)
        for done, (page, question) in enumerate(questions, 1):
            self._report("search", done, len(questions))
            path = page.relative_to(self._corpus.path).as_posix()
            self._score(self._wide.search(question), path)
            self.outcome.forbidden += _inside(self._narrow.search(question), self._corpus.restricted)

    def edit(self, rounds: int = 20) -> None:
        """Edit pages one at a time and measure each edit from the file's last write to its visibility."""
        # text behind the end of an HTML page would belong to no part of it
        items = known_items(
            self._corpus.path, rounds, seed=11, wanted=lambda p: p.suffix == ".md" and self._open_to_wide(p)
        )
        files = [page for page, _ in items]
        for number, file in enumerate(files, 1):
            self._report("edit", number, len(files))
            path = file.relative_to(self._corpus.path).as_posix()
            word = f"quokka{number}x{self._clock.now() % 1_000_000}"
            before = file.read_text(encoding="utf-8")
            taken = self._change(file, path, f"{before.rstrip()}\n\nThe word of this round is {word}.\n")
            if taken is None:
                self.outcome.faults.append(f"an edit of {path} was not visible within 20 s")
            else:
                self.outcome.lag.values.append(taken)
                self._score(self._wide.search(word, k=3, mode="sparse"), path)
            self._change(file, path, before)

    def _change(self, file: Path, path: str, text: str) -> float | None:
        """Write the file; milliseconds until its document is visible, None after 20 s."""
        mark = self._tail.mark()
        file.write_text(text, encoding="utf-8")
        written = self._clock.now()

        def visible(receipts: list[Receipt]) -> list[int]:
            return [
                r.times.visible_at
                for r in receipts
                if r.lane == "index"
                and r.document is not None
                and r.document.id == path
                and r.outcome in ("indexed", "unchanged")
                and r.times.visible_at is not None
                and r.times.visible_at >= written
            ]

        if not self._tail.wait(lambda new: bool(visible(new)), mark, 20):
            return None
        return (visible(self._tail.receipts[mark:])[0] - written) / 1000

    def _score(self, hits: Iterable[dict[str, object]], path: str) -> None:
        self.outcome.searches += 1
        if any(hit["path"] == path for hit in hits):
            self.outcome.right += 1
        else:
            self.outcome.missed.append(path)

    def revoke(self, rounds: int = 20) -> None:
        """Take the restricted folder's readers away and give them back; measured from the write to the last receipt.

        After each revocation a search by the person who lost the right must show nothing of the folder.
        """
        access = self._corpus.path / self._corpus.restricted / ".access.yaml"
        before = access.read_text(encoding="utf-8")
        rule = yaml.safe_load(before)
        closed = yaml.safe_dump({**rule, "allow": ["user:nobody-at-all"]})
        question = self._question_inside()
        for number in range(1, rounds + 1):
            self._report("revoke", number, rounds)
            self._await_hits(question, present=True)
            taken = self._change_access(access, closed)
            if taken is None:
                self.outcome.faults.append("a revocation was not applied within 20 s")
            else:
                self.outcome.revocation.values.append(taken)
            self.outcome.forbidden += _inside(self._wide.search(question), self._corpus.restricted)
            self._change_access(access, before)
        self._await_hits(question, present=True)

    def _change_access(self, access: Path, text: str) -> float | None:
        """Write the access file; milliseconds until the last of the principals that it concerns is applied."""
        mark = self._tail.mark()
        access.write_text(text, encoding="utf-8")
        written = self._clock.now()

        def applied(receipts: list[Receipt]) -> list[int]:
            return [
                r.times.visible_at
                for r in receipts
                if r.lane == "membership" and r.times.visible_at is not None and r.times.visible_at >= written
            ]

        if not self._tail.wait(lambda new: bool(applied(new)), mark, 20):
            return None
        self._tail.wait(lambda new: False, mark, 0.15)  # several principals may change with one file
        return (max(applied(self._tail.receipts[mark:])) - written) / 1000

    def _question_inside(self) -> str:
        folder = self._corpus.path / self._corpus.restricted
        inside = known_items(self._corpus.path, 1, wanted=lambda p: folder in p.parents and self._open_to_wide(p))
        return inside[0][1] if inside else self._corpus.question

    def _await_hits(self, question: str, *, present: bool) -> None:
        end = time.monotonic() + 10
        while bool(_inside(self._wide.search(question), self._corpus.restricted)) != present:
            if time.monotonic() > end:
                self.outcome.faults.append("a restored right did not bring its pages back within 10 s")
                return
            time.sleep(0.05)


def _inside(hits: Iterable[dict[str, object]], folder: str) -> int:
    return sum(1 for hit in hits if str(hit.get("path") or "").startswith(f"{folder}/"))
