"""Walks meet everything that stands, whoever wrote it, and nothing else; dropping a tenant leaves the others."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pytest

from pipeline.index.walks import PAGE
from pipeline.ports import StandingChunk
from schemas.documents import AccessRecord, Manifest, PageEntry, PrincipalPart, PrincipalRecord, Section, page_of
from schemas.keys import DocumentRef
from tests.contract.index.helpers import GENERATION, Index, access, chunk, document, entries, generation, manifest, unit


def section() -> Section:
    return Section(section_id=str(uuid4()), ordinal=0, heading_path=("Guide",), text="long text")


def by_uid(manifests: list[Manifest] | list[AccessRecord]) -> dict[str, object]:
    return {m.document.uid: m for m in manifests}


@pytest.mark.requirement("A9")
def test_walks_meet_every_record_of_their_kind_once(index: Index, tenant: str) -> None:
    owners = [document(tenant, f"page-{i}") for i in range(PAGE + 120)]
    index.store.write_access(tenant, [access(o, version=i) for i, o in enumerate(owners)])
    walked = list(index.store.walk_access(tenant))
    assert Counter(r.document.uid for r in walked) == Counter(o.uid for o in owners)
    assert {r.document.uid: r.version for r in walked} == {o.uid: i for i, o in enumerate(owners)}

    people = [
        PrincipalRecord.of(tenant, f"user:{i}", {"wiki": PrincipalPart(parents=(f"group:{i}",), version=i)})
        for i in range(30)
    ]
    index.store.write_principals(tenant, people)
    assert sorted(index.store.walk_principals(tenant), key=lambda p: p.version) == people


@pytest.mark.requirement("A9")
def test_manifests_pages_and_sections_of_one_collection_are_told_apart(index: Index, tenant: str) -> None:
    small, huge = document(tenant, "small"), document(tenant, "huge")
    listed = entries(6)
    heads = [
        manifest(small, content_version=1, chunks=tuple(listed[:2]), chunk_total=2),
        manifest(huge, content_version=3, chunk_total=4, pages=1),
    ]
    for head in heads:
        index.store.write_manifest(GENERATION, head)
    rest = [PageEntry(**entry.model_dump(), ordinal=i) for i, entry in enumerate(listed[2:])]
    assert {page_of(entry.chunk_id, 1) for entry in rest} == {0}
    index.store.write_manifest_page(GENERATION, huge, 3, 0, 1, rest)
    sections = {owner.uid: [section() for _ in range(3)] for owner in (small, huge)}
    for owner in (small, huge):
        index.store.write_sections(GENERATION, owner, sections[owner.uid])
    assert by_uid(list(index.store.walk_manifests(GENERATION, tenant))) == by_uid(heads)
    assert Counter(index.store.walk_sections(GENERATION, tenant)) == Counter(
        (s.section_id, uid) for uid, written in sections.items() for s in written
    )


@pytest.mark.requirement("A9", "I6")
def test_chunks_are_walked_by_tier_with_their_pre_filter(index: Index, tenant: str) -> None:
    owner = document(tenant)
    writes = [chunk(owner, f"word{i}", allow=(f"group:{i}", "user:ada"), allow2=("everyone",)) for i in range(PAGE + 7)]
    index.store.insert_chunks(GENERATION, "hot", tenant, writes)
    ids = [w.chunk.chunk_id for w in writes]
    index.store.copy_chunks(GENERATION, tenant, ids[:5], source="hot", target="cold")
    expected = {w.chunk.chunk_id: StandingChunk(w.chunk.chunk_id, owner.uid, w.allow, w.allow2) for w in writes}
    hot = list(index.store.walk_chunks(GENERATION, "hot", tenant))
    assert len(hot) == len(writes) and {c.chunk_id: c for c in hot} == expected
    assert {c.chunk_id for c in index.store.walk_chunks(GENERATION, "cold", tenant)} == set(ids[:5])
    index.store.delete_chunks(GENERATION, tenant, ids[1:])
    assert [c.chunk_id for c in index.store.walk_chunks(GENERATION, "hot", tenant)] == ids[:1]


@pytest.mark.requirement("A9")
def test_what_stands_throughout_is_met_while_others_come_and_go(index: Index, tenant: str) -> None:
    owner = document(tenant)
    first = [chunk(owner, f"stays{i}") for i in range(PAGE + 60)]
    index.store.insert_chunks(GENERATION, "hot", tenant, first)
    walk = index.store.walk_chunks(GENERATION, "hot", tenant)
    met = [next(walk).chunk_id]
    later = [chunk(owner, f"later{i}") for i in range(40)]
    index.store.insert_chunks(GENERATION, "hot", tenant, later)
    gone = [w.chunk.chunk_id for w in first[::7] if w.chunk.chunk_id not in met]
    index.store.delete_chunks(GENERATION, tenant, gone)
    met.extend(c.chunk_id for c in walk)
    stays = {w.chunk.chunk_id for w in first} - set(gone)
    assert stays <= set(met) <= stays | set(gone) | {w.chunk.chunk_id for w in later}
    assert max(Counter(met).values()) == 1


def test_a_missing_tenant_is_empty_and_unreadable_records_are_left_out(index: Index, tenant: str) -> None:
    store = index.store
    for walk in (
        store.walk_access(tenant),
        store.walk_principals(tenant),
        store.walk_manifests(GENERATION, tenant),
        store.walk_sections(GENERATION, tenant),
        store.walk_chunks(GENERATION, "hot", tenant),
    ):
        assert list(walk) == []
    owner = document(tenant)
    store.write_manifest(GENERATION, manifest(owner))
    index.put_raw(f"records:{GENERATION}", tenant, str(uuid4()), "{}")
    assert [m.document for m in store.walk_manifests(GENERATION, tenant)] == [owner]


@pytest.mark.requirement("E1")
def test_dropping_a_tenant_removes_it_everywhere_and_nobody_else(index: Index, tenant: str) -> None:
    store, other = index.store, f"{tenant}-b"

    def fill(owner: DocumentRef) -> None:
        store.write_access(owner.tenant, [access(owner)])
        store.write_manifest(GENERATION, manifest(owner))
        store.write_sections(GENERATION, owner, [section()])
        store.insert_chunks(GENERATION, "hot", owner.tenant, [chunk(owner, "a")])

    for name in (tenant, other):
        fill(document(name))
    assert {tenant, other} <= store.tenants(GENERATION) & store.tenants(None)
    store.drop_tenant(GENERATION, tenant)
    assert tenant not in store.tenants(GENERATION) and tenant in store.tenants(None)
    assert store.count_chunks(GENERATION, tenant) == {"hot": 0, "cold": 0}
    store.drop_tenant(None, tenant)
    assert tenant not in store.tenants(None)
    assert not list(store.walk_access(tenant)) and not list(store.walk_sections(GENERATION, tenant))
    store.drop_tenant(None, tenant)  # again: nothing to do
    assert len(list(store.walk_access(other))) == len(list(store.walk_manifests(GENERATION, other))) == 1
    assert store.count_chunks(GENERATION, other)["hot"] == 1
    fill(document(tenant))
    assert len(list(store.walk_manifests(GENERATION, tenant))) == 1


@pytest.mark.requirement("F10")
def test_footprint_counts_objects_by_collection(index: Index, tenant: str) -> None:
    store = index.store
    before = Counter(store.footprint().objects)
    owner = document(tenant)
    store.insert_chunks(GENERATION, "cold", tenant, [chunk(owner, f"w{i}") for i in range(3)])
    store.write_access(tenant, [access(owner), access(document(tenant, "2"))])
    after = store.footprint()
    grown = sorted((Counter(after.objects) - before).values())
    assert grown == [2, 3]
    assert after.read_only == () and after.nodes == 1
    store.ensure_generation(generation("empty"))
    assert len(store.footprint().objects) == len(after.objects) + 3
    store.drop_generation("empty")


@pytest.mark.requirement("A9", "I2")
def test_searchable_are_those_that_stand_in_the_tier_with_their_vector(index: Index, tenant: str) -> None:
    owner = document(tenant)
    writes = [chunk(owner, f"w{i}", unit(1.0, i / 10)) for i in range(30)]
    ids = [w.chunk.chunk_id for w in writes]
    index.store.insert_chunks(GENERATION, "hot", tenant, writes[:20])
    index.store.insert_chunks(GENERATION, "cold", tenant, writes[15:])
    assert index.store.searchable(GENERATION, "hot", tenant, [*ids, str(uuid4())]) == set(ids[:20])
    assert index.store.searchable(GENERATION, "cold", tenant, ids) == set(ids[15:])
    assert index.store.searchable(GENERATION, "hot", f"{tenant}-x", ids) == set()


@pytest.mark.requirement("A8")
def test_sections_are_found_by_their_document(index: Index, tenant: str) -> None:
    first, second = document(tenant, "1"), document(tenant, "2")
    mine, other = [section() for _ in range(3)], [section()]
    index.store.write_sections(GENERATION, first, mine)
    index.store.write_sections(GENERATION, second, other)
    index.store.write_manifest(GENERATION, manifest(first))
    assert index.store.section_ids_of(GENERATION, first) == {s.section_id for s in mine}
    index.store.delete_sections(GENERATION, tenant, [mine[0].section_id])
    assert index.store.section_ids_of(GENERATION, first) == {s.section_id for s in mine[1:]}
    assert index.store.section_ids_of(GENERATION, document(tenant, "3")) == set()
