"""Records: what is written is read back whole, by id, and nothing else is."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from pipeline.errors import DocumentError, Reject
from schemas.access import AccessRule, Clause, Grant
from schemas.documents import Manifest, PageEntry, PrincipalPart, PrincipalRecord, Retiring, Section, page_of
from schemas.receipts import Progress
from tests.contract.index.helpers import GENERATION, Index, access, document, entries, generation, manifest


def principal(tenant: str, name: str, *parents: str, version: int = 1) -> PrincipalRecord:
    return PrincipalRecord.of(tenant, name, {"wiki": PrincipalPart(parents=parents, version=version)})


@pytest.mark.requirement("I3", "I4")
def test_access_records_round_trip_and_are_replaced_whole(index: Index, tenant: str) -> None:
    owner, other = document(tenant), document(tenant, 'страница/ü "2"')
    rule = AccessRule(
        clauses=(
            Clause(any_of=(Grant(principal="group:wiki/eng", until=17), Grant(principal="user:ada")), size_hint=9),
            Clause(any_of=(Grant(principal="audience:wiki/eng"),)),
        ),
        deny=("group:wiki/guests",),
        reason="read together",
    )
    first = access(
        owner, version=7, content_version=6, not_before=5, rule=rule, holds={"legal": 3}, lifted={"quarantine": 2}
    )
    index.store.write_access(tenant, [first, access(other, version=2**53 - 1, tombstone=True)])
    found = index.store.read_access(tenant, [owner.uid, other.uid, str(uuid4())])
    assert found == {owner.uid: first, other.uid: access(other, version=2**53 - 1, tombstone=True)}
    assert index.run(index.reader.access(tenant, [owner.uid, other.uid])) == found

    index.store.write_access(tenant, [access(owner, version=8)])
    assert index.store.read_access(tenant, [owner.uid])[owner.uid] == access(owner, version=8)


@pytest.mark.requirement("I2")
def test_manifest_is_replaced_whole(index: Index, tenant: str) -> None:
    owner = document(tenant)
    first = manifest(
        owner,
        content_version=3,
        access_version=2,
        title="Prüfung – проверка",
        sections=tuple(str(uuid4()) for _ in range(3)),
        chunks=tuple(entries(5)),
        chunk_total=5,
        retiring=(Retiring(chunk_ids=(str(uuid4()),), due=9),),
        allow=("everyone",),
        effective_from=0,
        effective_until=2**53 - 1,
    )
    index.store.write_manifest(GENERATION, first)
    assert index.store.read_manifests(GENERATION, tenant, [owner.uid, str(uuid4())]) == {owner.uid: first}
    second = manifest(owner, content_version=4, deleted=True)
    index.store.write_manifest(GENERATION, second)
    assert index.store.read_manifests(GENERATION, tenant, [owner.uid]) == {owner.uid: second}
    assert index.run(index.reader.manifests(GENERATION, tenant, [owner.uid])) == {owner.uid: second}


def test_many_records_are_all_found(index: Index, tenant: str) -> None:
    owners = [document(tenant, f"page-{i}") for i in range(450)]
    index.store.write_access(tenant, [access(o, version=i) for i, o in enumerate(owners)])
    found = index.store.read_access(tenant, [o.uid for o in owners])
    assert [found[o.uid].version for o in owners] == list(range(450))
    assert index.run(index.reader.access(tenant, [o.uid for o in owners])) == found


@pytest.mark.requirement("I12")
def test_principals_look_alikes_never_meet(index: Index, tenant: str) -> None:
    names = ["group:eng", "group:eng-a", "group:Eng", "group:eng a", "user:eng", "group:e", "group:engi", "group:ёng"]
    index.store.write_principals(tenant, [principal(tenant, n, f"group:of-{i}") for i, n in enumerate(names)])
    for i, name in enumerate(names):
        found = index.store.read_principals(tenant, [name])
        assert found == {name: principal(tenant, name, f"group:of-{i}")}
        assert index.run(index.reader.principals(tenant, [name])) == found
    absent = ["group:ENG", "group:eng-", "group:eng-b", "group", "group:eng/a", "eng", "group:eng\u00a0a", "group:еng"]
    assert index.store.read_principals(tenant, absent) == {}
    assert index.run(index.reader.principals(tenant, absent)) == {}


@pytest.mark.requirement("E1")
def test_tenants_do_not_see_each_other(index: Index, tenant: str) -> None:
    other = f"{tenant}-b"
    owner = document(tenant)
    index.store.write_access(tenant, [access(owner)])
    index.store.write_principals(tenant, [principal(tenant, "user:ada")])
    index.store.write_principals(other, [principal(other, "user:bob")])
    assert index.store.read_access(other, [owner.uid]) == {}
    assert index.store.read_principals(other, ["user:ada"]) == {}
    assert index.run(index.reader.principals(tenant, ["user:ada", "user:bob"])).keys() == {"user:ada"}


def test_missing_tenant_is_empty(index: Index, tenant: str) -> None:
    owner, some = document(tenant), [str(uuid4())]
    store, reader = index.store, index.reader
    assert store.read_access(tenant, some) == {}
    assert store.read_principals(tenant, ["user:ada"]) == {}
    assert store.read_manifests(GENERATION, tenant, some) == {}
    assert store.read_sections(GENERATION, tenant, some) == {}
    assert store.read_vectors(GENERATION, tenant, some) == {}
    assert store.chunk_ids_of(GENERATION, owner) == {"hot": set(), "cold": set()}
    assert store.count_chunks(GENERATION, tenant) == {"hot": 0, "cold": 0}
    assert store.copy_chunks(GENERATION, tenant, some, source="hot", target="cold") == 0
    store.delete_chunks(GENERATION, tenant, some)
    store.delete_sections(GENERATION, tenant, some)
    store.update_allow(GENERATION, tenant, some, ["everyone"], ["everyone"])
    assert index.run(reader.access(tenant, some)) == {}
    assert index.run(reader.manifests(GENERATION, tenant, some)) == {}
    assert index.run(reader.chunks(GENERATION, tenant, some)) == {}
    assert index.run(reader.sections(GENERATION, tenant, some)) == {}
    statistics = index.run(reader.statistics(GENERATION, tenant, ["word"]))
    assert (statistics.chunks, statistics.average_length, statistics.document_frequency) == (0, 0.0, {"word": 0})


@pytest.mark.requirement("I7")
def test_generations_and_the_active_one(index: Index) -> None:
    name = f"g{uuid4().hex[:8]}"
    written = generation(name).model_copy(update={"state": "ready", "version": 4})
    index.store.write_generation(written)
    assert index.store.read_generations()[name] == written
    assert index.run(index.reader.generations())[name] == written
    for active in (name, GENERATION):
        index.store.set_active_generation(active)
        assert index.store.active_generation() == active
        assert index.run(index.reader.active_generation()) == active
    assert set(index.store.read_generations()) >= {name, GENERATION}
    assert "active" not in index.store.read_generations()


@pytest.mark.requirement("I11")
def test_progress_by_lane_generation_and_topic(index: Index) -> None:
    generation_name = f"g{uuid4().hex[:8]}"

    def progress(partition: int, offset: int, topic: str = "content", generation_: str = generation_name) -> Progress:
        return Progress(
            lane="index", generation=generation_, topic=topic, partition=partition, offset=offset, owner="a",
            clean=True, lease_until=5, written_at=6, end_offset=offset + 1,
        )  # fmt: skip

    other = progress(0, 99, generation_=f"{generation_name}x")
    index.store.write_progress([progress(0, 10), progress(2, 30), progress(0, 7, "access"), other])
    index.store.write_progress([progress(2, 31)])
    assert index.store.read_progress("index", generation_name, "content") == {0: progress(0, 10), 2: progress(2, 31)}
    assert index.store.read_progress("index", generation_name, "access") == {0: progress(0, 7, "access")}
    assert index.store.read_progress("access", generation_name, "access") == {}
    everything = index.run(index.reader.progress())
    assert [p for p in everything if p.generation == other.generation] == [other]
    assert len([p for p in everything if p.generation == generation_name]) == 3


def test_sections_round_trip_and_leave(index: Index, tenant: str) -> None:
    owner = document(tenant)
    sections = [
        Section(
            section_id=str(uuid4()), ordinal=i, heading_path=("Guide", f"§{i}"), text=f"текст {i}\n\n| a | b |", page=i
        )
        for i in range(3)
    ]
    index.store.write_sections(GENERATION, owner, sections)
    ids = [s.section_id for s in sections]
    assert index.store.read_sections(GENERATION, tenant, ids) == {s.section_id: s for s in sections}
    index.store.delete_sections(GENERATION, tenant, [ids[1], str(uuid4())])
    assert index.run(index.reader.sections(GENERATION, tenant, ids)).keys() == {ids[0], ids[2]}


def paged(index: Index, tenant: str, pages: int = 4, count: int = 60, version: int = 5) -> tuple[Manifest, Manifest]:
    """A written paged manifest's head, and the same with its entries."""
    owner = document(tenant)
    lines = entries(count)
    for number in range(pages):
        listed = [
            PageEntry(**entry.model_dump(), ordinal=ordinal)
            for ordinal, entry in enumerate(lines)
            if page_of(entry.chunk_id, pages) == number
        ]
        index.store.write_manifest_page(GENERATION, owner, version, number, pages, listed)
    head = manifest(owner, content_version=version, pages=pages, chunk_total=count)
    index.store.write_manifest(GENERATION, head)
    return head, head.model_copy(update={"chunks": tuple(lines)})


