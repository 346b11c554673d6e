"""Lag: from a change to its visibility, idle and behind bulk work; deletions and revocations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from infra.bench import pages
from infra.bench.feeding import Feeder
from infra.bench.ingest import await_end, observed, upsert, visible
from infra.bench.pages import Page
from infra.bench.receipts import Key
from infra.bench.report import Result, at_most, lag_verdict, percentile, quotient, rounded, spread
from infra.bench.session import Session
from infra.bench.world import FOLDER_TENANT, World
from infra.errors import InfraError
from pipeline.ports import Embedder
from schemas.access import AccessRule
from schemas.api_changes import ChangeResult, ChangesReply
from schemas.receipts import Receipt

WARM_UP = 3
PAUSE_S = 0.05  # between two changes: one at a time, on a system that has come to rest
PATIENCE_S = 60.0
P95_MS, P99_MS, ENCODES = 100.0, 200.0, 2.5
FOLDER_MS = 500.0
BULK_FACTOR = 2.0
REMOVAL_MS, BEHIND_BACKLOG_MS = 100.0, 250.0
SHORT = {"text": "A page whose readers change. It is short."}


@dataclass
class Lags:
    """Milliseconds: request to visible, and one encode of the same text."""

    lags: list[float] = field(default_factory=list)
    encodes: list[float] = field(default_factory=list)


# ---------------------------------------------------------------- upserts


def lag_idle(session: Session) -> Iterable[Result]:
    """Short documents one at a time through the change gateway: request to receipt's visibility."""
    world = session.live()
    encoder = session.encoder(world)
    found = _measure(session, world, "idle", session.sizes.lags, encoder)
    session.idle_lag = found.lags
    yield idle_result(found)


def idle_result(found: Lags) -> Result:
    """Passes by the clock, or by the factor over one encode where the machine is busy."""
    encode = percentile(found.encodes, 0.95)
    ratio, ok = lag_verdict(found.lags, encode, p95=P95_MS, p99=P99_MS, factor=ENCODES)
    middle = quotient(percentile(found.lags, 0.5), percentile(found.encodes, 0.5))
    extra = spread(found.lags) | {
        "target_p99": P99_MS,
        "encode_p50": rounded(percentile(found.encodes, 0.5)),
        "encode_p95": rounded(encode),
        "ratio_of_p50": rounded(middle),
        "ratio_target": ENCODES,
    }
    return Result("lag_idle", percentile(found.lags, 0.95), "ms", P95_MS, ratio, ok, extra)


def _measure(
    session: Session, world: World, tenant: str, count: int, encoder: Embedder | None = None, *, first: int = 0
) -> Lags:
    """``count`` documents one after the other, from number ``first``; before number 0 a few warm up."""
    found = Lags()
    warm = WARM_UP if first == 0 else 0
    texts = pages.short_texts(_pool(), first + count + WARM_UP, seed=29)
    start = first + WARM_UP - warm
    for number in range(start, first + count + WARM_UP):
        if encoder is not None:
            begun = time.perf_counter()
            encoder.embed_documents([texts[number]])
            found.encodes.append((time.perf_counter() - begun) * 1000)
            time.sleep(PAUSE_S)
        page = Page(f"{tenant}-{number}", f"Note {number}", texts[number], "text/plain")
        found.lags.append(_one(world, tenant, page))
        session.progress(f"lag_{tenant}", max(0, number + 1 - start - warm), count)
        time.sleep(PAUSE_S)
    session.report.finish(f"lag_{tenant}")
    del found.lags[:warm], found.encodes[:warm]
    return found


def _one(world: World, tenant: str, page: Page) -> float:
    """Milliseconds from the request to the later of both lanes."""
    sent = time.time_ns() // 1000
    reply = world.gateway.send([upsert(tenant, page)])
    result = reply.results[0]
    found = world.receipts.wait(_keys(tenant, result), PATIENCE_S)
    return (max(visible(receipt) for receipt in found.values()) - sent) / 1000


def _keys(tenant: str, result: ChangeResult) -> list[Key]:
    uid = str(result.document_uid)
    return [Key("index", tenant, uid, result.content_version), Key("access", tenant, uid, result.access_version)]


def _pool() -> list[str]:
    return pages.sentences(page.text for page in pages.wiki_pages(pages.WIKI))


