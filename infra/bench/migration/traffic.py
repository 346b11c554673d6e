"""Streams of changes and queries that record what they did and saw."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infra.bench.migration.history import ContentChange, Found, History, MemberChange, Query, RuleChange
from infra.errors import InfraError
from schemas.api import SearchHit, SearchResponse
from schemas.api_changes import ChangesReply
from schemas.api_ranking import RerankMode
from schemas.receipts import Receipt

TENANT = "moving"
PEOPLE = tuple(f"p{n}" for n in range(12))
GROUPS = tuple(f"group:gateway/g{n}" for n in range(4))
STOOD = frozenset({"indexed", "unchanged", "deleted", "refreshed"})
_EDITION = re.compile(r"\bedition(\d+)x\b")
_SHARES = {"edit": 0.58, "delete": 0.08, "restore": 0.08, "rule": 0.18, "member": 0.08}
PATIENCE_S = 120.0  # something may be killed and started again meanwhile
DISTANCE = 0.02  # two processes that embed the same text, one of them in bf16, differ by less


class Changes(Protocol):
    """The change gateway."""

    def send(self, changes: Sequence[dict[str, Any]], *, wait: Any = None) -> ChangesReply: ...


class Searches(Protocol):
    """The query service."""

    def search(
        self, user: str, tenant: str, query: str, *, k: int = 10, rerank: RerankMode | None = None
    ) -> SearchResponse: ...


Distances = Callable[[SearchResponse, str], tuple[str, ...]]
"""Of a reply and its query: hits whose distance is not the one that the replying generation's vectors give."""


def word_of(document: str) -> str:
    """The word that only this document has; an identifier, so that its holders rank first."""
    return f"MK-{document.upper()}-7"


def text_of(document: str, edition: int, prose: Sequence[str]) -> str:
    """A part that stays, long enough for a chunk of its own, and one that says which edition it is."""
    word, new = word_of(document), prose[edition % len(prose)]
    return "\n\n".join(
        [
            f"# Page {document}",
            f"## Standing\n\n{word} is described here. {' '.join(prose)}",
            f"## Changing\n\nThis is edition{edition}x of {word}, and what it says is new: {new}",
        ]
    )


@dataclass
class Stage:
    """What the streams know and share. All methods from any thread."""

    documents: tuple[str, ...]
    prose: Sequence[str]
    history: History = field(default_factory=History)
    refused: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self, document: str, edition: int) -> str:
        """Its text in an edition."""
        start = self.documents.index(document) * 8 % max(1, len(self.prose) - 8)
        return text_of(document, edition, self.prose[start : start + 8])

    def add(self, *items: ContentChange | RuleChange | MemberChange | Query) -> None:
        """Record."""
        lists: dict[type, list[Any]] = {
            ContentChange: self.history.content, RuleChange: self.history.rules,
            MemberChange: self.history.members, Query: self.history.queries,
        }  # fmt: skip
        with self._lock:
            for item in items:
                lists[type(item)].append(item)

    def refuse(self, what: str) -> None:
        """A query that was not answered."""
        with self._lock:
            self.refused.append(what)

    def receipts(self, receipts: Iterable[Receipt]) -> None:
        """When what stood in which generation."""
        for receipt in receipts:
            document, at = receipt.document, receipt.times.visible_at
            if receipt.lane != "index" or receipt.tenant != TENANT or document is None or at is None:
                continue
            if receipt.outcome not in STOOD:
                continue
            times = {"content": self.history.visible, "access": self.history.refreshed}.get(
                receipt.event_type.split(".", 1)[0]
            )
            if times is not None:
                times.setdefault((receipt.generation or "", document.id), []).append((receipt.version, at))


