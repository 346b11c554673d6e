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
    expect(page.locator("#results > li").first).to_contain_text("heron")
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
    first.locator("summary").click()
    picture(page, "copies")
    first.locator(".also button").first.click()
    expect(page.locator("#document")).to_contain_text("four fathoms")
