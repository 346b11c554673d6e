"""Bytes to text: what is declared, what the bytes prove, what is guessed and said to be."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline.extract.charset import decode

INTL = Path(__file__).parents[3] / "samples" / "wiki" / "intl"
LOW_TRUST = "with low trust"


def read(body: bytes, declared: str | None = None) -> tuple[str, str]:
    text, warnings = decode(body, declared, markup=False)
    return text, " ".join(warnings)


@pytest.mark.requirement("A2", "F15")
@pytest.mark.parametrize(
    ("text", "encodings"),
    [
        ("déjà prêt", ["iso8859-1", "cp1252"]),
        ("Überlauf im Becken", ["cp1252"]),
        ("Die Kühlkette wurde geprüft, größere Mängel gab es nicht.", ["cp1252", "utf-16-le", "utf-32-be"]),
        ("El señor pidió una devolución mañana.", ["cp1252", "utf-32-le"]),
        ("Zażółć gęślą jaźń w bibliotece i proszę o pomoc.", ["cp1250", "iso8859-2"]),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy.", ["cp1250", "iso8859-2"]),
        ("Прошивка прибора не читает карты", ["cp1251", "koi8-r", "iso8859-5", "cp866", "utf-16-le", "utf-16-be"]),
        ("Склад закрыт до понедельника, отгрузка невозможна.", ["cp1251", "koi8-r", "utf-16-le"]),
        ("прибор не найден в отделе", ["cp1251"]),  # letters that could all be Hebrew ones
        ("Зарядний пристрій не працює, його треба замінити.", ["cp1251", "koi8-u"]),
        ("Ο φορτιστής δεν λειτουργεί καθόλου", ["cp1253", "iso8859-7", "utf-16-be"]),
        ("המטען אינו פועל כלל", ["cp1255", "iso8859-8", "utf-16-le"]),
        ("الشاحن لا يعمل على الإطلاق", ["cp1256"]),
        ("Şarj cihazı çalışmıyor, lütfen şubesine gönderin.", ["cp1254"]),
        ("障害が発生した", ["shift_jis", "cp932", "euc_jp", "iso2022_jp", "utf-16-le"]),
        ("障害が発生した場合は連絡してください。", ["shift_jis", "euc_jp", "iso2022_jp", "utf-16-be"]),
        ("充电器完全不能工作，请联系我们。", ["gb18030", "gb2312"]),
        ("充電器完全不能工作，請聯繫我們。", ["big5"]),
        ("충전기가 작동하지 않습니다", ["euc_kr", "cp949", "iso2022_kr"]),
        ("เครื่องชาร์จไม่ทำงาน", ["cp874"]),
    ],
)
def test_undeclared_bytes_are_read_rightly_and_flagged(text: str, encodings: list[str]) -> None:
    for encoding in encodings:
        got, warnings = read(text.encode(encoding))
        assert got == text, encoding
        assert LOW_TRUST in warnings, encoding


@pytest.mark.requirement("A2", "F15")
@pytest.mark.parametrize(
    ("page", "encodings"),
    [
        ("de-kuehlkette.md", ["cp1252", "utf-16-le"]),
        ("fr-vendanges.md", ["cp1252", "iso8859-15"]),
        ("es-lonja.md", ["cp1252"]),
        ("el-ixthyokalliergeia.md", ["cp1253", "utf-16-le"]),
        ("he-hisunim.md", ["cp1255", "utf-16-be"]),
        ("ja-shushi-hokan.md", ["cp932", "euc_jp", "utf-16-le", "utf-16-be"]),
        ("ru-sklad.md", ["cp1251", "koi8-r", "utf-16-le", "utf-32-le"]),
        ("zh-chayuan.md", ["gb18030", "utf-16-le"]),
    ],
)
def test_real_pages_survive_the_loss_of_their_declaration(page: str, encodings: list[str]) -> None:
    text = (INTL / page).read_text("utf-8")
    for encoding in encodings:
        body = text.encode(encoding, "ignore")
        got, warnings = read(body)
        assert got == body.decode(encoding), encoding
        assert LOW_TRUST in warnings


@pytest.mark.requirement("A2", "F15")
@pytest.mark.parametrize("text", ["plain ASCII", "déjà prêt", "障害が発生した", "x\x1b[31mred\x1b(B\x1b[m", ""])
def test_utf8_needs_no_declaration_and_raises_no_doubt(text: str) -> None:
    assert read(text.encode()) == (text, "")


@pytest.mark.requirement("A2", "F15")
def test_a_declaration_that_the_bytes_contradict_is_passed_over_and_said() -> None:
    # UTF-8 under a single-byte label, ASCII under UTF-16: the commonest false labels
    for label in ("iso-8859-1", "windows-1252", "us-ascii", "koi8-r"):
        text, warnings = read("Größe: déjà prêt".encode(), label)
        assert text == "Größe: déjà prêt" and "is UTF-8" in warnings
    text, warnings = read(b"plain ASCII of even length", "utf-16")
    assert text == "plain ASCII of even length" and "is UTF-8" in warnings
    # a label that fits is obeyed: multi-byte ones, and single-byte ones on bytes that are no UTF-8
    assert read("Größe".encode("cp1252"), "latin1") == ("Größe", "")
    assert read("障害".encode("euc_jp"), "euc-jp") == ("障害", "")
    assert read("障害".encode("utf-16-le"), "utf-16le") == ("障害", "")
    assert read("Größe".encode(), "x-utf8mb4")[0] == "Größe"
    assert read("障害".encode("cp932"), "x-sjis") == ("障害", "")


@pytest.mark.requirement("A2", "F15")
def test_a_few_broken_bytes_do_not_turn_a_whole_text_into_mojibake() -> None:
    good = "Der Überlauf wurde geprüft, größere Mängel gab es nicht.\n" * 200
    body = good.encode() + b"broken \xe4 here\n" + good.encode()[:-2] + b"\xc3"
    for declared in (None, "utf-8"):
        text, warnings = read(body, declared)
        assert text.startswith(good) and "broken \ufffd here" in text and text.endswith("\ufffd")
        assert "2 byte sequences" in warnings
    # more broken than valid: it is no UTF-8
    text, warnings = read("Überlauf geprüft größere Mängel €5".encode("cp1252"), None)
    assert text == "Überlauf geprüft größere Mängel €5" and LOW_TRUST in warnings


@pytest.mark.requirement("A2", "F15")
def test_line_ends_and_marks_leave_one_form() -> None:
    forms = [form.encode(code) for form in ("a\nb\n\nc", "a\r\nb\r\n\r\nc", "a\rb\r\rc")
             for code in ("utf-8", "utf-8-sig", "utf-16", "utf-32")]  # fmt: skip
    assert {read(form) for form in forms} == {("a\nb\n\nc", "")}


@pytest.mark.requirement("A2", "I8")
def test_large_bodies_are_guessed_from_a_sample_in_linear_time() -> None:
    line = b"2026-03-02 request served without any fault at all\n"
    body = line * 200_000 + "Überlauf im Becken gemeldet\n".encode("cp1252") * 2000
    started = time.process_time()
    text, warnings = read(body)
    assert text.endswith("Überlauf im Becken gemeldet\n") and LOW_TRUST in warnings
    assert time.process_time() - started < 9


@pytest.mark.requirement("A2", "I8")
def test_bytes_that_few_charsets_know_are_read_with_low_trust() -> None:
    for body in (b"\xff\x81\xff", bytes((0x81, 0x8D, 0xFF, 0x90, 0x9D, 0xFF)) * 3 + b"\x80"):
        text, warnings = read(body)
        assert len(text) == len(body) and LOW_TRUST in warnings
