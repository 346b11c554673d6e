"""A log with documents, generations of the stub encoder over it, and whatever consumes them as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from consumers.index import group_of
from pipeline.bus.codec import access_record, content_record
from pipeline.bus.producer import KafkaAppender
from pipeline.bus.tail import commit_first_offsets, read_compacted
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.clock import SystemClock
from pipeline.index.schema import Collections
from pipeline.index.store import WeaviateStore
from pipeline.observe import Metrics, quiet_kafka
from pipeline.operate.progress import TOPICS
from pipeline.operate.workers import environment
from pipeline.settings import Settings
from schemas.access import AccessRule
from schemas.documents import Manifest
from schemas.events import AccessSet, ContentDeleted, ContentUpserted, InlineBody
from schemas.generation import BackendChoice, EncoderSpec, Generation, GenerationState
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.topics import Topic

TENANT = "acme"
RULE = AccessRule.model_validate({"clauses": [{"any_of": [{"principal": "everyone"}]}]})


def text_of(number: int, word: str = "first") -> str:
    """A page of several sections."""
    sections = [f"## Part {n}\n\nPage {number}, part {n}, says {word}. " + f"Line {number}-{n} goes on. " * 30
                for n in range(3)]  # fmt: skip
    return f"# Page {number}\n\n" + "\n\n".join(sections)


class World:
    """One namespace. ``close`` ends what was started and removes the namespace."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.store = WeaviateStore(settings)
        self.store.ensure_base()
        self.version = SystemClock().now()
        self._owner = KafkaAppender(settings, "owner", observed=Metrics())
        self._processes: list[subprocess.Popen[bytes]] = []
        self._made: list[Generation] = []

    # ------------------------------------------------------------ log

    def document(self, number: int, source: str = "wiki") -> DocumentRef:
        """The page of this number."""
        return DocumentRef(tenant=TENANT, source=source, id=f"page-{number}")

    def write(self, numbers: Sequence[int], word: str = "first", source: str = "wiki") -> None:
        """Append these pages with their rules, as an owner does."""
        for number in numbers:
            self.version += 1
            document, now = self.document(number, source), SystemClock().now()
            rule = AccessSet(
                document=document, version=self.version, content_version=self.version, rule=RULE, observed_at=now,
                priority="bulk",
            )  # fmt: skip
            page = ContentUpserted(
                document=document, version=self.version, access_version=self.version, title=f"Page {number}",
                content_type="text/markdown", body=InlineBody(text=text_of(number, word)), observed_at=now,
                priority="bulk",
            )  # fmt: skip
            self._owner.append([access_record(rule), content_record(page)])

    def delete(self, number: int) -> None:
        """Append the deletion of a page."""
        self.version += 1
        gone = ContentDeleted(
            document=self.document(number), version=self.version, access_version=0, observed_at=SystemClock().now()
        )
        self._owner.append([content_record(gone)])

    # ------------------------------------------------------------ generations

    def generation(self, name: str, state: GenerationState, *, dimension: int = 384) -> Generation:
        """A generation of the stub encoder, made as the control consumer makes it."""
        made = Generation(
            name=name, state=state, encoder=EncoderSpec(dimension=dimension), created_at=SystemClock().now(),
            backend=BackendChoice(name="stub", agreement=1.0),
        )  # fmt: skip
        self.store.ensure_generation(made)
        commit_first_offsets(self.settings, group_of(name), TOPICS, ends=[Topic.MAINTENANCE])
        self.store.write_generation(made)
        if state == "active":
            self.store.set_active_generation(name)
        self._made.append(made)
        return made

    def set_state(self, name: str, state: GenerationState) -> None:
        """Write the record in another state."""
        found = self.store.read_generations()[name]
        self.store.write_generation(found.model_copy(update={"state": state, "version": found.version + 1}))

    # ------------------------------------------------------------ what came of it

    def manifests(self, generation: str, numbers: Sequence[int]) -> dict[int, Manifest]:
        """Manifests of pages."""
        uids = {self.document(n).uid: n for n in numbers}
        found = self.store.read_manifests(generation, TENANT, list(uids))
        return {uids[uid]: manifest for uid, manifest in found.items()}

    def assert_whole(self, generation: str, numbers: Sequence[int]) -> dict[int, list[str]]:
        """Every page stands with all its chunks, once, and nothing else does; chunk ids by page."""
        manifests = self.manifests(generation, numbers)
        assert sorted(manifests) == sorted(numbers)
        ids: dict[int, list[str]] = {}
        for number, manifest in manifests.items():
            listed = [entry.chunk_id for entry in manifest.chunks]
            standing = self.store.chunk_ids_of(generation, manifest.document)
            assert standing == {"hot": set(listed), "cold": set()}, number
            assert len(self.store.read_vectors(generation, TENANT, listed)) == len(listed), "every chunk has its vector"
            ids[number] = sorted(listed)
        live = sum(len(listed) for listed in ids.values())
        assert sum(self.store.count_chunks(generation, TENANT).values()) == live
        return ids

    def receipts(self, generation: str) -> list[Receipt]:
        """Of the generation's content and maintenance."""
        found = (Receipt.model_validate_json(r.value or b"") for r in read_compacted(self.settings, Topic.RECEIPTS))
        return [r for r in found if r.generation == generation and not r.event_type.startswith("access")]

    # ------------------------------------------------------------ processes

    def process(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """``python -m consumers ARGUMENTS``; its log is ``log_of`` it."""
        with (self.folder / f"process-{len(self._processes)}.log").open("wb") as stream:
            made = subprocess.Popen(
                [sys.executable, "-m", "consumers", *arguments], stdout=stream, stderr=stream,
                env=environment(self.settings) | variables,
            )  # fmt: skip
        self._processes.append(made)
        return made

    def log_of(self, process: subprocess.Popen[bytes]) -> str:
        """What it logged."""
        return (self.folder / f"process-{self._processes.index(process)}.log").read_text()

    def close(self) -> None:
        """End and remove everything."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._owner.close()
        for generation in self._made:
            self.store.drop_generation(generation.name)
        names = Collections(self.settings.namespace)
        client = self.store._connection.client()
        for name in (names.access, names.principals, names.progress, names.generations):
            client.collections.delete(name)
        self.store.close()
        delete_topics(self.settings)


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    """An empty namespace with short sessions and waits."""
    quiet_kafka()
    kafka = settings.kafka.model_copy(update={"index_session_s": 3.0, "heartbeat_s": 0.5, "safety_window": 5})
    index = settings.index.model_copy(update={"query_deadline_s": 0.5})
    ensure_topics(settings)
    made = World(settings.model_copy(update={"kafka": kafka, "index": index}), tmp_path)
    yield made
    made.close()
