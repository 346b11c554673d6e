"""Folders that change their names: whoever may read the one never sees a page of the other, not even for a moment."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from tests.product import Product, until


@pytest.mark.requirement("A8", "B1", "I3", "I4")
def test_folders_that_swap_their_names_never_show_each_others_pages(product: Product) -> None:
    tag = uuid4().hex[:8]
    shut, public, between = f"shut-{tag}", f"public-{tag}", f"between-{tag}"
    product.access(shut, "group:eng")
    product.access(public, "everyone")
    for number in range(20):
        product.write(f"{shut}/{number}.md", f"# Page {number}\n\nOnly few may know s{tag}.\n")
        product.write(f"{public}/{number}.md", f"# Page {number}\n\nAll may know p{tag}.\n")

    def seen(user: str, word: str) -> set[str]:
        hits = product.hits(user, word, mode="sparse", k=50)
        return {hit["path"] for hit in hits if word in hit["text"]}

    until(lambda: len(seen("ann", f"s{tag}")) == 20 and len(seen("bob", f"p{tag}")) == 20, 60, "both are found")
    for old, new in ((shut, between), (public, shut), (between, public)):
        (product.folder / old).rename(product.folder / new)
    end = time.monotonic() + 60
    while (
        len(seen("bob", f"p{tag}")) < 20
        or len(seen("ann", f"s{tag}")) < 20
        or any(path.startswith(shut) for path in seen("ann", f"s{tag}"))
    ):
        assert not seen("bob", f"s{tag}")
        assert time.monotonic() < end, "both are found under their new names"
        time.sleep(0.05)
    assert not seen("bob", f"s{tag}")
    assert all(path.startswith(public) for path in seen("ann", f"s{tag}"))
