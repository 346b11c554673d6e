"""The golden set and the sample wiki agree: labels exist, the asker may or may not read them, counts hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

SAMPLES = Path(__file__).parents[3] / "samples"
WIKI = SAMPLES / "wiki"
LEAST = {
    "unanswerable": 15,
    "identifier": 15,
    "permission": 15,
    "contradictory": 10,
    "multi_hop": 10,
    "as_of": 10,
    "language": 10,
    "plain": 25,
}

pytestmark = pytest.mark.requirement("C3")


@cache
def questions() -> tuple[dict[str, Any], ...]:
    lines = (SAMPLES / "golden" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [question for question in questions() if question["kind"] == kind]


@cache
def pages() -> dict[str, str]:
    """Path relative to the wiki's root -> text of the file."""
    files = sorted([*WIKI.rglob("*.md"), *WIKI.rglob("*.html")])
    return {file.relative_to(WIKI).as_posix(): file.read_text(encoding="utf-8") for file in files}


@cache
def folders() -> frozenset[str]:
    return frozenset(str(Path(page).parent) for page in pages())


@cache
def groups_file() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((WIKI / "groups.yaml").read_text(encoding="utf-8"))
    return loaded


@cache
def principals(user: str) -> frozenset[str]:
    """Everything that stands for this person; empty for somebody who is not listed."""
    if user not in groups_file()["users"]:
        return frozenset()
    own = {f"user:{user}", "everyone"}
    grew = True
    while grew:
        grew = False
        for group, members in groups_file()["groups"].items():
            named = {member if ":" in member else f"user:{member}" for member in members}
            if f"group:{group}" not in own and named & own:
                own.add(f"group:{group}")
                grew = True
    return frozenset(own)


@cache
def may_read(user: str, page: str) -> bool:
    """Every folder on the way down has to let the person in and must not deny them."""
    mine = principals(user)
    folder = (WIKI / page).parent
    while True:
        file = folder / ".access.yaml"
        rule = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {"allow": ["everyone"]}
        if not mine & set(rule["allow"]) or mine & set(rule.get("deny", [])):
            return False
        if folder == WIKI:
            return True
        folder = folder.parent


def headings(page: str) -> list[str]:
    text = pages()[page]
    if page.endswith(".html"):
        return [re.sub(r"<[^>]+>", "", found).strip() for found in re.findall(r"<h[1-6]>(.*?)</h[1-6]>", text)]
    outside_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [found.strip() for found in re.findall(r"^#{1,6} +(.+)$", outside_code, flags=re.MULTILINE)]


@cache
def front_matter(page: str) -> dict[str, Any]:
    found = re.match(r"---\n(.*?)\n---\n", pages()[page], flags=re.DOTALL)
    return dict(yaml.safe_load(found.group(1))) if found else {}


def in_effect(page: str, day: date) -> bool:
    matter = front_matter(page)
    start, end = matter.get("effective_from", date.min), matter.get("effective_until", date.max)
    return bool(start < day < end)


def words(page: str) -> int:
    """Words, where a script without spaces counts two characters as one word."""
    unspaced = re.findall(r"[぀-ヿ㐀-鿿]", pages()[page])
    return len(pages()[page].split()) + len(unspaced) // 2


# -- the wiki ---------------------------------------------------------------------------------------------------------


def test_wiki_is_large_and_spread_over_folders() -> None:
    assert len(pages()) >= 64
    assert len(folders()) >= 8
    assert sum(page.endswith(".html") for page in pages()) >= 4
    assert sum(page.startswith("intl/") for page in pages()) >= 10


def test_pages_are_of_a_realistic_length_and_differ() -> None:
    assert {page: words(page) for page in pages() if not 150 <= words(page) <= 700} == {}
    sentences = Counter(
        line.strip() for text in pages().values() for line in set(text.splitlines()) if len(line.strip()) > 60
    )
    assert [line for line, count in sentences.items() if count > 1 and not line.startswith(("<", "|"))] == []


