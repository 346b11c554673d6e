"""Keys: one spelling, no two names alike, the partition that Kafka itself would choose."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import DefaultPartitioner
from kafka.partitioner import murmur2 as kafka_murmur2
from pydantic import ValidationError

from schemas.keys import (
    DocumentRef,
    canonical_json,
    cursor_key,
    membership_key,
    murmur2,
    partition_of,
    principal_uid,
    progress_uid,
)

pytestmark = pytest.mark.requirement("A6", "I1")

TENANTS = st.text("abcXYZ019-_", min_size=1, max_size=8)
# Separators of JSON, paths, queries and our own keys, besides ordinary and astral characters.
PARTS = st.text(
    st.one_of(
        st.sampled_from('",[]\\/:|#%&?= \t\n{}é\u0301日👩'),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    min_size=1,
    max_size=12,
)
SOURCES = st.text("ab.-_: ", min_size=1, max_size=6).filter(lambda s: s == s.strip())
REFS = st.builds(DocumentRef, tenant=TENANTS, source=SOURCES, kind=PARTS, id=PARTS)


@given(REFS, REFS)
def test_distinct_documents_have_distinct_keys_and_ids(one: DocumentRef, other: DocumentRef) -> None:
    same = one == other
    assert (one.key == other.key) is same
    assert (one.uid == other.uid) is same
    assert (one.state_key() == other.state_key()) is same
    assert (one.hold_key("legal") == other.hold_key("legal")) is same


@given(REFS)
def test_keys_of_a_document_never_meet(ref: DocumentRef) -> None:
    keys = {ref.key, ref.state_key(), ref.hold_key("legal"), ref.hold_key("quarantine"),
            cursor_key(ref.tenant, ref.source, ref.id), membership_key(ref.tenant, ref.id)}  # fmt: skip
    assert len(keys) == 6


@given(REFS, st.text(min_size=1, max_size=5))
def test_round_trip(ref: DocumentRef, hold: str) -> None:
    assert DocumentRef.from_key(ref.key) == ref
    assert DocumentRef.from_key(ref.key.encode("utf-8").decode("utf-8")) == ref
    assert DocumentRef.from_key(ref.hold_key(hold)) == ref


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b", "c", 'd","e'), ("a", "b", 'c","d', "e")),
        (("a", "b", "c", "d]"), ("a", "b", "c", "d")),
        (("a", "b", "c/d", "e"), ("a", "b", "c", "d/e")),
        (("a", "b", "c", "caf\u00e9"), ("a", "b", "c", "cafe\u0301")),
        (("a", "b", "c", "x"), ("a", "b", "c", "x ")),
        (("a", "b", "c", "X"), ("a", "b", "c", "x")),
        (("a", "b", "c", "\\u0041"), ("a", "b", "c", "A")),
        (("a", "b", "c", "d"), ("A", "b", "c", "d")),
        (("a", "b", "document", "d"), ("a", "b", "d", "document")),
    ],
)
@pytest.mark.requirement("F07", "F09")
def test_near_twins_are_two_documents(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    refs = [DocumentRef(tenant=t, source=s, kind=k, id=i) for t, s, k, i in (one, other)]
    assert refs[0].key != refs[1].key
    assert refs[0].uid != refs[1].uid


def test_same_id_in_two_tenants_sources_and_kinds_is_four_documents() -> None:
    refs = [
        DocumentRef(tenant="acme", source="wiki", kind="page", id="17"),
        DocumentRef(tenant="globex", source="wiki", kind="page", id="17"),
        DocumentRef(tenant="acme", source="tickets", kind="page", id="17"),
        DocumentRef(tenant="acme", source="wiki", kind="issue", id="17"),
    ]
    assert len({r.uid for r in refs}) == len({r.key for r in refs}) == 4


def test_key_and_id_stay_as_they_were_published() -> None:
    """Ids in a store outlive every release: these two strings must never change."""
    ref = DocumentRef(tenant="acme", source="wiki", kind="page", id='été "x"')
    assert ref.key == '["acme","wiki","page","été \\"x\\""]'
    assert ref.uid == "691c368d-c45f-5333-b863-013b1e33c7b4"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("id", "\ud800", "unicode"),
        ("kind", "a\udfffb", "unicode"),
        ("id", "a\0b", "NUL"),
        ("id", "", "at least 1 character"),
        ("id", "x" * 2049, "at most 2048 characters"),
        ("tenant", "a b", "ASCII letters"),
        ("tenant", "ä", "ASCII letters"),
        ("tenant", "a/b", "ASCII letters"),
        ("tenant", "x" * 65, "at most 64 characters"),
        ("tenant", "", "at least 1 character"),
        ("source", "a/b", "'/'"),
        ("source", "a#deny", "'#'"),
        ("source", " a", "blanks"),
        ("source", "a\u200b", "U+200B"),
        ("source", "cafe\u0301", "normal form C"),
        ("source", "\ud800", "unicode"),
    ],
)
def test_what_cannot_be_a_name_is_refused_with_field_and_reason(field: str, value: str, says: str) -> None:
    parts = {"tenant": "acme", "source": "wiki", "kind": "page", "id": "1", field: value}
    with pytest.raises(ValidationError) as caught:
        DocumentRef(**parts)
    (error,) = caught.value.errors()
    assert error["loc"] == (field,)
    assert says in error["msg"]


@pytest.mark.parametrize(
    "key",
    [
        "", "{}", "[]", "null", "1", '"a"', "nonsense", "[" * 100_000,
        '["a","b","c"]', '["a","b","c","d","e"]', '["a","b","c","d","held","legal"]', '["a","b","c",1]',
        '["a", "b", "c", "d"]', '["a","b","c","\\u0064"]', '["a","b","c","d"] ', '["a","b","c","\\ud800"]',
        '["a","b/c","d","e"]',
    ],
)  # fmt: skip
def test_other_spellings_are_no_keys(key: str) -> None:
    """A second spelling would be a second Kafka key of the same document, on another partition."""
    with pytest.raises(ValueError):
        DocumentRef.from_key(key)


@given(TENANTS, PARTS, TENANTS, PARTS)
def test_principals_of_tenants_never_meet(tenant: str, name: str, other_tenant: str, other: str) -> None:
    same = (tenant, name) == (other_tenant, other)
    assert (membership_key(tenant, name) == membership_key(other_tenant, other)) is same
    assert (principal_uid(tenant, name) == principal_uid(other_tenant, other)) is same


@given(TENANTS, PARTS, SOURCES)
def test_each_source_has_its_own_membership_record(tenant: str, name: str, source: str) -> None:
    key = membership_key(tenant, name, source)
    assert key != membership_key(tenant, name)
    assert json.loads(key)[:2] == json.loads(membership_key(tenant, name))


@given(PARTS, PARTS, PARTS, st.integers(0, 99))
def test_progress_ids_are_distinct(lane: str, generation: str, topic: str, partition: int) -> None:
    uids = {
        progress_uid(lane, generation, topic, partition),
        progress_uid(lane, generation, topic, partition + 1),
        progress_uid(lane + "x", generation, topic, partition),
        progress_uid(lane, generation + "x", topic, partition),
    }
    assert len(uids) == 4


@given(st.binary(max_size=80))
def test_murmur2_is_that_of_the_client(data: bytes) -> None:
    assert murmur2(data) == kafka_murmur2(data) & 0xFFFFFFFF


class _Cluster:
    """What the client's partitioner asks of its metadata."""

    def __init__(self, partitions: int) -> None:
        self._partitions = set(range(partitions))

    def topics(self) -> set[str]:
        return {"content"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return self._partitions

    available_partitions_for_topic = partitions_for_topic


@given(REFS, st.integers(1, 64))
def test_partition_is_that_of_the_client(ref: DocumentRef, partitions: int) -> None:
    key = ref.key.encode("utf-8")
    assert partition_of(ref.key, partitions) == DefaultPartitioner().partition(
        "content", ref.key, key, None, None, _Cluster(partitions)
    )


@given(REFS)
def test_hold_shares_the_partition_because_it_is_computed_from_the_document_key(ref: DocumentRef) -> None:
    holder = DocumentRef.from_key(ref.hold_key("legal"))
    assert partition_of(holder.key, 12) == partition_of(ref.key, 12)


@given(st.lists(PARTS, max_size=5))
def test_canonical_json_is_json(parts: list[str]) -> None:
    assert json.loads(canonical_json(parts)) == parts
