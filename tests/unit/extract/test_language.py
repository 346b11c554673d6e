"""Languages: declared ones in one form, others told from the prose."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pipeline.extract import BlockExtractor
from pipeline.extract.language import detected, tag
from schemas.documents import Block

WIKI = Path(__file__).parents[3] / "samples" / "wiki"
KINDS = {".md": "text/markdown", ".html": "text/html"}
PAGES = sorted(path for path in WIKI.rglob("*") if path.suffix in KINDS)


def paragraph(text: str) -> Block:
    return Block(type="paragraph", text=text)


def blocks_of(page: Path) -> tuple[Block, ...]:
    return BlockExtractor().extract(page.read_bytes(), KINDS[page.suffix], path=page.name).blocks


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The server could not be reached because the network was down.", "en"),
        ("Der Server konnte nicht erreicht werden, weil das Netz ausgefallen war.", "de"),
        ("Le serveur ne répond plus depuis ce matin et nous cherchons la cause.", "fr"),
        ("SERVER IS DOWN AND NOBODY KNOWS WHY THIS HAS HAPPENED TODAY", "en"),
        ("Склад закрыт до понедельника, отгрузка невозможна вообще.", "ru"),
        ("Зарядний пристрій не працює, його треба замінити на новий.", "uk"),
        ("الشاحن لا يعمل على الإطلاق، يرجى الاتصال بالدعم الفني", "ar"),
        ("شارژر اصلاً کار نمی‌کند، لطفاً با پشتیبانی تماس بگیرید", "fa"),
        ("Bộ sạc hoàn toàn không hoạt động, vui lòng liên hệ hỗ trợ", "vi"),
        # a script of one language decides alone, in short texts too
        ("障害が発生した", "ja"),
        ("鱼塘管理", "zh"),
        ("재고 관리 시스템", "ko"),
        ("เครื่องชาร์จไม่ทำงาน", "th"),
        ("המטען אינו פועל", "he"),
        ("Ο φορτιστής δεν λειτουργεί", "el"),
        # in doubt there is none
        ("Connection timed out", None),
        ("0xC0000005 x-500-g2 /usr/bin/env https://example.com/a/b " * 30, None),
        ("", None),
    ],
)
def test_the_language_of_prose_is_told_or_left_open(text: str, language: str | None) -> None:
    assert detected([paragraph(text)]) == language


@pytest.mark.requirement("A2")
def test_code_tables_and_addresses_have_no_vote() -> None:
    german = paragraph("Der Server konnte nicht erreicht werden, weil das Netz ausgefallen war.")
    english = "the server could not be reached because the network was down for a while " * 40
    others = [
        Block(type="code", text=english),
        Block(type="table", text=english),
        paragraph("https://example.com/the "),
    ]
    assert detected([*others, german, *others]) == "de"


@pytest.mark.requirement("A2")
def test_one_long_block_does_not_outvote_the_others() -> None:
    long = paragraph("the server could not be reached because the network was down for a while " * 400)
    german = [paragraph("Der Server konnte nicht erreicht werden, weil das Netz ausgefallen war. " * 5)] * 20
    assert detected([long, *german]) == "de"


@pytest.mark.requirement("A2")
def test_real_pages_are_in_the_language_of_their_name() -> None:
    for page in PAGES:
        wanted = page.name[:2] if page.parent.name == "intl" else "en"
        assert detected(blocks_of(page)) == wanted, page.name


@pytest.mark.requirement("A2", "I6")
def test_an_edit_of_a_sentence_changes_no_language() -> None:
    chance = random.Random(11)
    added = {"en": "Siehe auch die Hinweise zur Lagerung.", "de": "See also the notes about storage, please."}
    for page in PAGES:
        blocks = list(blocks_of(page))
        wanted = detected(blocks)
        for _ in range(3):
            edited = list(blocks)
            at = chance.randrange(len(edited))
            match chance.randrange(3):
                case 0:
                    del edited[at]
                case 1:
                    edited.insert(at, paragraph(added.get(wanted or "", added["de"])))
                case _:
                    edited[at] = edited[at].model_copy(update={"text": edited[at].text + " Updated on Monday."})
            assert detected(edited) == wanted, (page.name, at)


@pytest.mark.requirement("A2", "I8")
def test_a_huge_document_is_sampled() -> None:
    blocks = [paragraph("the server could not be reached because of the network " * 20_000)] * 3
    blocks += [paragraph(f"line {i} of the log was written by the server") for i in range(50_000)]
    assert detected(blocks) == "en"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("EN", "en"), ("en_US", "en-US"), ("english", "en"), ("en_US.UTF-8", "en-US"), ("zh-hans-cn", "zh-Hans-CN"),
        ("deu", "de"), ("ger-AT", "de-AT"), ("de-DE-1996", "de-DE"), ("German (Germany)", "de"), ("iw", "he"),
        ("en,de", "en"), ("fil", "fil"), ("es-419", "es-419"), ("en-US-u-hc-h12", "en-US"), ("日本語", "ja"),
        ("xx-invalid", None), ("i-klingon", None), ("x-private", None), ("C", None), ("POSIX", None), ("und", None),
        ("qq", None), ("en-", None), ("1", None), ("", None), (None, None), ("a" * 10_000, None),
    ],
)  # fmt: skip
def test_declared_languages_have_one_form(declared: str | None, wanted: str | None) -> None:
    assert tag(declared) == wanted


@pytest.mark.requirement("A2")
def test_a_declared_language_wins_and_one_that_is_none_is_said() -> None:
    page = "---\nlanguage: {}\n---\n\nThe server could not be reached because the network was down.\n"
    assert BlockExtractor().extract(page.format("de_AT").encode(), "text/markdown").language == "de-AT"
    document = BlockExtractor().extract(page.format("klingon!").encode(), "text/markdown")
    assert document.language == "en"
    assert any(warning.startswith("language: 'klingon!'") for warning in document.warnings)
