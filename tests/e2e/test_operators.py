"""What operators ask of the running product: the proof of a deletion."""

from __future__ import annotations

import pytest

from infra.asking import QueryApi
from infra.errors import InfraError
from schemas.keys import DocumentRef
from tests.product import Product, until


@pytest.mark.requirement("A8", "F01", "F25")
def test_a_deleted_page_is_proved_to_be_gone_by_the_running_service(product: Product) -> None:
    path = "ops-note.md"
    product.write(path, "# Note\n\nThe marmalade switch is behind the third cabinet.\n")
    document = until(
        lambda: next((h for h in product.hits("ann", "marmalade switch") if h["document_id"] == path), None),
        30, "the page is found",
    )  # fmt: skip
    uid = document["document_uid"]
    ref = DocumentRef(tenant="acme", source="wiki", kind=document["kind"], id=path)
    with QueryApi(product.settings) as api:
        with pytest.raises(InfraError, match="409"):
            api.deletion("acme", uid)
        (product.folder / path).unlink()
        until(lambda: product.get(f"/v1/documents/{uid}", "ann").status_code == 404, 30, "the page is gone")

        def gone() -> object:
            found = api.deletion("acme", uid, thorough=True)
            return found if found.standing == "bounded" else None

        found = until(gone, 30, "its chunks are removed")
        with pytest.raises(InfraError, match="404"):
            api.deletion("globex", uid)
    assert ref.uid == uid and found.document_id == path and found.clean_by is not None
    left = {p.place for p in found.places if not p.clean}
    assert left == {"log/content"}
    assert {"minilm/hot", "minilm/cold", "minilm/sections", "minilm/manifest", "claim checks", "query log",
            "caches of the query service", "backups", "dead letters"} <= {p.place for p in found.places}  # fmt: skip
    near = next(p.note for p in found.places if p.place == "minilm/hot" and p.method == "by vector")
    assert near == "near the vector of its own words"
    assert product.get(f"/v1/documents/{uid}/deletion", "ann").status_code == 404