def lag_folder(session: Session) -> Iterable[Result]:
    """Files written into a watched folder: last write to visibility."""
    world, count = session.live(), session.sizes.folder_lags
    lags: list[float] = []
    for number, text in enumerate(pages.short_texts(_pool(), count + WARM_UP, seed=31)):
        name, mark = f"note-{number}.md", world.receipts.mark()
        (world.wiki / name).write_text(text, encoding="utf-8")
        written = time.time_ns() // 1000
        receipt = world.receipts.first(_indexed(name), mark, PATIENCE_S)
        lags.append((visible(receipt) - written) / 1000)
        session.progress("lag_folder", max(0, number + 1 - WARM_UP), count)
        time.sleep(PAUSE_S)
    session.report.finish("lag_folder")
    del lags[:WARM_UP]
    p95 = percentile(lags, 0.95)
    yield Result("lag_folder", p95, "ms", FOLDER_MS, quotient(p95, FOLDER_MS), at_most(p95, FOLDER_MS), spread(lags))


def _indexed(name: str) -> Callable[[Receipt], bool]:
    def holds(receipt: Receipt) -> bool:
        document = receipt.document
        return (
            receipt.lane == "index"
            and receipt.tenant == FOLDER_TENANT
            and document is not None
            and document.id == name
            and receipt.event_type.startswith("content")
        )

    return holds