def test_every_page_opens_with_its_title_as_the_only_top_heading() -> None:
    for page, text in pages().items():
        if page.endswith(".html"):
            assert len(re.findall(r"<h1>", text)) == 1, page
            assert "<footer>" in text and "<nav" in text, page
        else:
            title = front_matter(page)["title"]
            assert headings(page)[0] == title, page
            outside_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
            assert len(re.findall(r"^# ", outside_code, flags=re.MULTILINE)) == 1, page


def test_headings_are_unique_within_a_page() -> None:
    for page in pages():
        assert len(headings(page)) == len(set(headings(page))), page


def test_links_between_pages_lead_somewhere() -> None:
    for page, text in pages().items():
        targets = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r'href="([^"#:]+)"', text)
        for target in targets:
            assert ((WIKI / page).parent / target).resolve().is_file(), f"{page} -> {target}"


def test_groups_and_access_files_name_only_what_exists() -> None:
    users, groups = set(groups_file()["users"]), groups_file()["groups"]
    known = {f"user:{user}" for user in users} | {f"group:{group}" for group in groups} | {"everyone"}
    for group, members in groups.items():
        assert {m if ":" in m else f"user:{m}" for m in members} <= known, group
    files = list(WIKI.rglob(".access.yaml"))
    assert len(files) >= 10
    for file in files:
        rule = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert set(rule) == {"allow", "deny"} and rule["allow"], file
        assert set(rule["allow"]) | set(rule["deny"]) <= known, file


def test_access_has_every_shape() -> None:
    """Different readers, a deny that bites, an inner folder for one group, an intersection, pages for everyone."""
    users = list(groups_file()["users"])
    readers = {page: frozenset(user for user in users if may_read(user, page)) for page in pages()}
    assert len(set(readers.values())) >= 8
    assert readers["company/about.md"] == set(users) == readers["people/onboarding.md"]
    assert readers["people/compensation/salary-bands-2026.md"] == {"gita", "liam"}
    assert readers["finance/payroll/payroll-calendar.md"] == {"eve"}, "gita runs payroll but may not enter finance"
    assert readers["legal/matters/conduct-review.md"] == {"finn", "iris"}, "liam is denied although allowed"
    assert "kira" not in readers["security/reporting-incidents.md"] and "group:staff" in principals("kira")
    assert readers["intl/ru-sklad.md"] == set(users), "a folder without access file takes over its parent's readers"
    assert not any(may_read("zed", page) for page in pages())


def test_three_pages_hold_the_sentences_of_the_e17_case() -> None:
    where = {
        "support/error-e17.md": "E17 means transfer status is pending. "
        "Do not resubmit until the status check completes.",
        "support/transfer-timing.md": "Transfer status checks normally finish within ten minutes.",
        "support/network-timeouts.md": "After a network timeout, retry the read-only status lookup.",
    }
    for page, sentence in where.items():
        assert [other for other, text in pages().items() if sentence in text] == [page]


# -- the questions ----------------------------------------------------------------------------------------------------


def test_there_are_enough_questions_of_each_kind() -> None:
    counts = Counter(question["kind"] for question in questions())
    assert sum(counts.values()) >= 120
    assert {kind: counts[kind] for kind in LEAST if counts[kind] < LEAST[kind]} == {}
    assert set(counts) == set(LEAST)


def test_ids_are_unique_and_no_question_is_asked_twice() -> None:
    ids = Counter(question["id"] for question in questions())
    assert [name for name, count in ids.items() if count > 1] == []
    asked = Counter((q["question"], q["user"], q["as_of"]) for q in questions())
    assert [key for key, count in asked.items() if count > 1] == []


@pytest.mark.parametrize("question", questions(), ids=lambda question: question["id"])
def test_labels_stand_verbatim_where_they_say(question: dict[str, Any]) -> None:
    for label in question["relevant"]:
        assert label["document"] in pages(), label
        assert label["grade"] in (1, 2, 3), label
        assert ("heading" in label) != ("span" in label), label
        if "heading" in label:
            assert label["heading"] in headings(label["document"])[1:], label
        else:
            text = pages()[label["document"]]
            body = text.split("\n---\n", 1)[-1]
            assert label["span"] in body, label
            assert not re.search(r"[*_`|\[\]<>\n]", label["span"]), f"a span must survive extraction: {label}"
    keys = [tuple(sorted((k, v) for k, v in label.items() if k != "grade")) for label in question["relevant"]]
    assert len(keys) == len(set(keys))
    if question["relevant"]:
        assert max(label["grade"] for label in question["relevant"]) == 3