def test_paged_manifest_is_read_in_document_order(index: Index, tenant: str) -> None:
    head, whole = paged(index, tenant)
    assert index.store.read_manifest_pages(GENERATION, head) == whole
    inline = manifest(document(tenant, "inline"), chunks=tuple(entries(2)), chunk_total=2)
    assert index.store.read_manifest_pages(GENERATION, inline) == inline

    asked = [whole.chunks[40].chunk_id, whole.chunks[2].chunk_id, str(uuid4())]
    listed = index.run(index.reader.page_entries(GENERATION, head, asked))
    assert {uid: (e.ordinal, e.embed_hash) for uid, e in listed.items()} == {
        asked[0]: (40, f"{40:032x}"),
        asked[1]: (2, f"{2:032x}"),
    }
    older = head.model_copy(update={"content_version": 4})
    assert index.run(index.reader.page_entries(GENERATION, older, asked)) == {}

    span = index.run(index.reader.page_span(GENERATION, head, 38, 41))
    assert [(e.ordinal, e.chunk_id) for e in span] == [(i, whole.chunks[i].chunk_id) for i in range(38, 42)]
    assert [e.ordinal for e in index.run(index.reader.page_span(GENERATION, head, 58, 70))] == [58, 59]
    assert index.run(index.reader.page_span(GENERATION, older, 0, 60)) == []


