"""The page's "Ask" as a person uses it: sentences and sources, refusals, contradictions, markup, keyboard, feedback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.test_page import picture, sign_in
from tests.product import Product, until

EVIL = "<img src=x onerror=alert(1)>"


def ask(page: Page, question: str) -> None:
    page.click("#tab-ask")
    page.fill("#question", question)
    page.press("#question", "Enter")


@pytest.fixture(scope="module")
def told(product: Product) -> Product:
    """The product with pages that answer something."""
    product.write(
        "refunds.md",
        "# Refunds\n\n## How long it takes\n\nA refund reaches the customer's account within five working days.\n\n"
        "Refunds above 500 euros need the approval of the finance team.\n",
    )
    product.write("eng/keys.md", "# Keys\n\nThe osprey key of the vault is kept in drawer nine.\n")
    until(lambda: len(product.found("ann", "refund customer account", mode="sparse")) >= 1, 30)
    until(lambda: len(product.found("ann", "osprey key vault", mode="sparse")) >= 1, 30)
    return product


@pytest.mark.requirement("B8", "E4")
def test_an_answer_names_its_sources_and_they_open(page: Page, told: Product) -> None:
    sign_in(page, told, "ann")
    ask(page, "How long does a refund take to reach the customer's account?")
    expect(page.locator(".answer-text .sentence").first).to_contain_text("within five working days", timeout=30_000)
    expect(page.locator("#ask-status")).to_contain_text("Answered", timeout=30_000)
    expect(page.locator(".answer-badges")).to_contain_text("words of the sources")
    page.locator(".answer-text .footnote").first.click()
    card = page.locator("details.source[open]").first
    expect(card.locator("mark")).to_contain_text("within five working days")
    expect(card).to_contain_text("How long it takes")
    expect(card).to_contain_text("old")
    expect(page.locator("#freshness")).to_contain_text("wiki")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    picture(page, "answer")
    card.get_by_text("Read it here").click()
    expect(page.locator("#document mark")).to_contain_text("within five working days")
    picture(page, "answer-document")
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing sticks out on a narrow screen"
    picture(page, "answer-narrow")
    page.emulate_media(color_scheme="dark")
    picture(page, "answer-dark")


@pytest.mark.requirement("A8", "B7", "B8")
def test_another_person_gets_a_refusal_and_can_look_at_hits(page: Page, told: Product) -> None:
    sign_in(page, told, "ann")
    question = "Where is the osprey key of the vault kept?"
    ask(page, question)
    expect(page.locator(".answer-text")).to_contain_text("drawer nine", timeout=30_000)
    page.click("#token-button")
    page.fill("#token", told.token("bob"))
    page.click("#token-form button[type=submit]")
    expect(page.locator(".answer:visible")).to_have_count(0)
    assert "drawer" not in page.locator("main").inner_text(), "nothing of one reader stays for the next"
    ask(page, question)
    expect(page.locator(".refusal")).to_contain_text("does not contain sufficient information", timeout=30_000)
    assert "drawer" not in page.locator("main").inner_text()
    picture(page, "refusal")
    page.get_by_text("Look at the search results").click()
    expect(page.locator("#search-panel")).to_be_visible()
    expect(page.locator("#query")).to_have_value(question)


@pytest.mark.requirement("E4")
def test_feedback_goes_with_the_answer(page: Page, told: Product) -> None:
    sign_in(page, told, "ann")
    ask(page, "How long does a refund take to reach the customer's account?")
    expect(page.locator("#ask-status")).to_contain_text("Answered", timeout=30_000)
    with page.expect_response("**/v1/feedback") as reply:
        page.get_by_role("button", name="Not helpful").click()
    assert reply.value.status == 200
    expect(page.locator("#ask-status")).to_contain_text("Thank you")
    expect(page.get_by_role("button", name="Not helpful")).to_have_attribute("aria-pressed", "true")


@pytest.mark.requirement("E4")
def test_the_tabs_work_by_keyboard_and_no_token_is_told(page: Page, told: Product) -> None:
    page.goto(f"{told.query}/#ask")
    expect(page.locator("#ask-panel")).to_be_visible()
    page.press("#question", "Enter")
    expect(page.locator("#ask-status")).to_contain_text("token")
    page.fill("#question", "line one")
    page.press("#question", "Shift+Enter")
    assert page.input_value("#question") == "line one\n"
    page.press("#question", "Enter")
    expect(page.locator("#ask-status")).to_contain_text("token")
    page.focus("#tab-ask")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#search-panel")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "tab-search"


# What follows is written by the test: the page must show such answers, however rare they are.


def citation(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "document_uid": "u", "document_id": f"{number}.md", "source": "wiki",
        "title": f"Page {number}",
        "url": "https://wiki.example/1", "section_id": "s", "chunk_ids": [], "heading_path": ["Refunds"],
        "quote": f"Quote {number}", "version": 1_700_000_000_000_000, "updated_at": None, "age_s": 7200.0,
        "in_effect": True, **changes,
    }  # fmt: skip


def reply(**changes: Any) -> dict[str, Any]:
    return {
        "query_id": "0f6f2f0e-6f8e-4f1c-9a53-1d2c3b4a5f60", "answered": True, "kind": "generated", "text": "t",
        "sentences": [{"text": "Five days.", "citations": [1], "support": 0.9, "qualified": False}],
        "citations": [citation(1)], "refusal": None, "needs_review": False, "contradictions": [], "withheld": 0,
        "complete_until": {}, "fallback": None, "cached": "none", "suggestion": None, "timings_ms": {"total": 5.0},
        **changes,
    }  # fmt: skip


def scripted(page: Page, *events: tuple[str, dict[str, Any]]) -> None:
    body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)

    def handle(route: Route) -> None:
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    page.route("**/v1/answer", handle)


@pytest.mark.requirement("B8", "E4")
def test_contradictions_doubts_and_withdrawals_are_shown_and_markup_stays_text(page: Page, product: Product) -> None:
    sentences = [
        {"text": "Six days.", "citations": [1], "support": 0.9, "qualified": False},
        {"text": f"Five days {EVIL}.", "citations": [1], "support": 0.9, "qualified": False},
        {"text": "It may be ten.", "citations": [2], "support": 0.4, "qualified": True},
    ]
    evil = citation(2, title=EVIL, quote=EVIL, heading_path=[EVIL], url="javascript:alert(1)", in_effect=False)
    sides = [{"citation": 1, "text": "Six days."}, {"citation": 2, "text": f"Ten {EVIL}."}]
    gone = {"text": "This is gone.", "citations": [1], "support": 0.9, "qualified": False}
    done = reply(
        sentences=sentences, citations=[citation(1), evil], needs_review=True, withheld=2,
        contradictions=[{"kind": "number", "sides": sides}],
    )  # fmt: skip
    scripted(
        page,
        ("step", {"step": "searching"}),
        ("sentence", {"index": 0, "sentence": gone, "citations": []}),
        ("done", done),
    )
    sign_in(page, product, "bob")
    ask(page, "How long?")
    expect(page.locator(".answer-text")).to_contain_text(f"Five days {EVIL}.")
    assert "This is gone" not in page.locator(".answer").inner_text()
    expect(page.locator(".answer-notes")).to_contain_text("taken away")
    expect(page.locator(".answer-text .unsure")).to_have_text("not stated plainly: ")
    expect(page.locator(".dispute")).to_contain_text(f"Ten {EVIL}.")
    expect(page.locator(".dispute li").first).to_contain_text("Page 1, 2 h old")
    assert page.locator(".answer").inner_text().count("Six days.") == 1, "told once"
    expect(page.locator(".answer-badges")).to_contain_text("needs review")
    expect(page.locator(".answer-badges")).to_contain_text("written by a model, every sentence checked")
    page.locator(".dispute .footnote").nth(1).click()
    card = page.locator(".source[data-number='2']")
    expect(card).to_contain_text("not in effect")
    assert card.locator("a").count() == 0, "a script is no link"
    assert page.locator("main img").count() == 0
    picture(page, "contradiction")
    context = page.context
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=product.query)
    page.get_by_text("Copy with citations").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("t\n\n[^1]: Page 1, Refunds (wiki) https://wiki.example/1\n[^2]: <img")


@pytest.mark.requirement("E4")
def test_an_answer_that_breaks_off_leaves_nothing_that_was_not_confirmed(page: Page, product: Product) -> None:
    half = {"text": "Half of it.", "citations": [1], "support": 0.9, "qualified": False}
    sent = ("sentence", {"index": 0, "sentence": half, "citations": [citation(1)]})
    problem = ("error", {"title": "t", "status": 503, "detail": "The index does not answer at the moment."})
    sign_in(page, product, "bob")
    for events, said in (((sent, problem), "index does not answer"), ((sent,), "broke off")):
        scripted(page, *events)
        ask(page, "How long?")
        expect(page.locator("#ask-status.problem")).to_contain_text(said)
        expect(page.locator(".answer:visible")).to_have_count(0)
        assert "Half of it" not in page.locator("main").inner_text()
        page.unroute("**/v1/answer")
    scripted(page, ("done", reply()))
    page.get_by_role("button", name="Ask again").last.click()
    expect(page.locator(".answer:visible")).to_contain_text("Five days.")


@pytest.mark.requirement("B7", "E4")
def test_a_conversation_goes_on_and_a_new_one_knows_nothing_of_it(page: Page, told: Product) -> None:
    sign_in(page, told, "ann")
    sent: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/v1/answer"):
            sent.append(json.loads(request.post_data or ""))

    page.on("request", note)
    ask(page, "How long does a refund take to reach the customer's account?")
    expect(page.locator("#ask-status")).to_contain_text("Answered", timeout=30_000)
    assert page.input_value("#question") == ""
    ask(page, "And who approves it above 500 euros?")
    expect(page.locator(".turn").nth(1)).to_contain_text("approval of the finance team", timeout=30_000)
    expect(page.locator(".turn").first).to_contain_text("within five working days")
    expect(page.locator(".asked")).to_have_count(2)
    assert [turn["role"] for turn in sent[1]["history"]] == ["user", "assistant"]
    assert "within five working days" in sent[1]["history"][1]["content"]
    assert "[^" not in sent[1]["history"][1]["content"], "numbers of other sources"
    picture(page, "conversation")
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator(".turn")).to_have_count(0)
    assert page.evaluate("document.activeElement.id") == "question"
    ask(page, "And who approves it above 500 euros?")
    expect(page.locator("#ask-status")).to_contain_text("nswer", timeout=30_000)
    assert sent[2]["history"] == []


@pytest.mark.requirement("E4")
def test_a_model_that_writes_is_offered_where_there_is_one(page: Page, product: Product) -> None:
    sign_in(page, product, "ann")
    with page.expect_response("**/v1/models"):
        page.click("#tab-ask")
    expect(page.locator("#ask-style option[value=generated]")).to_have_count(0)
    expect(page.locator("#ask-style")).to_have_value("auto")


@pytest.mark.requirement("A8", "E4")
def test_what_fails_is_told_and_the_question_can_be_asked_again(page: Page, told: Product) -> None:
    sign_in(page, told, "ann")
    page.click("#tab-ask")
    page.evaluate("sessionStorage.setItem('headwater-token', 'nonsense')")
    ask(page, "How long does a refund take to reach the customer's account?")
    expect(page.locator("#ask-status.problem")).to_contain_text("token is not valid")
    page.evaluate("token => sessionStorage.setItem('headwater-token', token)", told.token("ann"))
    page.context.set_offline(True)
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator("#ask-status.problem")).to_contain_text("cannot be reached")
    page.context.set_offline(False)
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator(".answer-text")).to_contain_text("within five working days", timeout=30_000)
    expect(page.locator(".asked")).to_have_count(1)


@pytest.mark.requirement("E4")
def test_stop_ends_the_request_and_the_question_can_be_asked_again(page: Page, product: Product) -> None:
    sign_in(page, product, "bob")
    held: list[Route] = []
    page.route("**/v1/answer", lambda route: held.append(route))
    for way in ("button", "Escape"):
        with page.expect_event("requestfailed", lambda r: r.url.endswith("/v1/answer")):
            ask(page, "How long?")
            expect(page.locator("#ask-stop")).to_be_visible()
            page.press("#question", "Enter")  # nothing else is asked meanwhile
            page.click("#ask-stop") if way == "button" else page.keyboard.press("Escape")
        expect(page.locator("#ask-status")).to_have_text("Stopped.")
        expect(page.locator("#ask-stop")).to_be_hidden()
    assert len(held) == 2
    page.unroute("**/v1/answer")
    scripted(page, ("done", reply()))
    page.get_by_role("button", name="Ask again").first.click()
    expect(page.locator(".answer:visible")).to_contain_text("Five days.")
    expect(page.locator(".asked")).to_have_count(2)


@pytest.mark.requirement("E4")
def test_steps_keep_their_numbers_and_code_is_code(page: Page, product: Product) -> None:
    texts = [
        "Do this:", "3. Stop `pump --all` first.", "4. Start **it** again.", "- Not <b>this</b>.",
        "pump \\\n  --wait 30", "Done [here](https://x.example).",
    ]  # fmt: skip
    sentences = [{"text": text, "citations": [1], "support": 0.9, "qualified": False} for text in texts]
    scripted(
        page,
        *(("sentence", {"index": n, "sentence": s, "citations": []}) for n, s in enumerate(sentences)),
        ("done", reply(sentences=sentences)),
    )
    sign_in(page, product, "bob")
    ask(page, "How?")
    expect(page.locator("#ask-status")).to_contain_text("Answered")
    steps = page.locator(".answer-text ol > li")
    assert [steps.nth(n).get_attribute("value") for n in range(steps.count())] == ["3", "4"]
    expect(steps.first.locator("code")).to_have_text("pump --all")
    expect(steps.nth(1)).to_contain_text("Start it again.")
    expect(page.locator(".answer-text ul > li")).to_contain_text("Not <b>this</b>.")
    assert page.locator(".answer-text pre").inner_text() == "pump \\\n  --wait 30"
    expect(page.locator(".answer-text > p").last).to_contain_text("Done here.")
    picture(page, "steps")
