"""The tokens of the sparse index, and exact identifiers."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analysis import MAX_IDENTIFIERS, MAX_TOKEN, identifiers, lexical, tokens


@pytest.mark.requirement("F17")
@pytest.mark.parametrize(
    ("sentence", "rare"),
    [
        ("Прошивка прибора не читает карты", "ПРОШИВКА"),
        ("Ο φορτιστής δεν λειτουργεί καθόλου", "φορτιστης"),
        ("המטען אינו פועל כלל", "המטען"),
        ("障害が発生した場合は連絡してください", "連絡"),
        ("เครื่องชาร์จไม่ทำงาน", "ชาร์จ"),
        ("충전기가 작동하지 않습니다", "충전기가"),
        ("The charger is inoperable", "Inoperable"),
        ("Das Ladegerät heißt Straße", "STRASSE"),
        ("ＦＵＬＬ ｗｉｄｔｈ ﬁne", "full width fine"),
    ],
)
def test_a_rare_word_of_any_script_is_among_the_tokens(sentence: str, rare: str) -> None:
    wanted = tokens(rare)
    assert wanted
    assert set(wanted) <= set(tokens(sentence))


@pytest.mark.requirement("B1", "F17")
def test_words_are_folded_and_kept_in_order() -> None:
    assert tokens("Déjà vu, déjà PRÊT_now x2") == ["deja", "vu", "deja", "pret", "now", "x2"]
    assert tokens("漢字 x かな") == ["漢", "漢字", "字", "x", "かな"]
    assert tokens("かなか") == ["かな", "なか"]
    assert tokens("字") == ["字"]
    assert tokens(" … — !") == []
    assert tokens("नमस्ते") != tokens("नमसत")  # marks of other scripts change the word
    assert tokens("a" * 200) == ["a" * MAX_TOKEN]


@pytest.mark.requirement("F17")
@pytest.mark.parametrize(
    "spellings",
    [
        # one word as several writers and keyboards spell it
        ("データ", "ﾃﾞｰﾀ", "テ\u3099ータ"),
        ("น้ำ", "นํ้า", "น\u0e49\u0e4d\u0e32"),
        ("ນ້ຳ", "ນໍ້າ"),
        ("الكتاب", "الكِتَابُ", "الكـــتاب", "الکتاب"),
        ("أحمد", "احمد", "ٱحمد"),
        ("إلى", "الي", "الى"),
        ("میخواهم", "می\u200cخواهم", "ميخواهم"),
        ("מטען", "מַטְעֵן"),
        ("ΟΔΌΣ", "οδός", "οδος"),
        ("Прошивка", "ПРОШИВКА"),
        ("ёлка", "елка"),
        ("ISPARTA", "ısparta", "isparta"),
        ("İstanbul", "istanbul", "ISTANBUL"),
        ("Straße", "STRASSE", "strasse", "Stra\u00adße"),
        ("Łódź", "lodz"),
        ("œuvre", "OEUVRE"),
        ("२०२६", "٢٠٢٦", "۲۰۲۶", "２０２６", "2026"),
        ("नमस्ते", "नमस्\u200dते"),
        ("क़लम", "क\u093cलम"),
        ("한국", "한국"),
    ],
)
def test_spellings_of_a_word_meet(spellings: tuple[str, ...]) -> None:
    assert tokens(spellings[0])
    assert {tuple(tokens(spelling)) for spelling in spellings} == {tuple(tokens(spellings[0]))}


@pytest.mark.requirement("F17")
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("दिन", "दान"),  # vowel signs are letters of Indic words
        ("กา", "ก่า"),  # and tones of Thai ones
        ("かき", "がき"),
        ("ไหม", "ใหม"),
        ("மலை", "மழை"),
        ("ខ្មែរ", "ខមរ"),
        ("мир", "мор"),
        ("كتاب", "كتب"),
    ],
)
def test_words_that_differ_in_a_meaning_mark_stay_apart(left: str, right: str) -> None:
    assert set(tokens(left)) != set(tokens(right))


@pytest.mark.requirement("F17")
def test_marks_and_signs_split_no_word_and_join_none() -> None:
    assert tokens("नमस्ते दुनिया।") == ["नमस्ते", "दुनिया"]
    assert tokens("தமிழ் மொழி") == ["தமிழ்", "மொழி"]
    assert tokens("বাংলা ভাষা।") == ["বাংলা", "ভাষা"]
    assert tokens("בית־ספר") == ["בית", "ספר"]  # the Hebrew hyphen parts words
    assert tokens("ジョン・スミス") == ["ジョ", "ョン", "スミ", "ミス"]  # as the middle dot does
    assert tokens("人々") == ["人", "人々", "々"]
    assert tokens("un\u00adbreak\u200bable") == ["unbreakable"]


@pytest.mark.requirement("F17")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("茶园每日盐检", "盐"),
        ("충전기가 작동하지", "충전기"),
        ("자동충전기를", "충전기"),
        ("สายชาร์จใหม่", "ชาร์จ"),
        ("新型充電器を購入", "充電器"),
    ],
)
def test_a_word_inside_a_run_is_found_by_itself(text: str, query: str) -> None:
    assert set(tokens(query)) <= set(tokens(text))


@pytest.mark.requirement("B1")
def test_lexical_joins_parts_without_merging_words() -> None:
    assert lexical("Title one", "", "Head", "text") == "title one head text"


@pytest.mark.requirement("B1")
@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_tokens_hold_no_white_space_and_survive_a_second_pass(left: str, right: str) -> None:
    found = tokens(left)
    assert all(token and not any(c.isspace() for c in token) for token in found)
    assert lexical(left, right).split() == lexical(left).split() + lexical(right).split()
    assert tokens(left) == tokens(unicodedata.normalize("NFKC", left))


@pytest.mark.requirement("B1")
@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_ascii_takes_the_short_way_to_the_same_tokens(text: str) -> None:
    assert tokens(text + "é")[:-1] == tokens(text + " ")[: len(tokens(text + "é")) - 1]


@pytest.mark.requirement("B1")
def test_identifiers_are_exact() -> None:
    found = identifiers(
        "Set ERR_SSL_PROTOCOL_ERROR, use fs.readFileSync() or X-500-G2 (not v2.4.18-rc1), 0xC0000005, E17."
    )
    assert found == ("err_ssl_protocol_error", "fs.readfilesync", "x-500-g2", "v2.4.18-rc1", "0xc0000005", "e17")
    assert set(identifiers("X-500-G3")).isdisjoint(found)
    assert identifiers("Plain words end here. Then more, and/or less.") == ()
    assert identifiers("2024 12:30 3.5") == ()
    assert identifiers("GitHub, iPhone and macOS; e.g. the 2nd of 18F's 401k plans, in 10ms") == ()
    assert identifiers("call readFile or os.path") == ("readfile", "os.path")


@pytest.mark.requirement("B1")
def test_identifiers_are_distinct_and_bounded() -> None:
    assert identifiers("a1 A1 a1") == ("a1",)
    assert len(identifiers(" ".join(f"id{i}" for i in range(1000)))) == MAX_IDENTIFIERS