def test_missing_page_is_an_error_for_writers_and_closed_for_readers(index: Index, tenant: str) -> None:
    head, whole = paged(index, tenant)
    index.store.delete_manifest_pages(GENERATION, head.document, 5, head.pages)
    with pytest.raises(DocumentError, match="0 of 4 pages") as caught:
        index.store.read_manifest_pages(GENERATION, head)
    assert (caught.value.stage, caught.value.kind) == ("index", "manifest_pages")
    assert index.run(index.reader.page_entries(GENERATION, head, [whole.chunks[0].chunk_id])) == {}
    # The head itself is not a page.
    assert index.store.read_manifests(GENERATION, tenant, [head.document.uid]) == {head.document.uid: head}


def test_entry_on_the_wrong_page_is_refused(index: Index, tenant: str) -> None:
    entry = PageEntry(chunk_id="0003aaaa-0000-5000-8000-000000000000", section_ordinal=0, embed_hash="", ordinal=0)
    with pytest.raises(ValueError, match="does not belong to page 2 of 4"):
        index.store.write_manifest_page(GENERATION, document(tenant), 1, 2, 4, [entry])


@pytest.mark.requirement("I12")
def test_record_of_another_release_is_absent_for_readers_and_refused_by_writers(index: Index, tenant: str) -> None:
    owner, good = document(tenant), document(tenant, "good")
    index.store.write_access(tenant, [access(good)])
    record = json.loads(access(owner).model_dump_json()) | {"embargo": "until Friday"}
    index.put_raw("access", tenant, owner.uid, json.dumps(record))
    assert index.run(index.reader.access(tenant, [owner.uid, good.uid])).keys() == {good.uid}
    with pytest.raises(Reject, match="embargo") as caught:
        index.store.read_access(tenant, [owner.uid])
    assert "until Friday" not in caught.value.reason


def test_lone_surrogate_is_refused_before_the_write(index: Index, tenant: str) -> None:
    broken = manifest(document(tenant)).model_copy(update={"title": "bad \ud800"})
    with pytest.raises(DocumentError, match="lone surrogate") as caught:
        index.store.write_manifest(GENERATION, broken)
    assert caught.value.kind == "encoding"
    assert index.store.read_manifests(GENERATION, tenant, [document(tenant).uid]) == {}
