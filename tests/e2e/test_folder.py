"""A file changes, and a moment later the index says the same: create, edit, rename, delete, rights, groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.product import Product, until


def word() -> str:
    """A word that no other test uses."""
    return f"w{uuid4().hex[:12]}"


@pytest.mark.requirement("A1", "A3")
def test_the_first_listing_is_searchable_with_every_field(product: Product) -> None:
    hit = until(lambda: [h for h in product.hits("ann", "roll back a release") if h["path"] == "eng/deploy.md"])[0]
    assert hit["title"] == "Deploying"
    assert hit["heading_path"][-1] == "Rollback"
    assert "pelican" in hit["text"]
    for field in (
        "document_uid", "document_id", "source", "section_id", "chunk_id", "url", "version", "tier", "scores", "age_s",
        "chunk_index", "chunk_total", "content_type", "tenant", "access", "effective_from", "effective_until",
        "deleted", "updated_at",
    ):  # fmt: skip
        assert field in hit
    assert (hit["tenant"], hit["source"], hit["tier"], hit["deleted"]) == ("acme", "wiki", "hot", False)


@pytest.mark.requirement("A8", "B1", "I3")
def test_a_folders_readers_alone_find_its_pages(product: Product) -> None:
    until(lambda: "eng/deploy.md" in product.found("ann", "pelican script"))
    assert "eng/deploy.md" not in product.found("bob", "pelican script")
    assert product.found("stranger", "pelican script") == set()
    assert product.found("ann", "pelican script", tenant="other") == set()


@pytest.mark.requirement("A1", "D4")
def test_create_edit_rename_delete(product: Product) -> None:
    first, second = word(), word()
    product.write("notes/a.md", f"# Note\n\nThe first word is {first}.\n")
    until(lambda: product.found("bob", first, mode="sparse"), 10, "the new page is found")
    uid = product.hits("bob", first, mode="sparse")[0]["document_uid"]
    product.write("notes/a.md", f"# Note\n\nThe second word is {second}.\n")
    until(lambda: product.found("bob", second, mode="sparse"), 10, "the edit is found")
    assert not product.found("bob", first, mode="sparse")
    (product.folder / "notes/a.md").rename(product.folder / "notes/b.md")
    until(lambda: [h for h in product.hits("bob", second, mode="sparse") if h["path"] == "notes/b.md"], 10, "renamed")
    hits = product.hits("bob", second, mode="sparse")
    assert [h["document_uid"] for h in hits] == [uid], "a rename keeps the document"
    (product.folder / "notes/b.md").unlink()
    until(lambda: not product.found("bob", second, mode="sparse"), 20, "the deleted page is gone")
    assert product.get(f"/v1/documents/{uid}", "bob").status_code == 404


@pytest.mark.requirement("A4", "A11")
def test_a_rename_embeds_nothing(product: Product) -> None:
    text = word()
    product.write("notes/old-name.md", f"# Note\n\nThis page says {text} and stays.\n")
    until(lambda: product.found("bob", text, mode="sparse"))
    uid = product.hits("bob", text, mode="sparse")[0]["document_uid"]
    (product.folder / "notes/old-name.md").rename(product.folder / "notes/new-name.md")
    until(lambda: [h for h in product.hits("bob", text, mode="sparse") if h["path"] == "notes/new-name.md"])
    steps = product.get(f"/v1/trace/{uid}", "bob").json()["steps"]
    content = [s for s in steps if s["lane"] == "index" and s["event_type"] == "content.upserted"]
    assert len(content) >= 2
    assert content[0]["chunks_embedded"] == 1
    assert sum(s["chunks_embedded"] for s in content) == 1


@pytest.mark.requirement("A8", "D5", "I4")
def test_taking_a_reader_from_a_folder_hides_its_pages_at_once_and_giving_brings_them_back(product: Product) -> None:
    secret = word()
    product.access("closed", "group:ops")
    product.write("closed/page.md", f"# Closed\n\nThe secret is {secret}.\n")
    until(lambda: product.found("bob", secret, mode="sparse"))
    uid = product.hits("bob", secret, mode="sparse")[0]["document_uid"]
    product.access("closed", "group:eng")
    started = time.monotonic()
    until(lambda: not product.found("bob", secret, mode="sparse"), 5, "hidden")
    assert time.monotonic() - started < 2
    assert product.get(f"/v1/documents/{uid}", "bob").status_code == 404
    until(lambda: product.found("ann", secret, mode="sparse"), 10, "who gains comes after who loses")
    product.access("closed", "group:ops")
    until(lambda: product.found("bob", secret, mode="sparse"), 10, "back")


@pytest.mark.requirement("A8", "F25", "I4")
def test_leaving_a_group_hides_what_the_group_reads_on_every_path(product: Product) -> None:
    secret = word()
    product.access("ops", "group:ops")
    product.write("ops/runbook.md", f"# Runbook\n\nThe code is {secret}.\n")
    until(lambda: product.found("bob", secret, mode="sparse"))
    uid = product.hits("bob", secret, mode="sparse")[0]["document_uid"]
    assert product.get(f"/v1/documents/{uid}", "bob").status_code == 200
    product.groups(["ann", "bob", "cleo"], eng=["ann"], ops=["group:eng"])
    until(lambda: not product.found("bob", secret, mode="sparse"), 5, "bob left the group")
    gone = product.get(f"/v1/documents/{uid}", "bob")
    absent = product.get("/v1/documents/00000000-0000-5000-8000-000000000000", "bob")
    assert (gone.status_code, absent.status_code) == (404, 404)
    assert {k: v for k, v in gone.json().items() if k != "query_id"} == {
        k: v for k, v in absent.json().items() if k != "query_id"
    }
    assert product.get(f"/v1/trace/{uid}", "bob").status_code == 404
    assert product.found("ann", secret, mode="sparse"), "ann is in it by way of eng"
    product.groups(["ann", "bob", "cleo"], eng=["ann"], ops=["group:eng", "bob"])
    until(lambda: product.found("bob", secret, mode="sparse"), 10)


@pytest.mark.requirement("I12")
def test_a_deny_overrides_and_a_broken_access_file_closes_the_folder(product: Product) -> None:
    secret = word()
    product.access("mixed", "everyone", deny=("user:bob",))
    product.write("mixed/page.md", f"# Mixed\n\nThe word is {secret}.\n")
    until(lambda: product.found("ann", secret, mode="sparse"))
    assert not product.found("bob", secret, mode="sparse")
    product.write("mixed/.access.yaml", "allow: [everyone\n")
    until(lambda: not product.found("ann", secret, mode="sparse"), 5, "a file that cannot be read lets nobody in")
    product.access("mixed", "everyone")
    until(lambda: product.found("bob", secret, mode="sparse"), 10)


@pytest.mark.requirement("A8", "I3")
def test_rights_are_intersected_downwards(product: Product) -> None:
    secret = word()
    product.access("outer", "group:eng")
    product.access("outer/inner", "everyone")
    product.write("outer/inner/page.md", f"# Inner\n\nThe word is {secret}.\n")
    until(lambda: product.found("ann", secret, mode="sparse"))
    assert not product.found("bob", secret, mode="sparse")


@pytest.mark.requirement("F09")
def test_two_files_of_one_name_are_two_documents(product: Product) -> None:
    text = word()
    product.write("2025/report.txt", f"The report of one year: {text} alpha")
    product.write("2026/report.txt", f"The report of another year: {text} beta")
    until(lambda: len(product.found("ann", text, mode="sparse")) == 2)


@pytest.mark.requirement("F17")
@pytest.mark.parametrize(
    ("sentence", "rare"),
    [
        ("Сегодня мы говорим о редком животном пангасиус и его жизни.", "пангасиус"),
        ("Σήμερα μιλάμε για το ζώο οκάπι που ζει στο δάσος.", "οκάπι"),
        ("היום אנחנו מדברים על חיה נדירה בשם אוקפי.", "אוקפי"),
        ("我们今天讨论一种罕见的动物霍加狓和它的生活。", "霍加狓"),
    ],
)
def test_the_keyword_side_knows_other_scripts(product: Product, sentence: str, rare: str) -> None:
    name = f"intl/{word()}.md"
    product.write(name, f"# Text\n\n{sentence}\n")
    until(lambda: name in product.found("ann", rare, mode="sparse"), 15, rare)


@pytest.mark.requirement("I8", "F06")
@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: bytes(range(256)) * 40,
        lambda: b"\xff\xfe\x00\xd8broken",
        lambda: ("x" * 200_000).encode(),
        lambda: ("word " * 40_000).encode(),
    ],
    ids=["empty", "binary", "undecodable", "one-long-word", "huge"],
)
def test_odd_bodies_among_good_ones_harm_nobody(product: Product, make: Callable[[], bytes]) -> None:
    good = word()
    folder = f"odd/{word()}"
    product.write(f"{folder}/before.md", f"Before {good} alpha\n")
    (product.folder / folder / "odd.md").write_bytes(make())
    product.write(f"{folder}/after.md", f"After {good} beta\n")
    until(lambda: len(product.found("ann", good, mode="sparse")) == 2, 30)


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 401), ("Bearer nonsense", 401), ("Basic YTpi", 401), ("Bearer", 401)],
)
def test_without_a_valid_token_nothing_is_answered(product: Product, header: str | None, status: int) -> None:
    import httpx

    headers = {"Authorization": header} if header is not None else {}
    answer = httpx.post(f"{product.query}/v1/search", json={"query": "x"}, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/problem+json")
