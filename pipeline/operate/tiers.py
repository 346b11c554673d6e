"""Hot and cold: which documents move, and having them moved by their owners (A9).

Hot is a write buffer: documents whose text has not changed for the hot window move to cold with their vectors, and
where a tenant's hot tier is still larger than allowed, the longest unchanged ones follow. A move copies, verifies,
waits and removes (``pipeline.upkeep``); nothing is embedded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import zip_longest

from pydantic import Field

from pipeline.operate.maintenance import Answer, Maintenance, opened
from pipeline.ports import IndexStore, ProgressBar
from pipeline.settings import Settings, TierSettings
from schemas.base import ClosedModel, Micros
from schemas.documents import Manifest
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef

DAY = 86_400_000_000  # microseconds
SERVED = ("building", "ready", "active", "standby")


class Move(ClosedModel):
    """A document that is to leave hot. ``chunks`` are those of its that stand there."""

    document: DocumentRef
    chunks: int = Field(ge=0)
    changed_at: Micros
    why: str = Field(description="'unchanged' for the hot window, or 'size': hot is larger than allowed.")


class TenantTiers(ClosedModel):
    """One tenant of a generation. ``hot_planned`` is what will stand in hot once the moves are done."""

    tenant: str
    hot: int = Field(ge=0)
    cold: int = Field(ge=0)
    hot_planned: int = Field(ge=0)
    hot_limit: int = Field(ge=1)
    moves: tuple[Move, ...] = ()
    postponed: int = Field(default=0, ge=0, description="Documents that would move but exceed the run's budget.")


class TierPlan(ClosedModel):
    """What a run would do in one generation."""

    generation: str
    at: Micros
    tenants: tuple[TenantTiers, ...] = ()

    @property
    def documents(self) -> int:
        """Documents to move."""
        return sum(len(tenant.moves) for tenant in self.tenants)

    @property
    def chunks(self) -> int:
        """Chunks to move."""
        return sum(move.chunks for tenant in self.tenants for move in tenant.moves)


class TierRun(ClosedModel):
    """What became of a plan."""

    plan: TierPlan
    moved: int = Field(default=0, ge=0)
    unchanged: int = Field(default=0, ge=0, description="Nothing to do any more: moved or deleted meanwhile.")
    refused: int = Field(default=0, ge=0, description="A chunk stands in neither tier: rechecked instead.")
    unanswered: int = Field(default=0, ge=0)
    chunks_copied: int = Field(default=0, ge=0)
    cancelled: bool = False
    reasons: dict[str, int] = Field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether everything planned was done."""
        return not (self.refused or self.unanswered or self.cancelled)


# ---------------------------------------------------------------- plan


def plan(
    store: IndexStore,
    generation: str,
    limits: TierSettings,
    now: int,
    *,
    tenants: Sequence[str] | None = None,
    progress: ProgressBar | None = None,
) -> TierPlan:
    """Which documents of the generation move now, oldest first, tenants taking turns, at most ``run_chunks`` chunks.

    Walks the hot tier and the manifests: about 10,000 objects a second. Raises StoreUnavailable.
    """
    names = sorted(store.tenants(generation) if tenants is None else tenants)
    found = []
    for number, tenant in enumerate(names):
        if progress is not None:
            progress("looking at tenants", number, len(names))
        found.append(_tenant(store, generation, tenant, limits, now))
    return TierPlan(generation=generation, at=now, tenants=tuple(_within(found, limits.run_chunks)))


def _tenant(store: IndexStore, generation: str, tenant: str, limits: TierSettings, now: int) -> TenantTiers:
    in_hot = Counter(chunk.document_uid for chunk in store.walk_chunks(generation, "hot", tenant))
    hot = in_hot.total()
    candidates = sorted(
        (
            (manifest.changed_at or manifest.indexed_at, manifest.document, in_hot[manifest.document.uid])
            for manifest in store.walk_manifests(generation, tenant)
            if _may_move(manifest) and in_hot[manifest.document.uid]
        ),
        key=lambda candidate: (candidate[0], candidate[1].key),
    )
    oldest, left, moves = now - int(limits.hot_days * DAY), hot, []
    for changed_at, document, chunks in candidates:
        if changed_at <= oldest:
            why = "unchanged"
        elif left > limits.hot_chunks:
            why = "size"
        else:
            break
        left -= chunks
        moves.append(Move(document=document, chunks=chunks, changed_at=changed_at, why=why))
    cold = store.count_chunks(generation, tenant)["cold"]
    return TenantTiers(
        tenant=tenant, hot=hot, cold=cold, hot_planned=left, hot_limit=limits.hot_chunks, moves=tuple(moves)
    )


