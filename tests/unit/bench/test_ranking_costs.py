"""What was made cheaper on the way of a search says the same as before."""

from __future__ import annotations

import asyncio
import gc
import math
import time
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clock import SystemClock
from pipeline.errors import StoreUnavailable
from pipeline.ports import Hit, TermStatistics
from query_service import bm25
from query_service.legs import Plan
from query_service.outcome import Limits, Outcome, Stopwatch
from query_service.overlay import Overlay
from query_service.retrieve import Retriever
from query_service.scope import Scope, narrow
from schemas.access import Closure
from schemas.api import SearchFilters
from schemas.keys import DOCUMENT_NAMESPACE, DocumentRef, named

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40)


@given(TEXTS, TEXTS)
def test_a_document_keeps_its_uuid5(kind: str, document_id: str) -> None:
    document = DocumentRef(tenant="t", source="s", kind=kind, id=document_id)
    assert document.uid == str(uuid.uuid5(DOCUMENT_NAMESPACE, document.key))
    assert named(uuid.NAMESPACE_URL, document_id) == str(uuid.uuid5(uuid.NAMESPACE_URL, document_id))


@pytest.mark.requirement("B3")
@given(
    st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("abcdef"), max_size=20),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 60)),
)  # fmt: skip
def test_one_scorer_for_many_passages_is_the_formula(query: list[str], words: list[str], df: dict[str, int]) -> None:
    statistics = TermStatistics(chunks=50, average_length=8.0, document_frequency=df)
    scored = bm25.scorer(query, statistics)
    wanted = 0.0
    for term in query:
        tf, n = words.count(term), min(df.get(term, 0), 50)
        norm = bm25.K1 * (1 - bm25.B + bm25.B * len(words) / 8.0)
        wanted += math.log(1 + (50 - n + 0.5) / (n + 0.5)) * (tf / (tf + norm) if tf else 0.0)
    assert scored(" ".join(words)) == pytest.approx(wanted)
    assert scored(" ".join(words)) == bm25.score(query, " ".join(words), statistics)


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


class Waiting:
    """A store whose statistics and lists are noted; nothing is found."""

    def __init__(self, fails: bool = False) -> None:
        self.asked = asyncio.Event()
        self.fails = fails

    async def statistics(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics:
        self.asked.set()
        if self.fails:
            raise StoreUnavailable("away")
        return TermStatistics(chunks=1, average_length=1.0, document_frequency={})

    async def dense(self, *_: Any) -> list[Hit]:
        if self.fails:
            raise StoreUnavailable("away")
        return []

    async def sparse(self, *_: Any) -> list[Hit]:
        return []


def _search(reader: Waiting, vector: asyncio.Future[Any]) -> Coroutine[Any, Any, Outcome]:
    plan = Plan("g", "t", "hybrid", ("pump",), (), vector)
    closure = Closure(principals=frozenset({"user:ann", "everyone"}))
    limits = Limits(candidates=5, filter_principals=10, deadline=time.monotonic() + 5)
    retriever = Retriever(cast(Any, reader), Overlay(), SystemClock())
    narrowing = narrow(Scope(tenant="t", subject="ann"), SearchFilters(), 0)
    return retriever.retrieve(plan, narrowing, closure, 3, limits, Stopwatch())


@pytest.mark.requirement("D1")
@pytest.mark.anyio
async def test_statistics_do_not_wait_for_the_vector() -> None:
    vector: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    reader = Waiting()
    search = asyncio.ensure_future(_search(reader, vector))
    async with asyncio.timeout(5):
        await reader.asked.wait()
        assert not search.done()
        vector.set_result(None)
        assert (await search).ranked == []


@pytest.mark.requirement("D1")
@pytest.mark.anyio
async def test_a_search_that_fails_leaves_no_error_behind() -> None:
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: told.append(context))
    vector: asyncio.Future[Any] = loop.create_future()
    vector.set_result(None)
    with pytest.raises(StoreUnavailable):
        await _search(Waiting(fails=True), vector)
    await asyncio.sleep(0)
    gc.collect()
    assert told == []
