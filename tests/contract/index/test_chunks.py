"""Chunks: searched and filtered as promised in both tiers, by the store and by its fake alike."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from pipeline import analysis
from pipeline.errors import DocumentError, StoreUnavailable
from pipeline.ports import ChunkText, Hit, SearchFilter
from schemas.documents import Tier
from tests.contract.index.helpers import DIMENSION, EVERYONE, GENERATION, Index, chunk, document, unit

ANY = SearchFilter()
TIERS: tuple[Tier, Tier] = ("hot", "cold")


def put(index: Index, tenant: str, *writes: object, tier: Tier = "hot", ambiguous: bool = False) -> list[str]:
    """Insert and return the chunk ids."""
    index.store.insert_chunks(GENERATION, tier, tenant, writes, ambiguous=ambiguous)  # type: ignore[arg-type]
    return [w.chunk.chunk_id for w in writes]  # type: ignore[attr-defined]


def dense(index: Index, tenant: str, where: SearchFilter = ANY, *, tier: Tier = "hot", limit: int = 50) -> list[str]:
    return [h.chunk_id for h in index.run(index.reader.dense(GENERATION, tier, tenant, unit(1.0)[None], where, limit))]


def sparse(index: Index, tenant: str, query: str, where: SearchFilter = ANY, *, tier: Tier = "hot") -> list[str]:
    text = analysis.lexical(query)
    return [h.chunk_id for h in index.run(index.reader.sparse(GENERATION, tier, tenant, text, where, 50))]


def exact(index: Index, tenant: str, *identifiers: str, tier: Tier = "hot", limit: int = 50) -> set[str]:
    where = SearchFilter(identifiers=identifiers)
    return {h.chunk_id for h in index.run(index.reader.exact(GENERATION, tier, tenant, where, limit))}


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("tier", TIERS)
def test_dense_orders_by_cosine_distance(index: Index, tenant: str, tier: Tier) -> None:
    owner = document(tenant)
    near, middle, far = (chunk(owner, "a", unit(1.0, w)) for w in (0.1, 0.7, 3.0))
    put(index, tenant, far, near, middle, tier=tier)
    hits = index.run(index.reader.dense(GENERATION, tier, tenant, unit(1.0)[None], ANY, 10))
    assert [h.chunk_id for h in hits] == [w.chunk.chunk_id for w in (near, middle, far)]
    for hit, write in zip(hits, (near, middle, far), strict=True):
        assert hit.score == pytest.approx(1 - float(write.vector[0]), abs=2e-3)
        assert (hit.document_uid, hit.tier) == (owner.uid, tier)
    assert dense(index, tenant, tier=tier, limit=2) == [near.chunk.chunk_id, middle.chunk.chunk_id]


@pytest.mark.requirement("A5", "C3")
@pytest.mark.parametrize(
    ("text", "query", "other"),
    [
        ("Сбой передачи данных: повторите запрос", "ПЕРЕДАЧИ", "Отпуск и больничные"),
        ("Η διακοπή της υπηρεσίας", "υπηρεσιας", "Άδεια και ασθένεια"),
        ("הגדרת חיבור לשרת", "לשרת", "ימי חופשה"),
        ("数据库连接超时的处理方法", "连接超时", "年假和病假"),
        ("データベースの接続がタイムアウトした", "接続", "休暇の申請"),
        ("การเชื่อมต่อฐานข้อมูล", "ฐานข้อมูล", "วันหยุด"),
        ("Der Größenunterschied der Straße", "GRÖSSENUNTERSCHIED", "Urlaub"),
    ],
)
def test_sparse_finds_words_of_every_script(index: Index, tenant: str, text: str, query: str, other: str) -> None:
    owner = document(tenant)
    wanted, unwanted = chunk(owner, text), chunk(owner, other)
    put(index, tenant, wanted, unwanted)
    assert sparse(index, tenant, query) == [wanted.chunk.chunk_id]


@pytest.mark.requirement("A5")
def test_sparse_ranks_by_bm25_of_the_tier(index: Index, tenant: str) -> None:
    owner = document(tenant)
    texts = ["alpha beta", "alpha alpha beta gamma delta", "beta gamma", "delta epsilon zeta eta"]
    ids = put(index, tenant, *(chunk(owner, t) for t in texts))

    def hits() -> list[Hit]:
        return index.run(index.reader.sparse(GENERATION, "hot", tenant, "alpha gamma", ANY, 10))

    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))

    def expected(average: float) -> dict[str, float]:
        def weight(tf: int, length: int) -> float:
            return idf * tf / (tf + 1.2 * (0.25 + 0.75 * length / average))

        return {ids[0]: weight(1, 2), ids[1]: weight(2, 5) + weight(1, 5), ids[2]: weight(1, 2)}

    # The store takes an object into its average length some time after acknowledging it.
    lengths = [len(t.split()) for t in texts]
    averages = {sum(some) / n for n in range(1, 5) for some in combinations(lengths, n)}
    scores = {h.chunk_id: h.score for h in hits()}
    assert any(scores == pytest.approx(expected(average), rel=1e-3) for average in averages), scores
    assert hits()[0].chunk_id == ids[1]
    assert index.run(index.reader.sparse(GENERATION, "hot", tenant, "  ", ANY, 10)) == []
    assert index.run(index.reader.sparse(GENERATION, "hot", tenant, "nowhere", ANY, 10)) == []


@pytest.mark.requirement("B2")
def test_identifiers_match_whole(index: Index, tenant: str) -> None:
    owner = document(tenant)
    names = ["X-500-G2", "X-500-G3", "fs.readFileSync", "fs.readFile", "v2.4.18-rc1", "v2.4.18", "0xC0000005"]
    ids = dict(zip(names, put(index, tenant, *(chunk(owner, f"about {n} only") for n in names)), strict=True))
    for name in names:
        assert exact(index, tenant, name.casefold()) == {ids[name]}
    both = put(index, tenant, chunk(owner, "X-500-G2 replaces X-500-G3"))[0]
    assert exact(index, tenant, "x-500-g2", "x-500-g3") == {both}
    assert exact(index, tenant, "x-500-g2") == {both, ids["X-500-G2"]}
    assert exact(index, tenant, "x-500") == exact(index, tenant, "500") == exact(index, tenant, "X-500-G2") == set()
    assert exact(index, tenant) == set()


@pytest.mark.requirement("B1", "I4")
def test_allow_matches_whole_principals_in_both_clauses(index: Index, tenant: str) -> None:
    owner = document(tenant)
    a = chunk(owner, "same words", allow=("group:eng",), allow2=("audience:wiki/a", "user:ada"))
    b = chunk(owner, "same words", allow=("group:eng-a", "group:Eng"), allow2=("audience:wiki/a",))
    c = chunk(owner, "same words", allow=("group:eng a",), allow2=("group:eng a",))
    ids = put(index, tenant, a, b, c)

    def seen(*principals: str) -> set[str]:
        where = SearchFilter(allow=principals)
        found = set(dense(index, tenant, where))
        assert set(sparse(index, tenant, "words", where)) == found
        return found

    assert seen("group:eng", "user:ada") == {ids[0]}
    assert seen("group:eng", "audience:wiki/a") == {ids[0]}
    assert seen("group:eng") == set(), "one clause of two is not enough"
    assert seen("audience:wiki/a") == set()
    assert seen("group:eng-a", "audience:wiki/a") == {ids[1]}
    assert seen("group:Eng", "audience:wiki/a", "group:eng a") == {ids[1], ids[2]}
    assert seen("group:ENG", "group:en", "eng", "group", "audience:wiki/a", "group:eng-", "everyone") == set()
    assert dense(index, tenant) != []


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("field", ["allow", "documents", "sources", "kinds", "content_types", "languages", "products"])
def test_empty_set_finds_nothing(index: Index, tenant: str, field: str) -> None:
    put(index, tenant, chunk(document(tenant), "word E17", language="en", product="p"))
    empty: dict[str, Any] = {field: ()}
    where = replace(ANY, **empty)
    assert dense(index, tenant, where) == []
    assert sparse(index, tenant, "word", where) == []
    narrowed = replace(where, identifiers=("e17",))
    assert index.run(index.reader.exact(GENERATION, "hot", tenant, narrowed, 5)) == []
    assert len(dense(index, tenant)) == 1


@pytest.mark.requirement("B1")
def test_filters_narrow(index: Index, tenant: str) -> None:
    page, ticket = document(tenant), document(tenant, "T-1", source="wiki-2", kind="ticket")
    a = chunk(page, "word", language="de", product="X-500", content_type="text/html")
    b = chunk(ticket, "word", language="en")
    ids = put(index, tenant, a, b)
    cases = {
        0: [
            SearchFilter(documents=(page.uid,)), SearchFilter(sources=("wiki",)), SearchFilter(kinds=("page", "x")),
            SearchFilter(content_types=("text/html",)), SearchFilter(languages=("de",)),
            SearchFilter(products=("X-500",)),
            SearchFilter(allow=EVERYONE, sources=("wiki",), kinds=("page",), languages=("de", "en")),
        ],
        1: [
            SearchFilter(documents=(ticket.uid,)), SearchFilter(sources=("wiki-2",)), SearchFilter(kinds=("ticket",)),
            SearchFilter(content_types=("text/markdown",)), SearchFilter(languages=("en",)),
        ],
    }  # fmt: skip
    for position, filters in cases.items():
        for where in filters:
            assert dense(index, tenant, where) == [ids[position]], where
            assert sparse(index, tenant, "word", where) == [ids[position]], where
    assert dense(index, tenant, SearchFilter(sources=("wiki", "wiki-2"), products=("X-5",))) == []


@pytest.mark.requirement("B1")
def test_as_of_is_a_half_open_interval(index: Index, tenant: str) -> None:
    owner, start, end = document(tenant), 1_700_000_000_000_000, 1_800_000_000_000_000
    bounded = chunk(owner, "word", effective_from=start, effective_until=end)
    since = chunk(owner, "word", effective_from=end)
    until = chunk(owner, "word", effective_until=start)
    always = chunk(owner, "word")
    names = dict(
        zip(put(index, tenant, bounded, since, until, always), ("bounded", "since", "until", "always"), strict=True)
    )

    def at(moment: int) -> set[str]:
        where = SearchFilter(as_of=moment)
        found = {names[uid] for uid in dense(index, tenant, where)}
        assert {names[uid] for uid in sparse(index, tenant, "word", where)} == found
        return found

    assert at(0) == at(start - 1) == {"until", "always"}
    assert at(start) == at(end - 1) == {"bounded", "always"}
    assert at(end) == at(2**53 - 2) == {"since", "always"}
    assert set(names.values()) == {names[uid] for uid in dense(index, tenant)}


def test_chunk_text_comes_back_from_either_tier(index: Index, tenant: str) -> None:
    owner = document(tenant)
    hot, cold = chunk(owner, "Text über E17", language="de"), chunk(owner, "другой текст")
    put(index, tenant, hot)
    put(index, tenant, cold, tier="cold")
    found = index.run(index.reader.chunks(GENERATION, tenant, [hot.chunk.chunk_id, cold.chunk.chunk_id, str(uuid4())]))
    assert found == {
        w.chunk.chunk_id: ChunkText(
            chunk_id=w.chunk.chunk_id,
            document_uid=owner.uid,
            section_id=w.section_id,
            heading_path=("Guide", "Details"),
            text=w.chunk.text,
            lexical=w.chunk.lexical,
            identifiers=w.chunk.identifiers,
            source="wiki",
            kind="page",
            content_type="text/markdown",
            language=w.language,
        )
        for w in (hot, cold)
    }


@pytest.mark.requirement("A6", "I6")
def test_insert_replaces_the_object_under_its_id(index: Index, tenant: str) -> None:
    owner = document(tenant)
    first = chunk(owner, "old words", product="gone", language="de")
    uid = put(index, tenant, first)[0]
    put(index, tenant, chunk(owner, "new words", allow=("user:ada",), chunk_id=uid))
    assert index.store.count_chunks(GENERATION, tenant) == {"hot": 1, "cold": 0}
    assert sparse(index, tenant, "old") == []
    assert sparse(index, tenant, "new", SearchFilter(allow=("user:ada",))) == [uid]
    assert dense(index, tenant, SearchFilter(products=("gone",))) == []
    assert index.run(index.reader.chunks(GENERATION, tenant, [uid]))[uid].language is None


@pytest.mark.requirement("A8")
def test_delete_takes_explicit_ids_from_the_named_tiers(index: Index, tenant: str) -> None:
    owner = document(tenant)
    writes = [chunk(owner, f"word {i}") for i in range(4)]
    ids = [w.chunk.chunk_id for w in writes]
    put(index, tenant, *writes)
    put(index, tenant, *writes, tier="cold")
    index.store.delete_chunks(GENERATION, tenant, [ids[0]], tiers=("hot",))
    index.store.delete_chunks(GENERATION, tenant, [ids[1], str(uuid4())])
    assert index.store.chunk_ids_of(GENERATION, owner) == {"hot": {ids[2], ids[3]}, "cold": {ids[0], ids[2], ids[3]}}
    assert set(dense(index, tenant)) == {ids[2], ids[3]} == set(sparse(index, tenant, "word"))
    assert set(dense(index, tenant, tier="cold")) == {ids[0], ids[2], ids[3]}
    index.store.delete_chunks(GENERATION, tenant, ids)
    assert index.store.count_chunks(GENERATION, tenant) == {"hot": 0, "cold": 0}


@pytest.mark.requirement("I4", "D5")
def test_update_allow_keeps_vector_and_search_in_both_tiers(index: Index, tenant: str) -> None:
    owner = document(tenant)
    vectors = [unit(1.0, w, 0.5) for w in (0.1, 0.6, 2.0)]
    writes = [chunk(owner, f"word {i}", v, allow=("user:old",)) for i, v in enumerate(vectors)]
    ids = put(index, tenant, *writes)
    put(index, tenant, writes[1], tier="cold")
    index.store.update_allow(GENERATION, tenant, [*ids, str(uuid4())], ["user:new", "group:g"], ["audience:wiki/x"])
    new = SearchFilter(allow=("group:g", "audience:wiki/x"))
    assert dense(index, tenant, new) == ids
    assert set(sparse(index, tenant, "word", new)) == set(ids)
    assert dense(index, tenant, new, tier="cold") == [ids[1]]
    assert dense(index, tenant, SearchFilter(allow=("user:old",))) == []
    stored = index.store.read_vectors(GENERATION, tenant, ids)
    for uid, vector in zip(ids, vectors, strict=True):
        np.testing.assert_allclose(stored[uid], vector, atol=1e-6)
    index.store.update_allow(GENERATION, tenant, ids, ["nobody"], ["nobody"])
    assert dense(index, tenant, new) == dense(index, tenant, new, tier="cold") == []
    assert index.store.count_chunks(GENERATION, tenant) == {"hot": 3, "cold": 1}, "absent ids are not created"


@pytest.mark.requirement("A9")
def test_copy_carries_vector_and_fields_to_the_other_tier_and_back(index: Index, tenant: str) -> None:
    owner = document(tenant)
    write = chunk(owner, "word E17", unit(1.0, 0.4), language="de", effective_from=5, allow=("user:ada",))
    absent = str(uuid4())
    uid = put(index, tenant, write)[0]
    assert index.store.copy_chunks(GENERATION, tenant, [uid, absent], source="hot", target="cold") == 1
    assert index.store.copy_chunks(GENERATION, tenant, [uid], source="hot", target="cold") == 1, "repeatable"
    assert index.store.chunk_ids_of(GENERATION, owner) == {"hot": {uid}, "cold": {uid}}
    index.store.delete_chunks(GENERATION, tenant, [uid], tiers=("hot",))
    where = SearchFilter(allow=("user:ada",), languages=("de",), as_of=6)
    assert dense(index, tenant, where, tier="cold") == [uid] == sparse(index, tenant, "word", where, tier="cold")
    assert exact(index, tenant, "e17", tier="cold") == {uid}
    np.testing.assert_allclose(index.store.read_vectors(GENERATION, tenant, [uid])[uid], write.vector, atol=1e-6)
    assert index.store.copy_chunks(GENERATION, tenant, [uid], source="cold", target="hot") == 1
    assert dense(index, tenant, where) == [uid]


@pytest.mark.requirement("A5", "F18")
def test_vector_that_does_not_fit_is_refused_before_the_write(index: Index, tenant: str) -> None:
    owner = document(tenant)
    good = chunk(owner, "good")
    wrong = chunk(owner, "wrong", np.ones(DIMENSION + 1, dtype=np.float32))
    with pytest.raises(DocumentError, match=rf"shape \({DIMENSION + 1},\).*dimension {DIMENSION}") as caught:
        put(index, tenant, good, wrong)
    assert (caught.value.stage, caught.value.kind) == ("index", "vector_dimension")
    for vector in (unit(1.0) * 1.01, np.zeros(DIMENSION, np.float32), np.full(DIMENSION, np.nan, np.float32)):
        with pytest.raises(DocumentError, match="expected 1") as caught:
            put(index, tenant, good, chunk(owner, "wrong", vector))
        assert caught.value.kind == "vector_norm"
    assert index.store.count_chunks(GENERATION, tenant) == {"hot": 0, "cold": 0}


def test_unencodable_text_is_refused_before_the_write(index: Index, tenant: str) -> None:
    owner = document(tenant)
    broken = chunk(owner, "fine")
    object.__setattr__(broken.chunk, "text", "half a pair: \ud83d")
    with pytest.raises(DocumentError, match="text: holds a lone surrogate"):
        put(index, tenant, chunk(owner, "good"), broken)
    assert index.store.count_chunks(GENERATION, tenant) == {"hot": 0, "cold": 0}


def test_unknown_generation_is_not_created_by_a_write(index: Index, tenant: str) -> None:
    with pytest.raises(StoreUnavailable, match="nosuch"):
        index.store.insert_chunks("nosuch", "hot", tenant, [chunk(document(tenant), "a")])
    with pytest.raises(StoreUnavailable):
        index.run(index.reader.dense("nosuch", "hot", tenant, unit(1.0), ANY, 5))


@pytest.mark.requirement("I6", "I8")
def test_ambiguous_insert_leaves_exactly_what_was_meant(index: Index, tenant: str) -> None:
    owner = document(tenant)
    writes = [chunk(owner, f"word {i}", unit(1.0, i)) for i in range(5)]
    ids = put(index, tenant, *writes[:3])
    put(index, tenant, *writes, ambiguous=True)
    assert index.store.count_chunks(GENERATION, tenant)["hot"] == 5
    assert dense(index, tenant)[:3] == ids
    put(index, tenant, *writes, ambiguous=True)
    assert len(dense(index, tenant)) == 5 == len(set(sparse(index, tenant, "word")))


@pytest.mark.requirement("B2")
def test_statistics_are_those_of_both_tiers_together(index: Index, tenant: str) -> None:
    owner = document(tenant)
    hot = ["alpha beta beta", "alpha gamma"]
    cold = ["beta", "alpha alpha alpha delta", "данные сбой"]
    put(index, tenant, *(chunk(owner, t) for t in hot))
    put(index, tenant, *(chunk(owner, t, allow=("user:ada",)) for t in cold), tier="cold")
    found = index.run(
        index.reader.statistics(GENERATION, tenant, ["alpha", "beta", "данные", "absent", "alph", "alpha"])
    )
    assert found.chunks == 5
    assert found.average_length == pytest.approx((3 + 2 + 1 + 4 + 2) / 5)
    assert found.document_frequency == {"alpha": 3, "beta": 2, "данные": 1, "absent": 0, "alph": 0}


def test_large_insert_is_cut_into_batches(index: Index, tenant: str) -> None:
    owner = document(tenant)
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(430, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # Eleven megabytes: more than two batches by bytes, more than two by count.
    writes = [chunk(owner, f"word {i}", v) for i, v in enumerate(vectors)]
    writes = [replace(w, chunk=w.chunk.model_copy(update={"text": "x" * 25_000})) for w in writes]
    ids = put(index, tenant, *writes)
    assert index.store.chunk_ids_of(GENERATION, owner)["hot"] == set(ids)
    assert len(index.store.read_vectors(GENERATION, tenant, ids)) == 430
    assert index.store.copy_chunks(GENERATION, tenant, ids, source="hot", target="cold") == 430
    index.store.delete_chunks(GENERATION, tenant, ids, tiers=("hot",))
    assert index.store.count_chunks(GENERATION, tenant) == {"hot": 0, "cold": 430}


@pytest.mark.requirement("B5")
def test_vectors_are_read_from_the_tier_that_is_named(index: Index) -> None:
    tenant = f"t{uuid4().hex[:10]}"
    (hot,) = put(index, tenant, chunk(document(tenant, "a"), "alpha", unit(1.0)))
    (cold,) = put(index, tenant, chunk(document(tenant, "b"), "beta", unit(1.0, 1.0)), tier="cold")
    by_tier: dict[Tier, list[str]] = {"hot": [hot], "cold": [cold]}
    texts, found = index.run(index.reader.passages(GENERATION, tenant, by_tier, vectors=True))
    assert {uid: text.text for uid, text in texts.items()} == {hot: "alpha", cold: "beta"}
    assert found.keys() == {hot, cold} and found[hot].shape == (DIMENSION,)
    np.testing.assert_allclose(found[hot], unit(1.0), atol=1e-6)
    np.testing.assert_allclose(found[cold], unit(1.0, 1.0), atol=1e-6)
    assert index.run(index.reader.passages(GENERATION, tenant, by_tier)) == (texts, {})
    moved, none = index.run(index.reader.passages(GENERATION, tenant, {"hot": [cold], "cold": []}, vectors=True))
    assert (moved, none) == ({cold: texts[cold]}, {}), "its text is found in the other tier"
    assert index.run(index.reader.passages(GENERATION, f"{tenant}-none", {"hot": [hot]}, vectors=True)) == ({}, {})


@pytest.mark.requirement("B2")
def test_what_words_find_comes_with_the_text_that_is_scored(index: Index) -> None:
    tenant = f"t{uuid4().hex[:10]}"
    (uid,) = put(index, tenant, chunk(document(tenant), "Alpha ERR-7 beta", unit(1.0)))
    terms = " ".join(analysis.tokens("alpha"))
    (found,) = index.run(index.reader.sparse(GENERATION, "hot", tenant, terms, ANY, 5))
    (holds,) = index.run(index.reader.exact(GENERATION, "hot", tenant, SearchFilter(identifiers=("err-7",)), 5))
    (near,) = index.run(index.reader.dense(GENERATION, "hot", tenant, unit(1.0), ANY, 5))
    lexical = index.run(index.reader.lexical(GENERATION, tenant, {"hot": [uid]}))[uid]
    assert found.lexical == holds.lexical == lexical == analysis.lexical("Alpha ERR-7 beta")
    assert near.lexical is None


@pytest.mark.requirement("B2")
def test_a_filter_by_words_wants_them_all(index: Index) -> None:
    tenant = f"t{uuid4().hex[:10]}"
    (both,) = put(index, tenant, chunk(document(tenant, "a"), "der Zähler zählt Über stunden", unit(1.0)))
    put(index, tenant, chunk(document(tenant, "b"), "der Zähler steht", unit(1.0)))
    words = tuple(analysis.tokens("Zähler über"))
    assert dense(index, tenant, SearchFilter(words=words)) == [both]
    assert sparse(index, tenant, "der", SearchFilter(words=words)) == [both]
    assert dense(index, tenant, SearchFilter(words=("zahler", "none"))) == []
