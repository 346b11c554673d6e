"""Listing chunks by a filter alone, by the store and by its fake alike."""

from __future__ import annotations

import pytest

from pipeline.ports import SearchFilter
from schemas.documents import Tier
from tests.contract.index.helpers import GENERATION, Index, chunk, document


@pytest.mark.requirement("B14")
def test_all_chunks_that_pass_are_listed_up_to_the_limit(index: Index, tenant: str) -> None:
    one, two = document(tenant), document(tenant)
    mine = [chunk(one, f"text {i}", allow=("user:ada",)) for i in range(5)]
    other = chunk(two, "text", allow=("user:bob",))
    index.store.insert_chunks(GENERATION, "hot", tenant, [*mine, other])

    def listed(where: SearchFilter, limit: int = 100, tier: Tier = "hot") -> set[tuple[str, str]]:
        hits = index.run(index.reader.listing(GENERATION, tier, tenant, where, limit))
        return {(hit.chunk_id, hit.document_uid) for hit in hits}

    everything = {(w.chunk.chunk_id, w.document.uid) for w in (*mine, other)}
    assert listed(SearchFilter()) == everything
    assert listed(SearchFilter(allow=("user:ada", "everyone"))) == {(w.chunk.chunk_id, one.uid) for w in mine}
    assert len(listed(SearchFilter(), 3)) == 3
    assert listed(SearchFilter(allow=())) == set()
    assert listed(SearchFilter(), tier="cold") == set()
    absent = index.run(index.reader.listing(GENERATION, "hot", "nobody-here", SearchFilter(), 10))
    assert absent == []