@pytest.mark.parametrize("question", questions(), ids=lambda question: question["id"])
def test_asker_may_read_what_is_relevant_and_not_what_is_forbidden(question: dict[str, Any]) -> None:
    for label in question["relevant"]:
        assert may_read(question["user"], label["document"]), label
    for document in question["forbidden"]:
        assert document in pages()
        assert not may_read(question["user"], document), document


@pytest.mark.parametrize("question", questions(), ids=lambda question: question["id"])
def test_relevant_editions_are_those_of_the_day(question: dict[str, Any]) -> None:
    documents = {label["document"] for label in question["relevant"]}
    if question["as_of"] is None:
        assert not any("effective_until" in front_matter(document) for document in documents)
        return
    day = date.fromisoformat(question["as_of"])
    assert all(in_effect(document, day) for document in documents)
    assert not any(in_effect(document, day) for document in question.get("excluded", []))
    assert question["kind"] != "as_of" or question["excluded"]


def test_answer_less_questions_are_exactly_those_that_should_be() -> None:
    for question in questions():
        if question["kind"] == "unanswerable":
            assert not question["relevant"] and question["user"] in groups_file()["users"]
        elif question["kind"] == "permission":
            assert bool(question["relevant"]) != bool(question["forbidden"]), question["id"]
        else:
            assert question["relevant"], question["id"]
        assert ("answer" in question) == bool(question["relevant"]), question["id"]


def test_what_is_called_unanswerable_stands_nowhere() -> None:
    for question in of_kind("unanswerable"):
        absent = question["absent"].casefold()
        assert absent in question["question"].casefold(), question["id"]
        assert [page for page, text in pages().items() if absent in text.casefold()] == [], question["id"]


def test_permission_questions_come_in_pairs_and_the_secret_is_out_of_reach() -> None:
    by_text: dict[str, list[dict[str, Any]]] = {}
    for question in of_kind("permission"):
        by_text.setdefault(question["question"], []).append(question)
    for text, asked in by_text.items():
        allowed = [q for q in asked if q["relevant"]]
        refused = [q for q in asked if q["forbidden"]]
        assert allowed and refused, text
        holders = {page for page, body in pages().items() if asked[0]["fact"] in body}
        assert {label["document"] for q in allowed for label in q["relevant"]} <= holders, text
        for question in refused:
            assert not any(may_read(question["user"], page) for page in holders), text


def test_kinds_have_the_labels_that_make_them_that_kind() -> None:
    for question in of_kind("multi_hop"):
        documents = {label["document"] for label in question["relevant"] if label["grade"] > 1}
        assert len(documents) >= 2, question["id"]
    two_sided = [q for q in of_kind("contradictory") if len({label["document"] for label in q["relevant"]}) >= 2]
    assert len(two_sided) >= 10
    with_twins = [q for q in of_kind("identifier") if q.get("twins")]
    assert len(with_twins) >= 10
    for question in with_twins:
        assert not set(question["twins"]) & {label["document"] for label in question["relevant"]}
        assert all(may_read(question["user"], twin) for twin in question["twins"]), "a twin must be able to interfere"


def test_language_questions_share_a_rare_word_with_their_page() -> None:
    """The sparse side can find them: some word (or pair of Han characters) of the question is on this page only."""
    asked = of_kind("language")
    assert {q["language"] for q in asked} == {"de", "fr", "es", "ru", "el", "he", "ja", "zh"}
    for question in asked:
        page = question["relevant"][0]["document"]
        assert front_matter(page)["language"] == question["language"]
        text = question["question"].casefold()
        terms = set(re.findall(r"[^\W\d_]{4,}", text))
        if question["language"] in ("ja", "zh"):
            terms = {text[i : i + 2] for i in range(len(text) - 1)}
        rare = [term for term in terms if [p for p, body in pages().items() if term in body.casefold()] == [page]]
        assert rare, question["id"]
