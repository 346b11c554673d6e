"""The search page as a person uses it: token, search, hits within rights, one document, refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.product import Product, until


def sign_in(page: Page, product: Product, user: str) -> None:
    page.goto(product.query)
    page.fill("#token", product.token(user))
    page.click("#token-form button[type=submit]")


def search(page: Page, query: str) -> None:
    page.fill("#query", query)
    page.click("#search-form button[type=submit]")


def picture(page: Page, name: str) -> None:
    """Keep a screenshot where PICTURES_FOLDER names a folder."""
    folder = os.environ.get("PICTURES_FOLDER")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.mark.requirement("B1", "A3")
def test_a_person_finds_what_they_may_read_and_opens_it(page: Page, product: Product) -> None:
    sign_in(page, product, "ann")
    search(page, "pelican script")
    first = page.locator("#results > li").first
    expect(first).to_contain_text("Deploying")
    expect(first).to_contain_text("pelican")
    expect(page.locator("#freshness")).to_contain_text("wiki")
    picture(page, "hits")
    first.locator("button, a").first.click()
    expect(page.locator("#document")).to_contain_text("Rollback")
    picture(page, "document")


@pytest.mark.requirement("A8", "B1")
def test_another_person_does_not(page: Page, product: Product) -> None:
    sign_in(page, product, "bob")
    search(page, "pelican script")
    expect(page.locator("#results > li").first).to_be_visible()  # something else that bob may read
    assert "pelican" not in page.locator("#results").inner_text()
    picture(page, "another")


@pytest.mark.requirement("B1")
def test_a_wrong_token_and_no_token_are_told_in_words(page: Page, product: Product) -> None:
    page.goto(product.query)
    search(page, "heron")
    expect(page.locator("#status")).not_to_have_text("Search to begin.")
    page.fill("#token", "nonsense") if page.locator("#token").is_visible() else page.click("#token-button")
    page.fill("#token", "nonsense")
    page.click("#token-form button[type=submit]")
    search(page, "heron")
    expect(page.locator("#status")).to_contain_text("oken")
    assert page.locator("#results > li").count() == 0
    picture(page, "refused")


@pytest.mark.requirement("A8", "B5")
def test_copies_are_one_hit_that_names_the_others(page: Page, product: Product) -> None:
    text = "# Weir\n\nThe weir keeper opens the eastern sluice when the gauge at the mill shows four fathoms.\n"
    for name in ("one", "two", "three"):
        product.write(f"weir/{name}.md", text)
    until(lambda: len(product.found("bob", "weir keeper eastern sluice", mode="sparse")) == 3, 30)
    sign_in(page, product, "bob")
    search(page, "weir keeper eastern sluice")
    first = page.locator("#results > li").first
    expect(first).to_contain_text("the same in 2 more")
    first.get_by_text("the same in 2 more").click()
    picture(page, "copies")
    first.locator(".also button").first.click()
    expect(page.locator("#document")).to_contain_text("four fathoms")


@pytest.mark.requirement("E4")
def test_snippets_mark_what_scored_and_markup_stays_text(page: Page, product: Product) -> None:
    before = "The ledger of the harbour master is kept in the tower. " * 12
    text = f"{before}\n\nThe caf\u00e9 \U0001f9ed shows `<img src=x onerror=alert(1)>` beside the quay.\n\n{before}"
    product.write("harbour.md", f"# Harbour\n\n{text}")
    until(lambda: len(product.found("bob", "onerror quay", mode="sparse")) >= 1, 30)
    sign_in(page, product, "bob")
    search(page, "cafe quay onerror")
    first = page.locator("#results > li").first
    expect(first).to_contain_text("Harbour")
    assert [mark.lower() for mark in first.locator("mark").all_inner_texts()] == ["caf\u00e9", "onerror", "quay"]
    assert first.locator(".text img").count() == 0, "what a page wrote as markup is shown as letters"
    expect(first.locator(".text")).to_contain_text("<img src=x onerror=alert(1)>")
    picture(page, "snippet")


@pytest.mark.requirement("E4")
def test_a_suggestion_is_one_click_away(page: Page, product: Product) -> None:
    product.write("lantern.md", "# Lantern keeper\n\nThe keeper lights the lantern at dusk.\n")
    until(lambda: len(product.found("bob", "lantern", mode="sparse")) == 1, 30)
    sign_in(page, product, "bob")
    page.select_option("#mode", "sparse")
    for _ in range(20):  # what is not found within its deadline is not suggested, and the machine may be busy
        search(page, "lantrn keepre")
        expect(page.locator("#status")).to_contain_text("Nothing")
        if page.locator("#suggestion").is_visible():
            break
    expect(page.locator("#suggestion")).to_contain_text("lantern keeper")
    picture(page, "suggestion")
    page.locator("#suggestion button").click()
    expect(page.locator("#results > li").first).to_contain_text("Lantern keeper")
    expect(page.locator("#suggestion")).to_be_hidden()
    page.click("#token-button")
    page.click("#token-forget")
    expect(page.locator("#results > li")).to_have_count(0)


@pytest.mark.requirement("E4")
def test_more_results_go_below(page: Page, product: Product) -> None:
    for i in range(8):
        product.write(f"buoy/{i}.md", f"# Buoy {i}\n\nBuoy number {i} is anchored {100 + 7 * i} metres off pier {i}.\n")
    until(lambda: len(product.found("bob", "buoy anchored pier", mode="sparse", k=20)) == 8, 30)
    sign_in(page, product, "bob")
    page.select_option("#mode", "sparse")
    page.select_option("#k", "5")
    search(page, "buoy anchored pier")
    expect(page.locator("#results > li")).to_have_count(5)
    expect(page.locator("#status")).to_contain_text("rank")
    picture(page, "more")
    page.click("#more")
    expect(page.locator("#results > li")).to_have_count(8)
    titles = page.locator("#results h3").all_inner_texts()
    assert len(set(titles)) == 8, "none twice"
    expect(page.locator("#more")).to_be_hidden()
