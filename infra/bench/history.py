"""``handbook_replay``: a wiki's whole life through one source's ledger, and the index that is left of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from infra import corpus
from infra.bench import pages
from infra.bench.endstate import Chunks, EndState, Held, differences
from infra.bench.ingest import visible
from infra.bench.receipts import Key
from infra.bench.report import Result, quotient, rounded, skipped
from infra.bench.session import Session
from infra.bench.world import World
from infra.errors import InfraError
from pipeline.ports import Observation, SourceDeletion, SourceDocument
from schemas.access import AccessRule
from schemas.documents import Manifest
from schemas.keys import DocumentRef

SOURCE = "handbook"
REPLAYED, FRESH = "replayed", "fresh"
SETTLE_S = 1800.0
REMOVED_S = 60.0


def handbook_replay(session: Session) -> Iterable[Result]:
    """All events in order; then the same end state as a build of the last state alone."""
    if not pages.HANDBOOK.is_file():
        yield skipped("handbook_replay", f"{corpus.HANDBOOK} is not beside this checkout")
        return
    world, report = session.live(), session.report
    events = list(read(pages.HANDBOOK))[: session.sizes.events]
    ever = sorted({event["page_id"] for event in events})
    report.step("handbook_replay", f"{len(events)} events")
    begun = time.time_ns() // 1000
    ended, embedded = _feed(world, REPLAYED, (observation(REPLAYED, event) for event in events))
    seconds = (ended - begun) / 1e6
    report.step("handbook_replay", "a fresh build of the last state")
    _feed(world, FRESH, (observation(FRESH, event) for event in last_state(events)))
    report.step("handbook_replay", "comparing")
    generation = world.generation().name
    faults = differences(_settled(world, generation, REPLAYED, ever), _settled(world, generation, FRESH, ever))
    report.finish("handbook_replay", f"{len(events)} events in {seconds:.1f} s")
    yield replay_result(len(events), seconds, embedded, faults)


def replay_result(events: int, seconds: float, embedded: int, faults: Sequence[str]) -> Result:
    """Events a second; it passes when nothing differs."""
    extra: dict[str, object] = {
        "events": events,
        "seconds": rounded(seconds),
        "chunks_embedded": embedded,
        "equal_to_fresh_build": not faults,
    }
    if faults:
        extra["differences"] = list(faults)
    return Result("handbook_replay", quotient(events, seconds), "events/s", ok=not faults and events > 0, extra=extra)


def read(events: Path) -> Iterator[dict[str, Any]]:
    """The events in order of ``seq``."""
    with events.open(encoding="utf-8") as lines:
        yield from sorted((json.loads(line) for line in lines), key=lambda event: int(event["seq"]))


def last_state(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest event of each page that is not deleted at the end."""
    live: dict[str, dict[str, Any]] = {}
    for event in events:
        if event["op"] == "delete":
            live.pop(event["page_id"], None)
        else:
            live[event["page_id"]] = event
    return list(live.values())


def observation(tenant: str, event: dict[str, Any]) -> Observation:
    """What the wiki shows of a page after the event."""
    document = DocumentRef(tenant=tenant, source=SOURCE, id=event["page_id"])
    if event["op"] == "delete":
        return SourceDeletion(document)
    return SourceDocument(
        document=document,
        title=event.get("title") or event["path"],
        body=event["text"].encode(),
        content_type=pages.MARKDOWN,
        rule=AccessRule.any_of("everyone"),
        path=event["path"],
        revision=event["rev"],
    )


def _feed(world: World, tenant: str, seen: Iterable[Observation]) -> tuple[int, int]:
    """Append everything and wait for it: when the last was visible (µs), and chunks embedded."""
    fed = world.feeder(tenant, SOURCE).write(seen, priority="bulk")
    found = world.receipts.wait([*fed.content, *fed.access], SETTLE_S)
    bad = [r for r in found.values() if r.outcome in ("dead_letter", "body_gone", "parked", "refused")]
    if bad:
        raise InfraError(f"{len(bad)} events were not processed, one is {bad[0].outcome}: {bad[0].reason}.", "")
    ours: list[Key] = list(fed.content)
    return max(visible(found[key]) for key in ours), sum(found[key].chunks_embedded for key in ours)


def _settled(world: World, generation: str, tenant: str, ids: Sequence[str]) -> EndState:
    """The end state once replaced chunks have been removed."""
    end = time.monotonic() + REMOVED_S
    while True:
        state = end_state(world, generation, tenant, ids)
        listed = sum(len(document.chunks) for document in state.documents)
        if (state.stored_chunks == listed and not state.undead) or time.monotonic() > end:
            return state
        time.sleep(1.0)


def end_state(world: World, generation: str, tenant: str, ids: Sequence[str]) -> EndState:
    """What the generation holds of these documents of the tenant, and how many chunks stand there in all."""
    refs = {ref.uid: ref for ref in (DocumentRef(tenant=tenant, source=SOURCE, id=name) for name in ids)}
    manifests = world.store.read_manifests(generation, tenant, list(refs))
    live = [m for m in manifests.values() if not m.deleted and m.chunk_total]
    texts = asyncio.run(_texts(world, generation, tenant, live))
    gone = [ref for uid, ref in refs.items() if uid not in manifests or manifests[uid].deleted]
    undead = [ref.id for ref in gone if any(world.store.chunk_ids_of(generation, ref).values())]
    held = tuple(Held(m.path or "", m.title, texts[m.document.uid]) for m in live)
    return EndState(held, sum(world.store.count_chunks(generation, tenant).values()), tuple(undead))


async def _texts(world: World, generation: str, tenant: str, manifests: Sequence[Manifest]) -> dict[str, Chunks]:
    """Chunks of each document in order; a listed chunk that does not stand in the store shows as missing."""
    from pipeline.index.reader import WeaviateReader

    reader = WeaviateReader(world.settings)
    found = {}
    try:
        for manifest in manifests:
            whole = world.store.read_manifest_pages(generation, manifest) if manifest.pages else manifest
            ids = [entry.chunk_id for entry in whole.chunks]
            stored = await reader.chunks(generation, tenant, ids)
            found[manifest.document.uid] = tuple(
                (stored[i].heading_path, stored[i].text) if i in stored else ((), f"missing {i}") for i in ids
            )
    finally:
        await reader.close()
    return found
