"""Snippets: what is marked is what scored, and nothing is cut where a reader would not cut."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline import analysis
from query_service.highlight import snippet
from query_service.matching import Words, matches
from schemas.api_ranking import Snippet

FILLER = "Nothing of interest stands here at all. "


def marked(text: str, query: str, limit: int = 4000) -> list[str]:
    found = snippet(text, Words.of(query), limit)
    return [found.text[a:b] for a, b in found.highlights]


@pytest.mark.requirement("E4")
@pytest.mark.parametrize(
    ("text", "query", "wanted"),
    [
        ("The café is open.", "CAFE", ["café"]),
        ("Le cafe\u0301 est ouvert.", "café", ["cafe\u0301"]),
        ("Die Straße und die STRASSE.", "strasse", ["Straße", "STRASSE"]),
        ("A ﬁne word: ﬁne.", "fine", ["ﬁne", "ﬁne"]),
        ("東京都の京都タワー", "東京", ["東京"]),
        ("京都の塔", "塔", ["塔"]),
        ("서울특별시에서 서울은", "서울", ["서울", "서울"]),
        ("ＡＢＣ and abc", "abc", ["ＡＢＣ", "abc"]),
        ("Łódź", "lodz", ["Łódź"]),
        ("soft\u00adhyphen", "softhyphen", ["soft\u00adhyphen"]),
        ("It calls fs.readFileSync.", "fs.readFileSync", ["fs.readFileSync"]),
        ("how is it that a probe is reset", "how is the probe reset", ["probe", "reset"]),
        ("to be or not to be", "to be or not to be", ["to", "be", "or", "not", "to", "be"]),
        ("a red fox, a fox red", '"red fox"', ["red fox", "fox", "red"]),
        ("nothing", "something", []),
    ],
)
def test_what_scored_is_marked(text: str, query: str, wanted: list[str]) -> None:
    assert marked(text, query) == wanted


@pytest.mark.requirement("E4", "B2")
def test_an_identifier_counts_only_whole() -> None:
    text = "v2.4.18-rc1 came before v2.4.18. See also v2.4.181."
    strong = [text[m.start : m.end] for m in matches(text, Words.of("v2.4.18")) if m.strong]
    assert strong == ["v2.4.18"]
    assert [m.start for m in matches(text, Words.of("v2.4.18")) if m.strong] == [text.index("v2.4.18. ")]


@pytest.mark.requirement("E4")
def test_the_window_holds_most_different_words_and_a_phrase_above_all() -> None:
    text = (
        "The pump and the pump and the pump of the pump. " + FILLER * 20
        + "Valve and pump share one seal here. " + FILLER * 20 + "A worn seal of any pump leaks."
    )  # fmt: skip
    both = snippet(text, Words.of("pump valve seal"), 120)
    assert "Valve and pump share one seal" in both.text and both.cut_before and both.cut_after
    phrase = snippet(text, Words.of('pump valve "worn seal"'), 120)
    assert "worn seal of any pump" in phrase.text and not phrase.cut_after


@pytest.mark.requirement("E4")
def test_it_begins_and_ends_with_sentences_where_they_fit() -> None:
    text = FILLER * 10 + "The probe is reset by its button. Hold it for seven seconds. " + FILLER * 10
    found = snippet(text, Words.of("probe seven"), 120)
    assert found.text.startswith("The probe is reset") or found.text.startswith("Nothing of interest")
    assert found.text.endswith(".")


@pytest.mark.requirement("E4")
def test_the_room_that_is_left_at_the_end_is_filled_with_whole_sentences() -> None:
    for pad in range(12):
        text = FILLER * 10 + "x" * pad + " The quay is closed."
        found = snippet(text, Words.of("quay"), 100)
        assert found.text.startswith("Nothing of interest") and found.text.endswith("quay is closed.")


@pytest.mark.requirement("E4")
def test_markup_stays_text_and_a_text_without_a_match_shows_its_beginning() -> None:
    text = "<script>alert('x')</script> " + FILLER * 30
    found = snippet(text, Words.of("unheard"), 60)
    assert found.text.startswith("<script>alert('x')</script>") and found.highlights == ()
    assert not found.cut_before and found.cut_after and len(found.text) <= 60


@pytest.mark.requirement("E4")
def test_a_word_longer_than_the_snippet_is_cut_and_marked() -> None:
    word = "x" * 300
    found = snippet(f"{FILLER}{word} {FILLER}", Words.of(word[:64]), 40)
    assert len(found.text) <= 40
    assert "x" in found.text


ANY = st.text(
    alphabet=st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from("aAeEßﬁİıΣς éüñ\u0301\u0308\u00ad\u200d東京の都ﾞｶがเำ้ํน서울\u1112\u1161\u11ab👩‍👩‍👧\n.!X-500_ "),
    ),
    max_size=200,
)


@settings(max_examples=150, deadline=None)
@given(ANY)
@example("e\u0301" * 30)
@example("\u1112\u1161\u11ab x")
@example("İstanbul ﬃ ΑΣ")
@pytest.mark.requirement("E4", "B2")
def test_places_are_those_of_the_analysis(text: str) -> None:
    """The words found by place are the words by which the sparse leg finds the text, whatever the script."""
    folded = analysis.plain(text)
    assert [token for token, _, _ in analysis.token_spans(folded)] == analysis.tokens(text)
    wanted = frozenset(analysis.tokens(text)[::2])
    assert list(analysis.token_spans(folded, wanted)) == [t for t in analysis.token_spans(folded) if t[0] in wanted]


@settings(max_examples=150, deadline=None)
@given(ANY, st.data(), st.integers(min_value=40, max_value=120))
@pytest.mark.requirement("E4")
def test_snippets_are_honest(text: str, data: st.DataObject, limit: int) -> None:
    tokens = analysis.tokens(text)
    query = " ".join(data.draw(st.lists(st.sampled_from(tokens), max_size=4))) if tokens else "x"
    words = Words.of(query or "x")
    found = snippet(text, words, limit)
    assert found.text in text and len(found.text) <= limit and found.text == found.text.strip()
    last = 0
    for a, b in found.highlights:
        assert last <= a < b <= len(found.text)
        last = b + 1
        assert set(analysis.tokens(found.text[a:b])) & words.tokens or any(m.strong for m in matches(text, words))
    at = text.index(found.text)
    borders = {0, len(text)} | {m.end() for m in regex.finditer(r"\X", text)}
    assert any(
        i in borders and i + len(found.text) in borders
        for i in range(at, len(text) - len(found.text) + 1)
        if text.startswith(found.text, i)
    )


@pytest.mark.requirement("E4", "D1")
def test_long_passages_cost_little_more_than_short_ones() -> None:
    text = (FILLER + "The café serves its famous soup. ") * 280
    words = Words.of("famous soup café pump")
    calls = {size: _calls(lambda size=size: snippet(text[:size], words, 320)) for size in (2_000, 20_000)}  # type: ignore[misc]
    # Work grows with the matches that are looked at, which are bounded.
    assert calls[20_000] < 10 * calls[2_000] and calls[20_000] < 12_000, calls


def _calls(work: Callable[[], Snippet]) -> int:
    """Functions called, Python's and built in: the same on a busy machine."""
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    work()  # what is looked up once
    sys.setprofile(counted)
    try:
        assert work().highlights
    finally:
        sys.setprofile(None)
    return count
