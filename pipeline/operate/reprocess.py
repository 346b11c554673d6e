"""Processing documents again without reading their source: the newest content event of each, where it lies on the log.

    content log ─▶ last event of each chosen document ─▶ ``reprocess`` commands, few at a time ─▶ the document's owner

Nothing is appended to ``content``. Commands are sent only as fast as they are answered, because their topic keeps
them for days, not until they are done. To read the source again, ask its owner for a backfill.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

from pipeline.clock import SystemClock
from pipeline.errors import ConfigError
from pipeline.operate.maintenance import CREDIT, Answer, Maintenance, opened
from pipeline.ports import ProgressBar, Record
from pipeline.settings import Settings
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef, partition_of
from schemas.receipts import Outcome
from schemas.topics import Topic

KEPT_UP = ("ready", "active", "standby")
BATCH = 1000  # commands held in memory at a time
SHOWN = 100  # failures named in the result


@dataclass(frozen=True)
class Selection:
    """Which documents; everything that is given must fit. Times (µs) are the source's own, else the owner's."""

    tenant: str | None = None
    source: str | None = None
    document: DocumentRef | None = None
    updated_from: int | None = None
    updated_until: int | None = None

    def __post_init__(self) -> None:
        if all(v is None for v in (self.tenant, self.source, self.document, self.updated_from, self.updated_until)):
            raise ConfigError(
                "selection", "it names nothing", "Name a tenant, a source, a document or a time range; or build anew."
            )

    def has(self, key: str | None) -> bool:
        """Whether the document of this key can be meant, before its event is looked at."""
        ref = document_of(key)
        if ref is None or (self.document is not None and ref != self.document):
            return False
        return self.tenant in (None, ref.tenant) and self.source in (None, ref.source)

    def when(self, updated: int) -> bool:
        """Whether a document updated then is meant."""
        return (self.updated_from is None or updated >= self.updated_from) and (
            self.updated_until is None or updated < self.updated_until
        )


@dataclass(frozen=True)
class Found:
    """A document and where its newest content event lies."""

    key: str
    partition: int
    offset: int


@dataclass
class Reprocessed:
    """What became of it. ``stopped``: asked to end before all were sent; sending again does no harm."""

    documents: int
    generations: tuple[str, ...]
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    failures: list[tuple[str, str, str]] = field(default_factory=list)  # generation, document key, reason
    failed: int = 0
    unanswered: int = 0
    stopped: bool = False


def document_of(key: str | None) -> DocumentRef | None:
    """The document of a key on topic ``content``; None for a key that is none."""
    try:
        return DocumentRef.from_key(key or "")
    except ValueError:
        return None


def newest(records: Iterable[Record], selection: Selection) -> list[Found]:
    """The newest event of each chosen document that is not deleted, in the order of the log."""
    last: dict[str, Found] = {}
    for record in records:
        if record.key is None:
            continue
        last.pop(record.key, None)  # an older event of the document counts no more, whatever this one is
        if (updated := _updated(record)) is not None and selection.when(updated):
            last[record.key] = Found(record.key, record.partition, record.offset)
    return list(last.values())


def _updated(record: Record) -> int | None:
    """When the document changed; None for a deletion and for what cannot be read."""
    try:
        event = json.loads(record.value or b"")
        if event["type"] != "upserted":
            return None
        updated = (event.get("source_facts") or {}).get("updated_at")
        return int(updated if updated is not None else event["observed_at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def find(settings: Settings, selection: Selection) -> list[Found]:
    """Documents of the log that are chosen, partitions mixed. Raises BusUnavailable."""
    from pipeline.bus.tail import read_compacted

    count = settings.kafka.partitions
    one = selection.document
    numbers = [partition_of(one.key, count)] if one is not None else range(count)
    found: list[Found] = []
    for number in numbers:
        found += newest(read_compacted(settings, Topic.CONTENT, partitions=[number], wanted=selection.has), selection)
    return sorted(found, key=lambda item: item.offset)


def reprocess(
    settings: Settings,
    selection: Selection,
    *,
    generations: Sequence[str] | None = None,
    credit: int = CREDIT,
    progress: ProgressBar | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Reprocessed:
    """Have the chosen documents processed again in these generations (all that are kept up where None).

    Waits for every receipt. At most ``credit`` commands are unanswered at a time. ``stop`` is asked between them:
    then nothing more is sent and what is under way is awaited. Raises ConfigError for a generation that nobody keeps
    up, BusUnavailable, StoreUnavailable.
    """
    from pipeline.index.store import WeaviateStore

    with closing(WeaviateStore(settings)) as store:
        states = {name: generation.state for name, generation in store.read_generations().items()}
    names = tuple(generations) if generations is not None else tuple(n for n, s in states.items() if s in KEPT_UP)
    for name in names:
        if states.get(name) not in (*KEPT_UP, "building"):
            raise ConfigError("generation", f"{name} is {states.get(name, 'unknown')}", "Name one that is kept up.")
    found = find(settings, selection)
    with opened(settings, "reprocess") as talk:
        return carry_out(talk, found, names, SystemClock().now(), credit=credit, progress=progress, stop=stop)


def carry_out(
    talk: Maintenance,
    found: Sequence[Found],
    generations: Sequence[str],
    now: int,
    *,
    credit: int = CREDIT,
    progress: ProgressBar | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Reprocessed:
    """``reprocess`` for documents that were found."""
    result = Reprocessed(documents=len(found), generations=tuple(generations))
    total, done = len(found) * len(generations), 0

    def answered(answer: Answer) -> None:
        nonlocal done
        done += 1
        _note(result, answer)
        if progress is not None:
            progress("reprocess", done, total)

    commands = _commands(found, generations, now)
    while batch := list(islice(commands, BATCH)):
        talk.carry_out(batch, credit=credit, on_answer=answered, stop=stop)
        if stop() or result.unanswered:
            break
    result.stopped = done < total and not result.unanswered
    return result


def _commands(found: Sequence[Found], generations: Sequence[str], now: int) -> Iterator[MaintenanceCommand]:
    for item in found:
        document = document_of(item.key)
        assert document is not None, "chosen by its key"
        for name in generations:
            yield MaintenanceCommand(
                type="reprocess", document=document, generation=name, offset=item.offset, requested_at=now
            )


def _note(result: Reprocessed, answer: Answer) -> None:
    if answer.outcome is None:
        result.unanswered += 1
    else:
        result.outcomes[answer.outcome] += 1
    if not answer.done:
        result.failed += 1
        if len(result.failures) < SHOWN:
            where = answer.command.generation or "", answer.command.document.key
            result.failures.append((*where, answer.reason or answer.outcome or "no answer"))
