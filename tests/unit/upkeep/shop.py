"""Many documents of one generation on the fake store and the log in memory, with an owner that does what is asked."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.bus.codec import encode
from pipeline.bus.interface import Slot
from pipeline.clock import ManualClock
from pipeline.errors import StoreUnavailable
from pipeline.flow import Change, DocumentFlow, Prepared
from pipeline.operate.maintenance import Maintenance
from pipeline.ports import Appended, Outgoing
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Manifest
from schemas.events import (
    ACCESS_ONLY,
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    InlineBody,
    MaintenanceCommand,
)
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, Outcome, Progress, Receipt, StageTimes
from schemas.topics import Topic
from tests.fakes.bus import MemoryBroker, MemoryPublisher, MemoryTail
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import GENERATION, Bodies, Paragraphs, World

DAY = 86_400_000_000
G = GENERATION.name


def page(number: int, tenant: str = "acme", source: str = "wiki") -> DocumentRef:
    """A document."""
    return DocumentRef(tenant=tenant, source=source, id=f"p{number}")


class Shop(World):
    """A log, its owner of sources, its index consumer and its access consumer, each as plain calls."""

    def __init__(self, partitions: int = 3) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.flow = self._flow()
        self.broker = MemoryBroker(partitions, self.clock)
        self.store.write_generation(GENERATION)
        self.store.set_active_generation(G)
        self.asked: list[MaintenanceCommand] = []
        self.deaf = False
        self.version = self.clock.now()

    def _flow(self) -> DocumentFlow:
        parts = Paragraphs()
        return DocumentFlow(
            store=self.store, extractor=parts, chunker=parts, bodies=Bodies(), generation=GENERATION, clock=self.clock,
            crash_point=self._crash_point,
        )  # fmt: skip

    # ------------------------------------------------------------------ sources

    def put(self, document: DocumentRef, text: str, *principals: str, age_days: float = 0.0) -> int:
        """Write a page and its rule to the log and index both; the content's offset."""
        self.version += 10
        observed = self.clock.now() - int(age_days * DAY)
        access = AccessSet(
            document=document, version=self.version, content_version=self.version, observed_at=observed,
            rule=AccessRule.any_of(*(principals or ("group:eng",))),
        )  # fmt: skip
        content = ContentUpserted(
            document=document, version=self.version, access_version=self.version, title=document.id,
            body=InlineBody(text=text), observed_at=observed,
        )  # fmt: skip
        self.log(access)
        place = self.log(content)
        self.grant(access)
        self.index(document, content, access, place.offset)
        return place.offset

    def delete(self, document: DocumentRef, *, indexed: bool = True) -> None:
        """Delete a page."""
        self.version += 10
        gone = ContentDeleted(
            document=document, version=self.version, access_version=self.version, observed_at=self.clock.now()
        )
        tombstone = AccessTombstone(
            document=document, version=self.version, not_before=self.version, observed_at=self.clock.now()
        )
        self.log(tombstone)
        place = self.log(gone)
        self.grant(tombstone)
        if indexed:
            self.index(document, gone, tombstone, place.offset)

    def log(self, event: AccessSet | AccessTombstone | ContentUpserted | ContentDeleted) -> Appended:
        """Append an event."""
        topic = Topic.CONTENT if isinstance(event, ContentUpserted | ContentDeleted) else Topic.ACCESS
        return self.broker.append(Outgoing(str(topic), event.document.key, encode(event)))

    def grant(self, event: AccessSet | AccessTombstone) -> None:
        """What the access consumer writes."""
        tombstone = isinstance(event, AccessTombstone)
        rule = AccessRule.nobody("deleted") if isinstance(event, AccessTombstone) else event.rule
        record = AccessRecord(
            document=event.document, version=event.version, rule=rule, tombstone=tombstone,
            content_version=event.version, not_before=event.version if tombstone else 0, written_at=self.clock.now(),
        )  # fmt: skip
        self.store.write_access(event.document.tenant, [record])

    def index(
        self, document: DocumentRef, content: ContentUpserted | ContentDeleted | None,
        access: AccessSet | AccessTombstone | None, offset: int,
    ) -> None:  # fmt: skip
        """What the index consumer does with events, with its receipt."""
        done = self.commit(Change(document, access=access, content=content, content_offset=offset))
        if content is not None:
            self.receipt(document, "content." + content.type, done, content.version, self.clock.now())
        self.applied()

    def commit(self, change: Change) -> Outcome:
        """Prepare, embed, write."""
        prepared: Prepared = self.flow.prepare(change)
        self.embed(prepared)
        return self.flow.commit(prepared, None).outcome

    def receipt(
        self, document: DocumentRef, event: str, outcome: Outcome, version: int, observed: int,
        visible: int | None = None,
    ) -> None:  # fmt: skip
        """Publish what became of an event."""
        times = StageTimes(observed_at=observed, visible_at=self.clock.now() if visible is None else visible)
        self._tell(
            Receipt(
                lane="index", generation=G, tenant=document.tenant, source=document.source, document=document,
                document_uid=document.uid, event_type=event, version=version, outcome=outcome, times=times,
            ),
            document,
        )  # fmt: skip

    def applied(self, *, behind: int = 0) -> None:
        """Progress of both lanes at the log's ends, or ``behind`` records before them."""
        for lane, generation, topics in (
            ("index", G, (Topic.CONTENT, Topic.ACCESS, Topic.MAINTENANCE)),
            ("access", "", (Topic.ACCESS,)),
        ):
            for number in range(self.broker.partitions):
                for topic in topics:
                    end = self.broker.end_offset(Slot(str(topic), number))
                    self.store.write_progress(
                        [
                            Progress(
                                lane=lane, generation=generation, topic=str(topic), partition=number,
                                offset=max(0, end - behind), end_offset=end, written_at=self.clock.now(),
                            )
                        ]
                    )  # fmt: skip

    # ------------------------------------------------------------------ owners

    def owners(self) -> Maintenance:
        """A conversation with consumers that do at once what they are asked."""
        return Maintenance(_Asked(self), MemoryTail(self.broker, [Topic.RECEIPTS], since="end"), self.clock)

    def obey(self, command: MaintenanceCommand, place: Appended) -> None:
        """Carry out a command as the consumers do, with their receipts."""
        self.asked.append(command)
        document = command.document
        outcome: Outcome = "done"
        reason, removed, written = None, 0, 0
        if command.generation == ACCESS_ONLY:
            self._restore_access(document)
            outcome = "rechecked"
        elif command.type == "move" and command.tier is not None:
            moved = self.flow.move(document, command.tier, None)
            outcome, reason, written = moved.outcome, moved.reason, moved.chunks_written
        elif command.type == "recheck":
            outcome = "rechecked"
            found = self.flow.recheck(document, None, chunks=command.chunk_ids, sections=command.section_ids)
            removed = found.removed
            change = Change(document, access=found.access)
            if not found.whole and found.manifest is not None:
                self._content(change, found.manifest.content_offset)
                change.force, change.repair = True, None if found.damaged else found.broken
            if change.access is not None or change.content is not None:
                self.commit(change)
        elif command.offset is not None:
            unseen = self.flow.unseen_access(document, self.flow.manifests.get(document))
            change = Change(document, access=unseen, force=True)
            self._content(change, command.offset)
            self.commit(change)
        lane = "access" if command.generation == ACCESS_ONLY else "index"
        self._tell(
            Receipt(
                lane=lane, generation=command.generation if lane == "index" else None, tenant=document.tenant,
                document=document, event_type=f"maintenance.{command.type}", version=command.requested_at,
                outcome=outcome, reason=reason, chunks_removed=removed, chunks_written=written,
                coordinates=Coordinates(topic=str(Topic.MAINTENANCE), partition=place.partition, offset=place.offset),
            ),
            document,
        )  # fmt: skip
        self.applied()

    def _content(self, change: Change, offset: int) -> None:
        from pipeline.bus.codec import Undecodable, decode_content

        for record in self.broker.records(Topic.CONTENT):
            if record.key == change.document.key and record.offset == offset:
                event = decode_content(record)
                assert not isinstance(event, Undecodable)
                change.content, change.content_offset = event, offset

    def _restore_access(self, document: DocumentRef) -> None:
        from pipeline.bus.codec import decode_access

        newest: AccessSet | AccessTombstone | None = None
        for record in self.broker.records(Topic.ACCESS):
            if record.key == document.key:
                event = decode_access(record)
                assert isinstance(event, AccessSet | AccessTombstone)
                newest = event
        if newest is not None:
            self.grant(newest)

    def _tell(self, receipt: Receipt, document: DocumentRef) -> None:
        self.broker.append(Outgoing(str(Topic.RECEIPTS), document.key, receipt.model_dump_json().encode()))

    # ------------------------------------------------------------------ looking

    def of(self, document: DocumentRef) -> Manifest:
        """A document's manifest."""
        return self.store.read_manifests(G, document.tenant, [document.uid])[document.uid]

    def texts_of(self, document: DocumentRef) -> list[str]:
        """Texts that a reader would find of the document, in order; fails where a listed chunk cannot be found."""
        found = []
        for entry in self.flow.manifests.entries(self.of(document)):
            held = [self.store.tier(G, tier, document.tenant).get(entry.chunk_id) for tier in ("hot", "cold")]
            whole = [item for item in held if item is not None and item.vector is not None]
            assert whole, f"{document.id}: a listed chunk is not found"
            found.append(str(whole[0].properties["text"]))
        return found

    def wait_removals(self, documents: Sequence[DocumentRef]) -> None:
        """Let the query deadline pass and the owners finish."""
        self.clock.advance(6)
        for document in documents:
            self.flow.remove_due(document, None)


class _Asked(MemoryPublisher):
    """Maintenance commands are carried out as they are published."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.broker)
        self._shop = shop

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        places = super().publish(records)
        for record, place in zip(records, places, strict=True):
            if record.topic == Topic.MAINTENANCE and not self._shop.deaf:
                self._shop.obey(MaintenanceCommand.model_validate_json(record.value or b""), place)
        return places


class Broken(FakeStore):
    """A store that is away."""

    def tenants(self, generation: str | None) -> set[str]:
        """Nothing answers."""
        raise StoreUnavailable("away")
