"""A folder, its owner in a thread on real Kafka, and a tail that notes when each event could be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consumers.owner import SourceOwner
from consumers.owner_log import KafkaOwnerLog, RequestFeed, cursor_offset
from pipeline.bus.bodies import FsspecBodyStore
from pipeline.bus.tail import KafkaTail
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.clock import SystemClock
from pipeline.observe import Metrics, quiet_kafka
from pipeline.ports import Record
from pipeline.settings import Settings
from pipeline.settings_sources import FolderSettings
from schemas.events import ACCESS_EVENT, CONTENT_EVENT, MembershipSet
from schemas.topics import Topic

GROUPS = "users: [ann, bob, cleo]\ngroups:\n  eng: [ann, bob]\n"


class Seen:
    """Everything that came on content, access and membership, with the time at which it could be read."""

    def __init__(self, settings: Settings) -> None:
        self.records: list[tuple[float, Record]] = []
        self._tail = KafkaTail(settings, [Topic.CONTENT, Topic.ACCESS, Topic.MEMBERSHIP], since="beginning")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for record in self._tail.poll(50):
                self.records.append((time.monotonic(), record))

    def of(self, topic: Topic) -> list[object]:
        """Events of a topic."""
        readers: dict[Topic, Callable[[bytes], Any]] = {
            Topic.CONTENT: CONTENT_EVENT.validate_json,
            Topic.ACCESS: ACCESS_EVENT.validate_json,
            Topic.MEMBERSHIP: MembershipSet.model_validate_json,
        }
        return [readers[topic](r.value or b"") for _, r in list(self.records) if r.topic == topic]

    def await_(self, condition: Callable[[], bool], seconds: float = 20) -> float:
        """Wait for the condition; the seconds it took."""
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < seconds, f"nothing within {seconds:.0f} s"
            time.sleep(0.002)
        return time.monotonic() - started

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._tail.close()


class Tree:
    """Files, and owners of them."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root, self.settings = root, settings
        self.source = FolderSettings(name="wiki", tenant="acme", path=root, walk_s=60)
        self.running: list[tuple[SourceOwner, threading.Thread]] = []
        self.feed: RequestFeed | None = None

    def put(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def own(self) -> SourceOwner:
        """A new owner in a thread; returns when it has listed everything."""
        owner = SourceOwner(
            self.settings,
            self.source,
            open_log=partial(KafkaOwnerLog, self.settings, "acme", "wiki"),
            bodies=FsspecBodyStore.of(self.settings),
            clock=SystemClock(),
            requests=self.feed.of("acme", "wiki") if self.feed is not None else None,
            observed=Metrics(),
            moves=partial(cursor_offset, self.settings, "acme", "wiki"),
            standby_s=1.0,
        )
        thread = threading.Thread(target=owner.run, daemon=True)
        thread.start()
        self.running.append((owner, thread))
        deadline = time.monotonic() + 30
        while owner.state != "running" or owner.health().get("busy"):
            assert time.monotonic() < deadline, owner.health()
            time.sleep(0.01)
        return owner

    def leave(self) -> None:
        """All owners stop in order."""
        for owner, thread in self.running:
            owner.stop()
            thread.join(20)
            assert not thread.is_alive()
        self.running.clear()


@pytest.fixture
def tree(settings: Settings, tmp_path: Path) -> Iterator[Tree]:
    quiet_kafka()
    ensure_topics(settings)
    root = tmp_path / "wiki"
    root.mkdir()
    made = Tree(root, settings)
    made.put("groups.yaml", GROUPS)
    made.put("index.md", "# Home\n\nWelcome.")
    made.put("eng/.access.yaml", "allow: [group:eng]")
    made.put("eng/runbook.md", "# Runbook\n\nRestart it.")
    time.sleep(0.25)  # the folders are no longer new
    yield made
    made.leave()
    if made.feed is not None:
        made.feed.close()
    delete_topics(settings)


@pytest.fixture
def seen(tree: Tree) -> Iterator[Seen]:
    made = Seen(tree.settings)
    yield made
    made.close()
