"""A whole migration under a stream of changes and queries: build, verify, activate, roll back, activate, retire, drop.

Every answer is judged against the model of what was changed (``history``); the last line counts what was wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infra.asking import QueryApi
from infra.bench import pages
from infra.bench.migration.history import NEVER, Period, Verdict, judge, lags
from infra.bench.migration.traffic import DISTANCE, PEOPLE, TENANT, Asker, Stage, Stream, Writer, now
from infra.bench.report import Result, spread
from infra.bench.session import Session
from infra.bench.world import World
from infra.commands.tokens import with_secret
from infra.errors import InfraError
from pipeline.embed.catalogue import known_encoder
from pipeline.embed.packages import fetch
from pipeline.embed.weights import on_this_machine
from pipeline.errors import Retry
from pipeline.operate import build, control, verification
from pipeline.ports import Embedder
from pipeline.settings import Settings
from schemas.api import SearchResponse
from schemas.generation import Generation

PROCESSES = ("control", "access", "index", "gateway", "query")
OLD, NEW = "minilm", "bge_small"
ENCODER = "bge-small"  # of equal dimension: nothing but the record tells its vectors from the old ones
WRITERS, ASKERS = 2, 2
PER_S = 2.5  # changes, and queries, of each stream: more would leave two cores nothing for the build
BEGIN_S, SETTLE_S = 600.0, 120.0

Chaos = Callable[[str, World], None]
"""Called as each phase begins, with its name: fault tests kill something then."""


@dataclass
class Migration:
    """One run. ``served`` are the periods in which each generation was the active one."""

    stage: Stage
    verdict: Verdict = field(default_factory=Verdict)
    phases: dict[str, float] = field(default_factory=dict)
    served: list[Period] = field(default_factory=list)
    steady: tuple[int, int] = (0, 0)  # before the migration began
    freed: dict[str, Any] = field(default_factory=dict)

    def line(self) -> dict[str, object]:
        """The counts, as they are printed last."""
        before, during = self._lags(*self.steady), self._lags(self.steady[1], NEVER)
        v = self.verdict
        return {
            "documents": len(self.stage.documents), "changes": len(self.stage.history.content),
            "rules": len(self.stage.history.rules), "memberships": len(self.stage.history.members),
            "queries": v.queries, "refused": len(self.stage.refused), "mixed": v.mixed, "missed": v.missed,
            "doubled": v.doubled, "forbidden": v.forbidden, "stale": v.stale, "regressed": v.regressed,
            "lag_before_ms": spread(before), "lag_during_ms": spread(during),
            "phases_s": {name: round(seconds, 1) for name, seconds in self.phases.items()}, "freed": self.freed,
        }  # fmt: skip

    def _lags(self, first: int, last: int) -> list[float]:
        within = [Period(p.generation, max(first, p.since), min(last, p.until)) for p in self.served]
        return lags(self.stage.history, within)


def migration(session: Session) -> Iterable[Result]:
    """The whole of it, in a world of its own."""
    sizes = session.sizes
    folder = session.folder / "worlds" / "migration"
    world = session.world("migration", lambda: World(session.endpoints, folder, PROCESSES))
    found = migrate(
        world, documents=sizes.migration_documents, soak_s=sizes.migration_soak_s,
        say=lambda phase: session.report.step("migration", phase),
    )  # fmt: skip
    session.report.finish("migration")
    found.stage.history.write(session.folder / "migration-history.jsonl")
    yield Result("migration", None, "", ok=found.verdict.right, extra={"examples": found.verdict.examples[:5]})
    yield Result("migration", None, "", ok=found.verdict.right, whole=found.line())


def migrate(
    world: World,
    *,
    documents: int,
    soak_s: float,
    per_s: float = PER_S,
    say: Callable[[str], None],
    chaos: Chaos = lambda phase, world: None,
) -> Migration:
    """Run it on an open world and judge it. Raises InfraError where a step is refused or does not end."""
    say("encoder files")
    known = known_encoder(ENCODER)
    if not on_this_machine(known.spec, world.settings):
        fetch(known, world.settings, say)
    stage = Stage(tuple(f"d{n:04}" for n in range(documents)), _prose())
    found = Migration(stage)
    with ExitStack() as closing:
        writers = [_writer(world, stage, number, closing) for number in range(WRITERS)]
        _begin(world, stage, writers, say)
        distances = Distances(world)
        askers = [_asker(world, stage, number, distances, closing) for number in range(ASKERS)]
        streams = [Stream(f"changes-{n}", w.step, per_s) for n, w in enumerate(writers)]
        streams += [Stream(f"queries-{n}", a.step, per_s) for n, a in enumerate(askers)]
        for stream in streams:
            stream.start()
        try:
            _phases(world, found, soak_s, say, chaos)
        finally:
            for stream in streams:
                stream.stop()
        say("judging")
        _settle(world, stage)
    stage.receipts(world.receipts.since(0))
    found.verdict = judge(stage.history, found.served)
    return found


def _phases(world: World, found: Migration, soak_s: float, say: Callable[[str], None], chaos: Chaos) -> None:
    settings = with_secret(world.settings)  # searches in the shadow need an operator's token

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        say(name)
        chaos(name, world)
        began = time.monotonic()
        yield
        found.phases[name] = found.phases.get(name, 0.0) + time.monotonic() - began

    def soak(name: str) -> None:
        with phase(name):
            time.sleep(soak_s)

    def switch(name: str, kind: control.CommandType, to: str) -> None:
        at = now()
        with phase(name):
            _send(settings, kind, to)
        found.served[-1] = found.served[-1]._replace(until=at)
        # going back is allowed to show an older edition where the standby lags: the answer warns of it
        found.served.append(Period(to, at, strict=kind == "activate"))

    found.served.append(Period(OLD, 0))
    began = now()
    soak("before")
    found.steady = (began, now())
    with phase("create"):
        _send(settings, "create", NEW, declaration={"encoder": known_encoder(ENCODER).spec.model_dump(mode="json")})
    with phase("build"):
        build.build(settings, NEW, workers=1, environment=world.process_environment())
    soak("dual writing")
    with phase("verify"):
        report = verification.verify(settings, NEW, against=OLD)
        if not report.verdict.passed:
            raise InfraError(f"The verification did not pass: {report.verdict.failures}.", f"Read {report.path}.")
    switch("activate", "activate", NEW)
    soak("new active")
    switch("rollback", "rollback", OLD)
    soak("old active")
    with phase("verify"):
        verification.verify(settings, NEW, against=OLD)
    switch("activate", "activate", NEW)
    soak("new active")
    with phase("retire"):
        _send(settings, "retire", OLD)
    with phase("drop"):
        _send(settings, "drop", OLD, override="the benchmark does not wait")
    freed = control.known(settings).one(OLD).freed
    found.freed = freed.model_dump() if freed is not None else {}
    soak("after")


# ---------------------------------------------------------------- parts


def _prose() -> list[str]:
    return pages.sentences(page.text for page in pages.wiki_pages(pages.WIKI))


def _send(settings: Settings, kind: control.CommandType, generation: str, **fields: Any) -> None:
    """Send until it is not refused for what passes: workers that leave, query services that still load or switch."""
    end = time.monotonic() + SETTLE_S
    while True:
        try:
            control.send(settings, kind, generation, requested_by="bench", timeout_s=BEGIN_S, **fields)
            return
        except control.Refused:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def _writer(world: World, stage: Stage, number: int, closing: ExitStack) -> Writer:
    gateway = world.new_gateway()
    closing.callback(gateway.close)
    return Writer(stage, gateway, stage.documents[number::WRITERS], PEOPLE[number::WRITERS], seed=41 + number)


def _asker(world: World, stage: Stage, number: int, distances: Distances, closing: ExitStack) -> Asker:
    api = closing.enter_context(QueryApi(world.settings))
    return Asker(stage, api, 61 + number, distances)


def _begin(world: World, stage: Stage, writers: list[Writer], say: Callable[[str], None]) -> None:
    """The first edition of everything, all of it searchable."""
    say("first editions")
    for writer in writers:
        writer.begin()
    _settle(world, stage, BEGIN_S)


def _settle(world: World, stage: Stage, seconds: float = SETTLE_S) -> None:
    """Until every content event has its receipt in the active generation."""
    name = world.generation().name
    newest = {c.document: c.version for c in stage.history.content}
    end = time.monotonic() + seconds
    seen = 0
    while newest:
        receipts = world.receipts.since(seen)
        seen += len(receipts)
        for receipt in receipts:
            document = receipt.document
            if receipt.lane != "index" or receipt.generation != name or document is None:
                continue
            if receipt.event_type.startswith("content") and receipt.version >= newest.get(document.id, 2**62):
                newest.pop(document.id)
        if newest and time.monotonic() > end:
            raise InfraError(f"{len(newest)} documents were not indexed within {seconds:.0f} s.", "Read index.log.")
        time.sleep(0.2 if newest else 0)


class Distances:
    """Whether hits were found by the vectors of the generation that the reply names. Called from any thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._encoders: dict[str, tuple[Generation, Embedder]] = {}
        self._lock = threading.Lock()

    def __call__(self, reply: SearchResponse, query: str) -> tuple[str, ...]:
        """Hits whose distance differs from what that generation's encoder and stored vectors give."""
        hits = {h.chunk_id: h.scores.dense_distance for h in reply.hits if h.scores.dense_distance is not None}
        if reply.generation is None or not hits:
            return ()
        generation, encoder = self._encoder(reply.generation)
        asked = encoder.embed_query(query)[0]
        try:
            stored = self._world.store.read_vectors(generation.name, TENANT, list(hits))
        except Retry:
            return ()  # the store was killed meanwhile: there is nothing to compare with
        given = {chunk_id: 1.0 - float(np.dot(asked, vector)) for chunk_id, vector in stored.items()}
        return tuple(
            f"{chunk_id} told {hits[chunk_id]:.4f}, is {given[chunk_id]:.4f}"
            for chunk_id in given
            if abs(given[chunk_id] - hits[chunk_id]) > DISTANCE
        )

    def _encoder(self, name: str) -> tuple[Generation, Embedder]:
        from pipeline.bootstrap import build_encoder

        with self._lock:
            if name not in self._encoders:
                generation = self._world.store.read_generations()[name]
                self._encoders[name] = (generation, build_encoder(self._world.settings, generation, for_queries=True))
            return self._encoders[name]
