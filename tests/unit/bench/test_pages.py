"""Documents to ingest: real first, made ones distinct, the same with every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.bench import pages
from infra.bench.pages import (
    documents,
    handbook_pages,
    long_page,
    sentences,
    short_texts,
    shuffled,
    wiki_pages,
    with_one_paragraph_changed,
)

POOL = [f"Sentence number {n} speaks of the cold room and of its {n} sensors." for n in range(40)]


@pytest.mark.requirement("D3")
def test_five_hundred_distinct_documents_come_from_the_sample_wiki_alone(tmp_path: Path) -> None:
    found = documents(500, handbook=tmp_path / "absent.jsonl")
    assert len(found) == 500
    assert len({page.id for page in found}) == len({page.text for page in found}) == 500
    assert found[: len(wiki_pages(pages.WIKI))] == wiki_pages(pages.WIKI)
    assert found == documents(500, handbook=tmp_path / "absent.jsonl")
    assert min(len(page.text.split()) for page in found[-100:]) > 200


def test_the_handbook_comes_first_where_it_is_at_hand(tmp_path: Path) -> None:
    events = [
        {"op": "create", "page_id": "p1", "title": "One", "text": "First text."},
        {"op": "edit", "page_id": "p1", "title": None, "text": "Second text."},
        {"op": "create", "page_id": "p2", "title": "Two", "text": "Gone."},
        {"op": "delete", "page_id": "p2"},
    ]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert [(page.id, page.title, page.text) for page in handbook_pages(file)] == [("p1", "p1", "Second text.")]
    assert documents(1, handbook=file)[0].id == "p1"


def test_without_pages_there_is_nothing_to_make_documents_from(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no pages"):
        documents(5, wiki=tmp_path, handbook=tmp_path / "absent.jsonl")


def test_sentences_are_prose_of_some_length() -> None:
    text = (
        "# A heading of no less than eight words is none\n"
        "Too short. This sentence has more than eight words, so it is taken along. Short again.\n"
        "- a list item of more than eight words is not taken either\n"
        "A sentence with a [link](http://x) of more than eight words is left out too.\n"
    )
    assert sentences([text, text]) == ["This sentence has more than eight words, so it is taken along."]


def test_made_pages_depend_on_the_seed() -> None:
    assert shuffled(POOL, 3, 1) == shuffled(POOL, 3, 1)
    assert {p.text for p in shuffled(POOL, 3, 1)}.isdisjoint({p.text for p in shuffled(POOL, 3, 2)})


def test_short_texts_are_distinct_and_a_longer_run_begins_like_a_shorter_one() -> None:
    assert len(set(short_texts(POOL, 50, 5))) == 50
    assert short_texts(POOL, 50, 5)[:10] == short_texts(POOL, 10, 5)


@pytest.mark.requirement("D6")
def test_one_paragraph_changes_and_no_other() -> None:
    before = long_page(POOL, 100, 7)
    after = with_one_paragraph_changed(before, POOL, 8)
    assert len(before) == len(after) == 200
    changed = [number for number in range(200) if before[number] != after[number]]
    assert len(changed) == 1
    assert not before[changed[0]].startswith("#")
    assert 50 < changed[0] < 150