def _may_move(manifest: Manifest) -> bool:
    """Live, and no earlier move still to be finished."""
    return not manifest.deleted and manifest.chunk_total > 0 and manifest.moving is None


def _within(tenants: Sequence[TenantTiers], budget: int) -> Iterator[TenantTiers]:
    """Moves cut at the budget; tenants take turns, so that a large one does not use it up."""
    kept: dict[str, list[Move]] = {tenant.tenant: [] for tenant in tenants}
    full = False
    for turn in zip_longest(*(tenant.moves for tenant in tenants)):
        for tenant, move in zip(tenants, turn, strict=True):
            if move is None or full:
                continue
            first = not any(kept.values())
            full = move.chunks > budget and not first  # a document larger than the budget moves alone
            if not full:
                budget -= move.chunks
                kept[tenant.tenant].append(move)
    for tenant in tenants:
        moves = kept[tenant.tenant]
        stays = sum(move.chunks for move in tenant.moves[len(moves) :])
        yield tenant.model_copy(
            update={
                "moves": tuple(moves),
                "postponed": len(tenant.moves) - len(moves),
                "hot_planned": tenant.hot_planned + stays,
            }
        )


# ---------------------------------------------------------------- carry out


def carry_out(
    found: TierPlan,
    owners: Maintenance,
    limits: TierSettings,
    now: int,
    *,
    progress: ProgressBar | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> TierRun:
    """Have the documents moved and wait for their receipts; documents that cannot be moved are rechecked instead.

    Repeating a run, also one that was cut off anywhere, moves what is left. Raises BusUnavailable.
    """
    moves = [move for tenant in found.tenants for move in tenant.moves]
    sizes = {move.document.uid: move.chunks for move in moves}
    commands = [
        MaintenanceCommand(
            type="move", document=move.document, generation=found.generation, tier="cold", requested_at=now
        )
        for move in sorted(moves, key=lambda move: (move.changed_at, move.document.key))
    ]
    copied = 0
    count = 0

    def on_answer(answer: Answer) -> None:
        nonlocal copied, count
        copied, count = copied + answer.chunks_written, count + 1
        if progress is not None:
            progress("moving to cold", count, len(commands))

    answers = owners.carry_out(
        commands,
        credit=limits.credit_chunks,
        weight=lambda command: sizes[command.document.uid],
        on_answer=on_answer,
        stop=stop,
    )
    refused = [answer.command.document for answer in answers if answer.outcome == "refused"]
    if refused:
        owners.carry_out([_recheck(document, found.generation, now) for document in refused])
    outcomes = Counter(answer.outcome for answer in answers)
    return TierRun(
        plan=found,
        moved=outcomes["moved"],
        unchanged=outcomes["unchanged"],
        refused=outcomes["refused"],
        unanswered=len(answers) - outcomes["moved"] - outcomes["unchanged"] - outcomes["refused"],
        chunks_copied=copied,
        cancelled=len(answers) < len(commands),
        reasons=dict(Counter(answer.reason for answer in answers if answer.reason and answer.outcome != "unchanged")),
    )


def _recheck(document: DocumentRef, generation: str, now: int) -> MaintenanceCommand:
    return MaintenanceCommand(type="recheck", document=document, generation=generation, requested_at=now)


# ---------------------------------------------------------------- over real services


def plans(
    settings: Settings,
    *,
    generation: str | None = None,
    tenants: Sequence[str] | None = None,
    progress: ProgressBar | None = None,
) -> list[TierPlan]:
    """Plans of one generation, or of all that are written. Raises StoreUnavailable."""
    from pipeline.clock import SystemClock
    from pipeline.index.store import WeaviateStore

    with closing(WeaviateStore(settings)) as store:
        known = store.read_generations()
        names = [generation] if generation is not None else [n for n, g in known.items() if g.state in SERVED]
        now = SystemClock().now()
        return [plan(store, name, settings.tiers, now, tenants=tenants, progress=progress) for name in sorted(names)]


def compact(
    settings: Settings,
    *,
    generation: str | None = None,
    tenants: Sequence[str] | None = None,
    progress: ProgressBar | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[TierRun]:
    """Plan and carry out. Raises StoreUnavailable, BusUnavailable."""
    from pipeline.clock import SystemClock

    runs = []
    with opened(settings, "tiers") as owners:
        for found in plans(settings, generation=generation, tenants=tenants, progress=progress):
            now = SystemClock().now()
            runs.append(carry_out(found, owners, settings.tiers, now, progress=progress, stop=stop))
    return runs
