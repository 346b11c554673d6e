"""Dead letters as operators meet them: what still counts, in which groups, what grew, what cannot be replayed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.operate.letters import LetterDepth, fold, grouped, growth, overtaken, parked, unsettled
from pipeline.operate.replay import NotFound, impossible, select
from pipeline.ports import Record
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Manifest
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, DeadLetter
from schemas.topics import Topic
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import GENERATION

NOBODY = AccessRule.nobody("test")


def doc(name: str = "a", source: str = "wiki") -> DocumentRef:
    return DocumentRef(tenant="acme", source=source, id=name)


def letter(offset: int, document: DocumentRef | None = None, **more: object) -> DeadLetter:
    fields: dict[str, object] = {
        "coordinates": {"topic": "content", "partition": 1, "offset": offset}, "lane": "index", "generation": "g1",
        "key": (document or doc()).key, "document": document or doc(), "version": 100 + offset, "stage": "extract",
        "error_kind": "broken", "reason": "cannot be read", "attempts": 3, "failed_at": 1_000 + offset,
    }  # fmt: skip
    return DeadLetter.model_validate(fields | more)


def on_log(letters: Sequence[DeadLetter | bytes]) -> list[Record]:
    values = [x if isinstance(x, bytes) else x.model_dump_json().encode() for x in letters]
    return [Record(str(Topic.DEAD_LETTER), 1, n, 0, "k", value) for n, value in enumerate(values)]


def manifest(offset: int, *, version: int = 0, indexed_at: int = 0) -> Manifest:
    return Manifest(
        document=doc(), rule=NOBODY, seen_rule=NOBODY, content_version=version, content_offset=offset,
        indexed_at=indexed_at,
    )  # fmt: skip


@pytest.mark.requirement("I8", "F20")
def test_a_letter_that_fails_again_is_one_letter_with_more_attempts() -> None:
    (found,) = fold(on_log([letter(5), letter(5, failed_at=9_000, attempts=2, version=None), b"not a letter"]))
    assert (found.attempts, found.first_failed_at, found.newest.failed_at) == (5, 1_005, 9_000)
    assert (found.name, found.newest.version) == ("content/1/5", 105)


@pytest.mark.requirement("I8")
def test_a_settled_letter_counts_no_longer_until_it_fails_once_more() -> None:
    settled = letter(5, settled="discarded", settled_reason="obsolete")
    assert fold(on_log([letter(5), letter(6), settled]))[0].name == "content/1/6"
    again = fold(on_log([letter(5), settled, letter(5, failed_at=9_000)]))
    assert [(x.name, x.attempts, x.first_failed_at) for x in again] == [("content/1/5", 3, 9_000)]


@pytest.mark.requirement("I8")
def test_generations_and_lanes_fail_apart() -> None:
    assert len(fold(on_log([letter(5), letter(5, generation="g2"), letter(5, lane="access", generation=None)]))) == 3


@pytest.mark.requirement("I8", "A6")
@pytest.mark.parametrize(
    ("manifest_", "settled"),
    [
        (None, False),
        (manifest(4), False),  # still the older content
        (manifest(5, version=105, indexed_at=1_004), False),  # it was in, and failed when it was read again
        (manifest(5, version=105, indexed_at=2_000), True),  # a replay went well
        (manifest(6, version=106, indexed_at=900), True),  # a newer event of the document went in
    ],
)
def test_a_letter_is_overtaken_by_what_the_store_holds_of_its_document(
    manifest_: Manifest | None, settled: bool
) -> None:
    assert overtaken(letter(5), manifest_, None) is settled


@pytest.mark.requirement("I8")
def test_an_owners_refusal_is_overtaken_by_a_later_version_and_an_access_letter_by_a_later_record() -> None:
    refused = letter(5, coordinates={"topic": "cursors", "partition": 0, "offset": 99}, generation=None)
    assert not overtaken(refused, manifest(200, version=104), None)
    assert overtaken(refused, manifest(3, version=105), None)
    closed = letter(5, lane="access", generation=None, coordinates={"topic": "access", "partition": 1, "offset": 5})
    record = AccessRecord(document=doc(), version=105, rule=NOBODY)
    assert not overtaken(closed, None, record)
    assert overtaken(closed, None, record.model_copy(update={"version": 106}))


@pytest.mark.requirement("I8")
def test_letters_are_compared_with_the_store_in_their_own_generation() -> None:
    store = FakeStore()
    store.ensure_base()
    store.ensure_generation(GENERATION)
    store.write_generation(GENERATION)
    store.write_manifest("g1", manifest(6, version=106))
    letters = fold(on_log([letter(5), letter(7), letter(8, generation="gone")]))
    assert [x.name for x in unsettled(letters, store)] == ["content/1/7"]
    store.write_generation(GENERATION.model_copy(update={"state": "retired"}))
    assert unsettled(letters, store) == []


@pytest.mark.requirement("I8")
def test_letters_that_fail_alike_are_grouped_and_growth_is_told_by_source_and_kind() -> None:
    before = fold(on_log([letter(1), letter(2, doc("b"))]))
    after = fold(
        on_log([letter(1), letter(2, doc("b")), letter(3, doc("c")), letter(4, doc("x", "jira"), parked=True)])
    )
    groups = grouped(after)
    assert [(g.source, g.count, g.parked, g.oldest_at, g.newest_at) for g in groups] == [
        ("wiki", 3, 0, 1_001, 1_003), ("jira", 1, 1, 1_004, 1_004),
    ]  # fmt: skip
    old, new = (LetterDepth(at=0, total=len(x), groups=grouped(x)) for x in (before, after))
    assert growth(old, new) == {"acme/jira: extract/broken": 1, "acme/wiki: extract/broken": 1}
    assert growth(new, old) == {}
    assert LetterDepth.model_validate_json(new.model_dump_json()) == new
    (source,) = parked(after)
    assert (source.source, source.letters, source.since) == ("jira", 1, 1_004)


@pytest.mark.requirement("I8")
def test_selection_names_coordinates_that_are_none() -> None:
    letters = fold(on_log([letter(1), letter(2, doc("b", "jira"), error_kind="huge")]))
    assert [x.name for x in select(letters, source="jira", kind="huge")] == ["content/1/2"]
    assert select(letters, source="jira", kind="broken") == []
    with pytest.raises(NotFound, match="content/9/9"):
        select(letters, ["content/1/1", "content/9/9"])


@pytest.mark.requirement("I8")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"document": None}, "names no document"),
        ({"lane": "access", "coordinates": Coordinates(topic="access", partition=0, offset=1)}, "its owner writes"),
        ({"coordinates": Coordinates(topic="maintenance", partition=0, offset=1)}, "send the command anew"),
    ],
)
def test_what_cannot_be_replayed_says_why(changes: dict[str, object], why: str | None) -> None:
    told = impossible(letter(1).model_copy(update=changes))
    assert (told is None) if why is None else (told is not None and why in told)