def lag_bulk(session: Session) -> Iterable[Result]:
    """The same while a reindex of many documents is under way, against the idle lag of the same run."""
    world, sizes = session.live(), session.sizes
    idle = session.idle_lag or _measure(session, world, "calm", max(3, sizes.lags // 3)).lags
    backlog = [observed("reindex", page) for page in pages.shuffled(_pool(), sizes.bulk_documents, seed=37)]
    feeder = world.feeder("reindex", "owned")
    feeder.write(backlog, priority="bulk")
    busy: list[float] = []
    left = _still_waiting(world, "reindex", len(backlog))
    while len(busy) < sizes.lags and (still := _still_waiting(world, "reindex", len(backlog))):
        left = still
        busy += _measure(session, world, "bulk", min(10, sizes.lags), first=len(busy)).lags
    session.report.step("lag_bulk", "letting the backlog end")
    await_end(world, world.generation().name)
    session.report.finish("lag_bulk")
    yield bulk_result(busy, idle, left)


def _still_waiting(world: World, tenant: str, written: int) -> int:
    return max(0, written - world.receipts.count(tenant, "index.content"))


def bulk_result(busy: Sequence[float], idle: Sequence[float], left: int) -> Result:
    """``left``: bulk documents that still waited when the last ten changes began."""
    p95, calm = percentile(busy, 0.95), percentile(idle, 0.95)
    ratio = quotient(p95, calm)
    extra = spread(busy) | {"idle_p95": rounded(calm), "idle_p50": rounded(percentile(idle, 0.5)), "bulk_left": left}
    return Result("lag_bulk", p95, "ms", BULK_FACTOR, ratio, at_most(ratio, BULK_FACTOR), extra)


# ---------------------------------------------------------------- deletions and revocations


@dataclass
class Removals:
    """Milliseconds: append to applied, by receipts; and the whole request with ``wait=applied``, from outside."""

    applied: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)

    def result(self, bench: str, target: float, **extra: object) -> Result:
        """p99 against the target."""
        p99 = percentile(self.applied, 0.99)
        shown = spread(self.applied) | spread(self.outside, "outside_") | extra
        return Result(bench, p99, "ms", target, quotient(p99, target), at_most(p99, target), shown)


def delete_lag(session: Session) -> Iterable[Result]:
    """Deletions one at a time: append to hidden."""
    world, count, tenant = session.live(), session.sizes.removals, "deletions"
    _create(world, tenant, count + WARM_UP)
    changes = [{"type": "delete", "tenant": tenant, "id": f"d{number}"} for number in range(count + WARM_UP)]
    yield _remove(session, world, "delete_lag", changes).result("delete_lag", REMOVAL_MS)


def revoke_lag(session: Session) -> Iterable[Result]:
    """Rules that lose a reader and people who lose a group, in turn: append to applied."""
    world, count, tenant = session.live(), session.sizes.removals, "revocations"
    _create(world, tenant, count // 2 + WARM_UP)
    _join(world, tenant, count // 2 + WARM_UP)
    changes = revocations(tenant, count // 2 + WARM_UP)
    found = _remove(session, world, "revoke_lag", changes)
    yield found.result("revoke_lag", REMOVAL_MS)


def revocations(tenant: str, pairs: int) -> list[dict[str, Any]]:
    """A rule and a membership in turn, each taking something away from the state that was set up."""
    found: list[dict[str, Any]] = []
    for number in range(pairs):
        closed = {"allow": ["user:nobody-else"]}
        found.append({"type": "access", "tenant": tenant, "id": f"d{number}", "access": closed})
        found.append({"type": "membership", "tenant": tenant, "principal": f"user:m{number}", "parents": []})
    return found


def _create(world: World, tenant: str, count: int) -> None:
    """Short documents that everyone may read; all of them indexed."""
    changes = [
        {
            "type": "upsert", "tenant": tenant, "id": f"d{number}", "title": f"Page {number}",
            "text": f"{SHORT['text']} Its number is {number}.", "access": {"allow": ["everyone"]}, "priority": "bulk",
        }
        for number in range(count)
    ]  # fmt: skip
    keys: list[Key] = []
    for start in range(0, count, 100):
        reply = world.gateway.send(changes[start : start + 100])
        keys += [key for result in reply.results for key in _keys(tenant, result)]
    world.receipts.wait(keys, 300)


def _join(world: World, tenant: str, count: int) -> None:
    """People who are members of one group."""
    world.gateway.send(
        [
            {
                "type": "membership", "tenant": tenant, "principal": f"user:m{number}",
                "parents": ["group:gateway/readers"],
            }
            for number in range(count)
        ],
        wait="applied",
    )  # fmt: skip


def _remove(session: Session, world: World, bench: str, changes: Sequence[dict[str, Any]]) -> Removals:
    found = Removals()
    warm = WARM_UP * (2 if bench == "revoke_lag" else 1)
    for number, change in enumerate(changes):
        _remove_one(world, change, found)
        session.progress(bench, max(0, number + 1 - warm), len(changes) - warm)
        time.sleep(PAUSE_S / 2)
    session.report.finish(bench)
    del found.applied[:warm], found.outside[:warm]
    return found


def _remove_one(world: World, change: dict[str, Any], found: Removals) -> None:
    begun = time.perf_counter()
    reply = world.gateway.send([change], wait="applied")
    found.outside.append((time.perf_counter() - begun) * 1000)
    receipt = world.receipts.wait([_removal_key(change, reply)], PATIENCE_S).popitem()[1]
    appended = receipt.times.appended_at
    if appended is None or receipt.outcome != "applied":
        raise InfraError(f"A removal was not applied but {receipt.outcome}: {receipt.reason}.", "Run it again.")
    found.applied.append((visible(receipt) - appended) / 1000)


def _removal_key(change: dict[str, Any], reply: ChangesReply) -> Key:
    result, tenant = reply.results[0], str(change["tenant"])
    if result.principal is not None:
        return Key("membership", tenant, result.principal, result.version)
    return Key("access", tenant, str(result.document_uid), result.access_version)


def revoke_lag_backlog(session: Session) -> Iterable[Result]:
    """Revocations while ten thousand bulk documents are appended, and while they wait to be indexed."""
    world, count, flood = session.live(), session.sizes.removals // 2, session.sizes.flood
    _create(world, "behind", count + WARM_UP)
    _join(world, "behind", count + WARM_UP)
    changes = revocations("behind", count + WARM_UP)
    for change in changes[: 2 * WARM_UP]:
        _remove_one(world, change, Removals())
    during, after = Removals(), Removals()
    with _flooding(world.feeder("flood", "owned"), flood) as flooding:
        while world.receipts.count("flood", "access") == 0 and flooding.is_alive():
            time.sleep(0.01)
        access_left = flood - world.receipts.count("flood", "access")
        for number, change in enumerate(changes[2 * WARM_UP :]):
            # Half of them while the backlog is being appended, half behind all of it.
            if number == count:
                flooding.join()
            _remove_one(world, change, during if flooding.is_alive() else after)
            session.progress("revoke_lag_backlog", number + 1, 2 * count)
    left = _still_waiting(world, "flood", flood)
    session.report.finish("revoke_lag_backlog", f"{left} documents still waited")
    together = Removals(during.applied + after.applied, during.outside + after.outside)
    result = together.result(
        "revoke_lag_backlog", BEHIND_BACKLOG_MS, backlog=flood, access_backlog_at_start=access_left,
        index_backlog_at_end=left, during_p99=rounded(percentile(during.applied, 0.99)), during_n=len(during.applied),
        after_p99=rounded(percentile(after.applied, 0.99)), after_n=len(after.applied),
    )  # fmt: skip
    session.close_world()  # nobody waits until all that is embedded
    yield result


@contextmanager
def _flooding(feeder: Feeder, count: int) -> Iterator[threading.Thread]:
    """A thread that appends bulk documents as fast as the log takes them."""
    faults: list[BaseException] = []

    def flood() -> None:
        try:
            rule = AccessRule.any_of("group:owned/readers", "user:reader")
            text = "Bulk page {0}: the reading of sensor {0} was copied from the old system on day {0}."
            made = (Page(f"b{n}", f"Bulk {n}", text.format(n), "text/plain") for n in range(count))
            feeder.write((observed("flood", page, rule=rule) for page in made), priority="bulk")
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=flood, name="flood", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
    if faults:
        raise faults[0]
