"""Erasure of a tenant: deletions through its log, then its shards, bodies and the log's own records, then the proof.

Every step finds by itself what is left to do, so an erasure that was killed is run again from the start:

    close (marks) ▸ wait until no owner lives ▸ per source: take over, delete all, end every key ▸ wait until every
    lane has read to the end ▸ drop the generations' shards ▸ remove bodies ▸ end the marks ▸ drop the rest ▸ proof

Deletions go through the sources' owners: this process takes their place by the transactional id, so that an owner
that still lived could write no more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pipeline.clock import Clock, SystemClock
from pipeline.operate.erasure_proof import ENDED, ErasureProof, collections_of
from pipeline.operate.tenants import OPERATOR_SOURCE, TenantRefused, mark, parts_of
from pipeline.ports import Appender, IndexStore, Outgoing, ProgressBar, Record, SourceDeletion
from pipeline.settings import Settings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits, source_partition_key, transactions
from pipeline.sources.ledger import Ledger
from schemas.access import ERASING, SUSPENDED
from schemas.deletion import TenantErasure
from schemas.keys import DocumentRef, membership_key
from schemas.querylog import NO_PERSON, PurgeRecord
from schemas.topics import Topic

QUIET_S = 15.0  # owners write their cursor every 5 s, the gateway's every 10 s
QUIET_WAIT_S = 45.0
FORGET_S = 3.0  # how long the gateway may still not know that the tenant is being erased
LANES = (("access", Topic.ACCESS), ("membership", Topic.MEMBERSHIP))


@dataclass
class _Key:
    """The newest record of a key of the tenant."""

    topic: Topic
    key: str
    source: str
    place: str  # partition key
    at: int
    ended: bool


@dataclass
class _Held:
    """What the log holds of the tenant."""

    keys: dict[tuple[Topic, str], _Key] = field(default_factory=dict)

    def live(self, source: str | None = None) -> list[_Key]:
        """Keys that have not ended, cursors last."""
        found = [k for k in self.keys.values() if not k.ended and source in (None, k.source)]
        return sorted(found, key=lambda k: ENDED.index(k.topic))

    def sources(self) -> list[str]:
        """Sources that have keys left, by name."""
        return sorted({k.source for k in self.live()})


class Eraser:
    """One erasure."""

    def __init__(
        self,
        settings: Settings,
        store: IndexStore,
        tenant: str,
        *,
        clock: Clock | None = None,
        progress: ProgressBar | None = None,
        timeout_s: float = 600.0,
        quiet_s: float = QUIET_S,
    ) -> None:
        from pipeline.bus.bodies import FsspecBodyStore

        self._settings, self._store, self.tenant = settings, store, tenant
        self._clock = clock if clock is not None else SystemClock()
        self._tell: ProgressBar = progress if progress is not None else lambda step, done, total: None
        self._timeout_s, self._quiet_s = timeout_s, quiet_s
        self._bodies = FsspecBodyStore.of(settings)

    def erase(self) -> TenantErasure:
        """Erase and prove. Raises TenantRefused, BusUnavailable, StoreUnavailable, or Crash where an owner came back:
        run it again then."""
        self._refuse_configured()
        if self._held().live() or self._standing():
            mark(self._settings, self._store, self.tenant, {ERASING, SUSPENDED})
            self._wait_for_quiet()
            held = self._held()
            sources = [source for source in held.sources() if source != OPERATOR_SOURCE]
            for number, source in enumerate(sources):
                self._tell("sources", number, len(sources))
                self._end_source(source, held)
            self._wait_for_lanes()
            self._drop([place for place in self._standing() if place is not None])
            self._bodies.erase_tenant(self.tenant)
            self._purge_queries()
            # The marks kept everybody out until here. The shared collections go as soon as their end is applied.
            self._end_source(OPERATOR_SOURCE, self._held([Topic.MEMBERSHIP]))
            self._wait_for_lanes()
            self._drop([None])
        self._bodies.erase_tenant(self.tenant)
        return ErasureProof(self._settings, self._store, self.tenant, self._clock).prove()

    def _purge_queries(self) -> None:
        """Have every view of the query log forget the tenant; the topic itself does by its retention."""
        from pipeline.bus.codec import encode
        from pipeline.bus.producer import KafkaPublisher

        now = self._clock.now()
        purge = PurgeRecord(at=now, tenant=self.tenant, before=now, by=NO_PERSON)
        publisher = KafkaPublisher(self._settings, "erase")
        try:
            publisher.publish([Outgoing(str(Topic.QUERIES), self.tenant, encode(purge))])
        finally:
            publisher.close()

    # ------------------------------------------------------------ who may still write

    def _refuse_configured(self) -> None:
        named = [s.name for s in self._settings.sources if s.tenant == self.tenant]
        if named:
            raise TenantRefused(
                f"Source {named[0]} of {self.tenant} is configured: its owner would read everything again.",
                "Remove it from [[sources]], stop the owner process, and run this again.",
            )
        if self._settings.canary.enabled and self._settings.canary.tenant == self.tenant:
            raise TenantRefused(
                f"{self.tenant} is the canary's tenant.", "Set canary.enabled = false and restart it first."
            )

    def _wait_for_quiet(self) -> None:
        """Owners say every few seconds that they live. Raises TenantRefused where one goes on doing so."""
        time.sleep(min(FORGET_S, self._quiet_s))
        end = time.monotonic() + QUIET_WAIT_S
        while True:
            cursors = [k for k in self._held([Topic.CURSORS]).live() if k.source != OPERATOR_SOURCE]
            newest = max(cursors, key=lambda k: k.at, default=None)
            left = 0.0 if newest is None else self._quiet_s - (self._clock.now() - newest.at) / 1e6
            if newest is None or left <= 0:
                return
            if time.monotonic() > end:
                raise TenantRefused(
                    f"An owner of source {newest.source} of {self.tenant} still writes.",
                    "Stop the process that owns it (another machine's owner or gateway), and run this again.",
                )
            self._tell("wait for owners", 0, None)
            time.sleep(min(1.0, left + 0.05))

    # ------------------------------------------------------------ the log

    def _held(self, topics: Sequence[Topic] = ENDED) -> _Held:
        held = _Held()
        for topic in topics:
            for record in self._records(topic):
                key = _key(topic, record.key, record.timestamp, ended=record.value is None)
                if key is not None:
                    held.keys[(topic, key.key)] = key
        return held

    def _records(self, topic: Topic) -> Iterator[Record]:
        from pipeline.bus.tail import read_compacted

        return read_compacted(self._settings, topic, wanted=lambda key: parts_of(key)[:1] == [self.tenant])

    def _end_source(self, source: str, held: _Held) -> None:
        """Take the source over, delete what it has, and end all its keys."""
        from pipeline.bus.producer import KafkaAppender

        with closing(KafkaAppender(self._settings, f"owner.{self.tenant}.{source}")) as appender:
            ledger = Ledger(self.tenant, source, self._clock, BodyPlacer(None))
            for record in self._records(Topic.CURSORS):  # read after the takeover: nothing is added any more
                ledger.load_cursor(record)
            for record in self._records(Topic.MEMBERSHIP):
                ledger.load_membership(record)
            written = self._delete(ledger, appender)
            keys = {(k.topic, k.key): k for k in held.live(source)}
            for record_ in written:
                key = _key(Topic(record_.topic), record_.key, self._clock.now(), ended=False)
                if key is not None:
                    keys[(key.topic, key.key)] = key
            self._end_keys(sorted(keys.values(), key=lambda k: ENDED.index(k.topic)), appender)

    def _delete(self, ledger: Ledger, appender: Appender) -> list[Outgoing]:
        """Append deletions and the end of every membership; the records."""
        changes: list[Change] = ledger.memberships([], whole=True)
        for document in [document for document, known in ledger.states() if not known.deleted]:
            changes += ledger.deletion(SourceDeletion(document, reason="the tenant was erased"))
        limits = Limits(events=self._settings.kafka.transaction_events)
        written: list[Outgoing] = []
        done = 0
        for transaction in transactions(
            changes, lambda: ledger.cursor(polled_at=self._clock.now(), pending=False), limits
        ):
            appender.append(transaction.records)
            written += transaction.records
            done += len(transaction.changes)
            self._tell(f"delete {ledger.source}", done, len(changes))
        return written

    def _end_keys(self, keys: Sequence[_Key], appender: Appender) -> None:
        size = self._settings.kafka.transaction_events
        for start in range(0, len(keys), size):
            page = keys[start : start + size]
            appender.append([Outgoing(k.topic, k.key, None, partition_key=k.place) for k in page])
            self._tell("end keys", start + len(page), len(keys))

    # ------------------------------------------------------------ the store

    def _wait_for_lanes(self) -> None:
        """Until every consumer has read past the deletions: what is dropped then is not written again."""
        from pipeline.bus.groups import log_ends

        _, ends = log_ends(self._settings, [Topic.CONTENT, Topic.ACCESS, Topic.MEMBERSHIP])
        wanted = {topic: {s.partition: e for s, e in ends.items() if s.topic == topic} for topic in ENDED[:3]}
        deadline = time.monotonic() + self._timeout_s
        while True:
            behind = self._behind(wanted)
            if behind is None:
                return
            if time.monotonic() > deadline:
                raise TenantRefused(
                    f"{behind} has not read to the end after {self._timeout_s:.0f} s.",
                    "Start its consumers, or retire the generation, and run this again.",
                )
            self._tell(f"wait for {behind}", 0, None)
            time.sleep(0.2)

    def _behind(self, wanted: Mapping[Topic, Mapping[int, int]]) -> str | None:
        lanes = [(lane, "", topic) for lane, topic in LANES]
        for name, generation in self._store.read_generations().items():
            if generation.state != "retired":
                lanes += [("index", name, topic) for topic in (Topic.CONTENT, Topic.ACCESS)]
        for lane, name, topic in lanes:
            read = self._store.read_progress(lane, name, str(topic))
            if any(end > (read[p].offset if p in read else 0) for p, end in wanted[topic].items()):
                return f"generation {name}" if name else f"the {lane} lane"
        return None

    def _standing(self) -> list[str | None]:
        return [p for p in collections_of(self._store) if self.tenant in self._store.tenants(p)]

    def _drop(self, places: Sequence[str | None]) -> None:
        for number, place in enumerate(places):
            self._tell("drop", number, len(places))
            self._store.drop_tenant(place, self.tenant)


def _key(topic: Topic, key: str | None, at: int, *, ended: bool) -> _Key | None:
    """None for keys of another form, which no record of ours has."""
    parts = parts_of(key)
    if key is None or len(parts) < 3:
        return None
    if topic == Topic.MEMBERSHIP:
        return _Key(topic, key, parts[2], membership_key(parts[0], parts[1]), at, ended)
    if topic == Topic.CURSORS:
        return _Key(topic, key, parts[1], source_partition_key(parts[0], parts[1]), at, ended)
    try:
        return _Key(topic, key, parts[1], DocumentRef.from_key(key).key, at, ended)
    except ValueError:
        return None
