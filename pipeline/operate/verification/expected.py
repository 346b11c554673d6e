"""What the log says: the last content event of every document, and what could not be processed of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.bus.codec import Undecodable, decode, decode_content
from pipeline.errors import BodyGone, HeadwaterError, Reject
from pipeline.operate.verification.means import Ends, Log
from pipeline.ports import BodyStore
from schemas.events import ClaimCheck, ContentDeleted
from schemas.keys import DocumentRef
from schemas.receipts import DeadLetter
from schemas.topics import Topic


@dataclass(frozen=True, slots=True)
class Logged:
    """The last content event of a document before the ends. ``version`` 0 where it could not be read."""

    document: DocumentRef
    partition: int
    offset: int
    version: int
    deleted: bool = False
    unreadable: str | None = None
    claim: ClaimCheck | None = None


@dataclass
class Expected:
    """The log folded: documents by tenant and uid; ``later`` has those with events behind the ends."""

    documents: dict[str, dict[str, Logged]] = field(default_factory=dict)
    later: set[str] = field(default_factory=set)

    def of(self, tenant: str) -> dict[str, Logged]:
        """Documents of one tenant by uid."""
        return self.documents.get(tenant, {})


def fold(log: Log, ends: Ends) -> Expected:
    """Read the content topic once. Raises BusUnavailable."""
    before, found = ends[str(Topic.CONTENT)], Expected()
    for record in log.read(Topic.CONTENT):
        event = decode_content(record)
        document = event.document
        if document is None:
            continue  # nobody's: its dead letter has the coordinates
        if record.offset >= before.get(record.partition, 0):
            found.later.add(document.uid)
            continue
        if record.value is None:  # erased from the log: nothing of it may stand
            found.documents.get(document.tenant, {}).pop(document.uid, None)
            continue
        if isinstance(event, Undecodable):
            logged = Logged(document, record.partition, record.offset, event.version or 0, unreadable=event.kind)
        elif isinstance(event, ContentDeleted):
            logged = Logged(document, record.partition, record.offset, event.version, deleted=True)
        else:
            claim = event.body if isinstance(event.body, ClaimCheck) else None
            logged = Logged(document, record.partition, record.offset, event.version, claim=claim)
        found.documents.setdefault(document.tenant, {})[document.uid] = logged
    return found


def newest(log: Log, uids: Collection[str]) -> dict[str, int]:
    """Versions of the last events of some documents, by uid, as the log stands now. Raises BusUnavailable."""

    def wanted(key: str | None) -> bool:
        try:
            return key is not None and DocumentRef.from_key(key).uid in uids
        except ValueError:
            return False

    found: dict[str, int] = {}
    for record in log.read(Topic.CONTENT, wanted):
        event = decode_content(record)
        if event.document is not None:
            found[event.document.uid] = event.version or 0
    return found


Letters = dict[tuple[str, str, int], DeadLetter]
"""By generation, document and offset of the content event."""


def letters(log: Log, generations: Iterable[str]) -> Letters:
    """Content events that the index consumers of these generations gave up. Raises BusUnavailable."""
    names, found = set(generations), Letters()
    for record in log.read(Topic.DEAD_LETTER):
        try:
            letter = decode(record, DeadLetter)
        except Reject:
            continue
        where = letter.coordinates
        ours = letter.lane == "index" and letter.generation in names and where.topic == Topic.CONTENT
        if ours and letter.generation is not None and letter.document is not None:
            found[(letter.generation, letter.document.uid, where.offset)] = letter
    return found


def excuse(logged: Logged, generation: str, known: Mapping[tuple[str, str, int], DeadLetter], bodies: BodyStore) -> str:
    """Why the generation cannot hold the document's last event; empty where nothing explains it."""
    if logged.unreadable is not None:
        return f"the event cannot be read ({logged.unreadable})"
    letter = known.get((generation, logged.document.uid, logged.offset))
    if letter is not None and letter.settled == "discarded":
        return f"discarded dead letter ({letter.stage}, {letter.error_kind})"
    if letter is not None and letter.settled is None:
        return f"{'parked' if letter.parked else 'dead letter'} ({letter.stage}, {letter.error_kind})"
    if logged.claim is not None:
        try:
            bodies.get(logged.claim.path, logged.claim.sha256)
        except BodyGone:
            return "its body is gone"
        except HeadwaterError as error:
            return f"its body cannot be read ({type(error).__name__})"
    return ""
