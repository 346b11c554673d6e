"""Checks of lag, dead letters, the canary and the store itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pipeline.operate import letters
from pipeline.operate.audit.model import CheckResult, Finding, result
from pipeline.operate.audit.sight import LANES, Sight
from schemas.receipts import Receipt
from schemas.topics import Topic

SEEN = ("indexed", "unchanged", "deleted")
SILENT_S = 60.0  # a consumer tells of itself every few seconds
CANARY_ROUNDS = 3
CANARY_LEAST_S = 300.0


def lag(sight: Sight) -> CheckResult:
    """Sources whose live changes took longer than the target (p95), and partitions that nobody reads."""
    seconds = sight.settings.audit.lag_window_s
    lags: dict[tuple[str, str], list[float]] = defaultdict(list)
    for receipt in sight.log.receipts(seconds):
        ms = _lag_ms(receipt, sight.name)
        if ms is not None and receipt.source is not None:
            lags[(receipt.tenant, receipt.source)].append(ms)
    target = sight.settings.audit.lag_target_ms
    findings: list[Finding] = []
    figures: dict[str, float] = {}
    for (tenant, source), values in sorted(lags.items()):
        p95 = sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]
        figures[f"{tenant}/{source} p95 ms"] = round(p95, 1)
        if p95 > target:
            detail = f"p95 of {len(values)} live changes is {p95:.0f} ms; the target is {target:.0f} ms"
            findings.append(Finding(tenant=tenant, source=source, detail=detail))
    findings += _unread(sight, figures)
    return result(findings, examined=sum(map(len, lags.values())), figures=figures)


def _lag_ms(receipt: Receipt, generation: str) -> float | None:
    times = receipt.times
    ours = receipt.lane == "index" and receipt.generation == generation and receipt.event_type.startswith("content.")
    if not ours or receipt.priority != "live" or receipt.outcome not in SEEN:
        return None
    if times.observed_at is None or times.visible_at is None:
        return None
    return max(0, times.visible_at - times.observed_at) / 1000


def _unread(sight: Sight, figures: dict[str, float]) -> Iterator[Finding]:
    """Backlogs whose consumer has not told anything of itself for a minute."""
    ends = sight.log.ends(sorted({topic for _, topic in LANES}))
    limit = sight.clock.now() - int(SILENT_S * 1_000_000)
    for lane, topic in LANES:
        known = sight.store.read_progress(lane, sight.name if lane == "index" else "", str(topic))
        behind = {s.partition: end - _offset(known, s.partition) for s, end in ends.items() if s.topic == topic}
        figures[f"{lane} lane behind in {topic}"] = float(sum(max(0, records) for records in behind.values()))
        for partition, records in sorted(behind.items()):
            record = known.get(partition)
            if records > 0 and (record is None or record.written_at < limit):
                detail = f"{lane} lane: {records} records of {topic}/{partition} wait and no consumer is at work"
                yield Finding(detail=detail, generation=sight.name if lane == "index" else None)


def _offset(known: object, partition: int) -> int:
    assert isinstance(known, dict)
    record = known.get(partition)
    return int(record.offset) if record is not None else 0


def dead_letters(sight: Sight) -> CheckResult:
    """More unsettled dead letters than are all right."""
    found = letters.unsettled(letters.fold(sight.log.records(Topic.DEAD_LETTER)), sight.store)
    groups = letters.grouped(found)
    figures = {f"{g.tenant or '-'}/{g.source or '-'}: {g.stage}/{g.kind}": float(g.count) for g in groups}
    allowed = sight.settings.audit.dead_letters
    findings = [
        Finding(
            tenant=letter.tenant,
            source=letter.source,
            document=letter.newest.document,
            document_uid=letter.newest.document.uid if letter.newest.document is not None else None,
            generation=letter.newest.generation,
            detail=f"{letter.name}: {letter.newest.stage}/{letter.newest.error_kind}: {letter.newest.reason}"[:500],
        )
        for letter in found
    ]
    note = "look at them by `headwater letters`" if findings else None
    return result(findings if len(findings) > allowed else [], examined=len(found), figures=figures, note=note)


def canary(sight: Sight) -> CheckResult:
    """Whether the canary's documents still pass through the whole path."""
    settings = sight.settings.canary
    if not settings.enabled:
        return result([], examined=0, note="the canary is switched off")
    patience = max(CANARY_ROUNDS * settings.every_s, CANARY_LEAST_S)
    newest, seen = 0, 0
    for receipt in sight.log.receipts(patience):
        if receipt.tenant == settings.tenant and _lag_ms(receipt, sight.name) is not None:
            seen += 1
            newest = max(newest, receipt.times.visible_at or 0)
    if seen:
        age = (sight.clock.now() - newest) / 1_000_000
        return result([], examined=seen, figures={"seconds since the last one": round(age, 1)})
    detail = f"nothing of the canary was indexed in {patience:.0f} s; `headwater lag` shows its own findings"
    return result([Finding(tenant=settings.tenant, detail=detail)], examined=0)


def store(sight: Sight) -> CheckResult:
    """Read-only collections, a filling disk, and collections of generations that are gone."""
    from pipeline.index.schema import Collections

    footprint = sight.store.footprint()
    findings = [Finding(detail=f"{name} refuses writes: free disk space, then set its shards READY")
                for name in footprint.read_only]  # fmt: skip
    figures = {f"objects in {name}": float(count) for name, count in sorted(footprint.objects.items())}
    notes = []
    if footprint.disk_used is None:
        notes.append("the store's disk cannot be seen from here")
    else:
        figures["disk used share"] = round(footprint.disk_used, 4)
        if footprint.disk_used > sight.settings.audit.disk_used:
            findings.append(Finding(detail=f"the store's disk is {100 * footprint.disk_used:.0f} % full"))
    if footprint.disk_bytes is not None:
        figures["store bytes"] = float(footprint.disk_bytes)
    known = sight.store.read_generations()
    pattern = Collections(sight.settings.namespace).pattern()
    for name in sorted({m["generation"] for c in footprint.objects if (m := pattern.fullmatch(c)) and m["generation"]}):
        generation = known.get(name)
        if generation is None:
            notes.append(f"generation {name} has collections and no record")
        elif generation.dropped_at is not None:
            detail = f"the collections of the dropped generation {name} stand"
            findings.append(Finding(detail=detail, generation=name, mend="drop_generation"))
    return result(findings, examined=len(footprint.objects), figures=figures, note="; ".join(notes) or None)


def churn(sight: Sight) -> CheckResult:
    """Tiers whose memory follows what was ever written more than what stands: to be rebuilt."""
    from pipeline.index.schema import Collections

    footprint = sight.store.footprint()
    names = Collections(sight.settings.namespace)
    findings: list[Finding] = []
    figures: dict[str, float] = {}
    tiers = [names.tier(tier, sight.name) for tier in ("hot", "cold")]
    for collection in tiers:
        written, stands = footprint.written.get(collection), footprint.objects.get(collection, 0)
        if written is None:
            continue
        figures[f"{collection} written per standing chunk"] = round(written / max(1, stands), 2)
        figures[f"{collection} written"] = float(written)
        limits = sight.settings.audit
        if written >= limits.churn_chunks and written > limits.churn * max(1, stands):
            detail = (
                f"{collection}: {written} chunks were ever written, {stands} stand; build a generation of the same "
                f"declaration with vectors_from = {sight.name!r} and activate it"
            )
            findings.append(Finding(detail=detail, generation=sight.name))
    note = None if figures else "what was ever written cannot be seen from here"
    return result(findings, examined=len(figures) // 2, figures=figures, note=note)