class Writer:
    """Changes documents and people of its own, one after the other, and records each once it has taken effect."""

    def __init__(
        self, stage: Stage, gateway: Changes, documents: Sequence[str], people: Sequence[str], seed: int
    ) -> None:
        self._stage, self._gateway = stage, gateway
        self._documents, self._people = list(documents), list(people)
        self._random = random.Random(seed)
        self._editions: dict[str, int] = {}
        self._deleted: set[str] = set()

    def begin(self) -> None:
        """All people and documents, in bulk."""
        for start in range(0, len(self._people), 100):
            self._send([self._member(person) for person in self._people[start : start + 100]])
        for start in range(0, len(self._documents), 50):
            self._send([self._upsert(d, with_rule=True) for d in self._documents[start : start + 50]])

    def step(self) -> None:
        """One random change. Raises InfraError."""
        kind = self._random.choices(list(_SHARES), list(_SHARES.values()))[0]
        if kind == "member" and self._people:
            self._send([self._member(self._random.choice(self._people))])
            return
        if kind == "restore" and self._deleted:
            document = self._random.choice(sorted(self._deleted))
            self._send([self._upsert(document, with_rule=True)])
            return
        document = self._random.choice([d for d in self._documents if d not in self._deleted])
        if kind == "delete" and len(self._deleted) < len(self._documents) // 4:
            self._send([{"type": "delete", "tenant": TENANT, "id": document}])
        elif kind == "rule":
            access = {"allow": self._readers()}
            self._send([{"type": "access", "tenant": TENANT, "id": document, "access": access}])
        else:
            self._send([self._upsert(document, with_rule=False)])

    def _member(self, person: str) -> dict[str, Any]:
        groups = self._random.sample(GROUPS, self._random.randint(0, 2))
        return {"type": "membership", "tenant": TENANT, "principal": f"user:{person}", "parents": groups}

    def _upsert(self, document: str, *, with_rule: bool) -> dict[str, Any]:
        edition = self._editions.get(document, -1) + 1
        self._editions[document] = edition
        made: dict[str, Any] = {
            "type": "upsert", "tenant": TENANT, "id": document, "title": f"Page {document}",
            "text": self._stage.text(document, edition), "content_type": "text/markdown; charset=utf-8",
        }  # fmt: skip
        if with_rule:
            made["access"] = {"allow": self._readers()}
        return made

    def _readers(self) -> list[str]:
        drawn = self._random.random()
        if drawn < 0.25:
            return ["everyone"]
        if drawn < 0.5:
            return [f"user:{p}" for p in self._random.sample(PEOPLE, 3)]
        return self._random.sample(GROUPS, self._random.randint(1, 2))

    def _send(self, changes: list[dict[str, Any]]) -> None:
        """Send, wait until the access lane has applied it, record."""
        sent = now()
        reply = self._insist(changes)
        done = now()
        for change, result in zip(changes, reply.results, strict=True):
            if change["type"] == "membership":
                person = change["principal"].removeprefix("user:")
                self._stage.add(MemberChange(person, frozenset(change["parents"]), sent, done))
                continue
            document = change["id"]
            if change["type"] == "delete":
                self._deleted.add(document)
                self._stage.add(ContentChange(document, None, result.content_version, sent, done))
            elif change["type"] == "upsert":
                self._deleted.discard(document)
                edition = self._editions[document]
                self._stage.add(ContentChange(document, edition, result.content_version, sent, done))
            if "access" in change:
                allow = frozenset(change["access"]["allow"])
                self._stage.add(RuleChange(document, allow, result.access_version, sent, done))

    def _insist(self, changes: list[dict[str, Any]]) -> ChangesReply:
        """Send again where the answer did not come: repeating a change changes nothing."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._gateway.send(changes, wait="applied")
            except InfraError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)


class Asker:
    """Asks as everybody in turn, for one document by its own word or broadly, and records the answers."""

    def __init__(self, stage: Stage, api: Searches, seed: int, distances: Distances, *, every: int = 8) -> None:
        self._stage, self._api, self._distances, self._every = stage, api, distances, every
        self._random = random.Random(seed)
        self._asked = 0

    def step(self) -> None:
        """One query. One that is not answered is recorded as refused."""
        self._asked += 1
        person = self._random.choice(PEOPLE)
        about = self._random.choice(self._stage.documents) if self._random.random() < 0.75 else None
        query = f"What does {word_of(about)} say?" if about else self._random.choice(self._stage.prose)
        began = now()
        try:
            reply = self._api.search(person, TENANT, query, k=10 if about else 50, rerank="off")
        except InfraError as error:
            self._stage.refuse(str(error))
            return
        ended = now()
        foreign = self._distances(reply, query) if self._asked % self._every == 0 else ()
        found = tuple(found_of(hit) for hit in reply.hits)
        self._stage.add(
            Query(person, about, began, ended, reply.judged_at, reply.generation or "", found, foreign)
        )  # fmt: skip


def found_of(hit: SearchHit) -> Found:
    """A hit as the history keeps it."""
    said = _EDITION.search(hit.text)
    edition = int(said.group(1)) if said else None
    return Found(hit.document_id, hit.version, edition, hit.chunk_index, hit.chunk_id)


class Stream:
    """Repeats a step in a thread, at most ``rate`` times a second, until stopped. An error ends it and is kept."""

    def __init__(self, name: str, step: Callable[[], None], rate: float) -> None:
        self._step, self._pause = step, 1.0 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.steps = 0
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._step()
                self.steps += 1
                self._stop.wait(max(0.0, self._pause - (time.monotonic() - began)))
        except BaseException as error:
            self.error = error

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step under way. Raises what ended it before."""
        self._stop.set()
        self._thread.join(120)
        if self.error is not None:
            raise self.error


def now() -> int:
    """µs of the clock that the product's processes use."""
    return time.time_ns() // 1000
