"""Mails to blocks: what was written, by whom, to whom, and what was attached."""

from __future__ import annotations

import base64
import io
import time

import pytest
import xlsxwriter

from pipeline.extract.reading import Limits
from tests.unit.extract.mails import HEAD, extract, mail, plain, shape


@pytest.mark.requirement("A2")
def test_subject_fields_and_body() -> None:
    document = extract(mail("Hello,\n\nthe valve is shut.\n\n* one\n* two\n"))
    assert (document.title, document.media_type, document.warnings) == ("Valves", "message/rfc822", ())
    assert [(b.type, b.level, b.text) for b in document.blocks] == [
        ("heading", 1, "Valves"),
        ("paragraph", 0, "From: Ann Ü <ann@example.org>\nTo: bob@example.org, Carl <carl@example.org>\n"
                         "Cc: dan@example.org\nDate: 2026-03-02 14:30+01:00"),
        ("paragraph", 0, "Hello,"),
        ("paragraph", 0, "the valve is shut."),
        ("list", 0, "* one\n* two"),
    ]  # fmt: skip


@pytest.mark.requirement("A2")
def test_of_alternatives_the_html_is_read_once() -> None:
    message = mail("Plain words about the valve.")
    message.add_alternative(
        "<h1>Rich</h1><p>Words about the <b>valve</b>.</p><img src='cid:a' alt='a red valve'>", "html"
    )
    assert [(b.type, b.level, b.text) for b in extract(message).blocks[2:]] == [
        ("heading", 2, "Rich"),
        ("paragraph", 0, "Words about the valve."),
        ("paragraph", 0, "a red valve"),
    ]


@pytest.mark.requirement("A2")
def test_an_empty_html_part_gives_way_to_plain_text() -> None:
    message = mail("Plain words.")
    message.add_alternative("<html><body><img src='cid:a'></body></html>", "html")
    assert shape(message)[2:] == [("paragraph", "Plain words.")]


@pytest.mark.requirement("A2")
def test_pictures_shown_in_the_html_are_no_attachments() -> None:
    message = mail("p")
    message.add_alternative("<p>See <img src='cid:one' alt='the red valve'></p>", "html")
    html = message.get_payload()[1]  # type: ignore[index]
    html.add_related(b"\x89PNG\r\n\x1a\n", "image", "png", cid="<one>")  # type: ignore[union-attr]
    assert shape(message)[2:] == [("paragraph", "See the red valve")]


@pytest.mark.requirement("A2")
def test_attachments_stand_below_their_names() -> None:
    message = mail()
    message.add_attachment("# Guide\n\nTurn it.\n", subtype="markdown", filename="guide.md")
    book = io.BytesIO()
    with xlsxwriter.Workbook(book) as workbook:
        workbook.add_worksheet("Stock").write_column(0, 0, ["valve", "pump"])
    message.add_attachment(book.getvalue(), "application", "octet-stream", filename="Überblick 2026.xlsx")
    message.add_attachment("a,b\n1,2\n", subtype="csv", filename="table.csv")
    document = extract(message)
    assert document.warnings == ()
    assert [(b.type, b.level, b.text) for b in document.blocks[3:]] == [
        ("heading", 2, "Attachment: guide.md"),
        ("heading", 3, "Guide"),
        ("paragraph", 0, "Turn it."),
        ("heading", 2, "Attachment: Überblick 2026.xlsx"),
        ("heading", 3, "Stock"),
        ("list", 0, "- valve\n- pump"),
        ("heading", 2, "Attachment: table.csv"),
        ("table", 0, "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    ]


@pytest.mark.requirement("A2")
def test_attachments_of_which_nothing_is_read_are_named_after_the_body() -> None:
    message = mail()
    message.add_attachment(b"MZ\x90\x00" + bytes(range(256)), "application", "octet-stream", filename="tool.exe")
    message.add_attachment("a,b\n1,2\n", subtype="csv", filename="table.csv")
    message.add_attachment(b"", "text", "plain", filename="empty.txt")
    message.add_attachment(" \n", subtype="plain", filename="blank.txt")
    document = extract(message)
    assert [(b.type, b.text) for b in document.blocks[2:]] == [
        ("paragraph", "Hello."),
        ("paragraph", "Attachments: tool.exe, empty.txt, blank.txt"),
        ("heading", "Attachment: table.csv"),
        ("table", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    ]
    assert [warning.split(":")[0] for warning in document.warnings] == ["attachment tool.exe", "attachment empty.txt"]


@pytest.mark.requirement("A2", "F06")
def test_of_two_thousand_attachments_a_broken_one_costs_itself_alone() -> None:
    parts = [b"From: a@example.org\nSubject: S\nContent-Type: multipart/mixed; boundary=XX\n"]
    for number in range(2000):
        content = f"word{number} stands here".encode() if number != 1234 else b"%PDF-1.7 and no more"
        kind = b"text/plain" if number != 1234 else b"application/pdf"
        parts.append(
            b"\n--XX\nContent-Type: %s\nContent-Disposition: attachment; filename=f%d\n\n%s" % (kind, number, content)
        )
    start = time.process_time()
    document = extract(b"".join([*parts, b"\n--XX--\n"]))
    assert time.process_time() - start < 40
    texts = {block.text for block in document.blocks}
    assert {f"word{n} stands here" for n in range(2000) if n != 1234} <= texts
    assert "Attachments: f1234" in texts and "Attachment: f1234" not in texts
    (warning,) = document.warnings
    assert warning.startswith("attachment f1234: ")


@pytest.mark.requirement("A2")
def test_attached_mails_are_read_as_deep_as_the_limit_goes() -> None:
    message = mail("bottom", "level 5")
    for level in (4, 3, 2, 1):
        outer = mail(f"body {level}", f"level {level}")
        outer.add_attachment(message)
        message = outer
    document = extract(message, Limits(nesting=3))
    texts = [block.text for block in document.blocks]
    assert [f"body {n}" in texts for n in (1, 2, 3, 4)] == [True] * 4
    assert "bottom" not in texts
    assert len(document.warnings) == 1
    assert document.warnings[0].startswith(
        "attachment level 2: attachment level 3: attachment level 4: attachment level 5:"
    )
    assert "bottom" in [block.text for block in extract(message, Limits(nesting=4)).blocks]


@pytest.mark.requirement("A2")
def test_a_mail_attached_in_base64_is_read() -> None:
    inner = base64.encodebytes(mail("inner words", "Inner").as_bytes())
    data = (
        b"From: a@example.org\nSubject: S\nContent-Type: multipart/mixed; boundary=XX\n\n--XX\n"
        b"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n"
        b"Content-Disposition: attachment; filename=inner.eml\n\n" + inner + b"\n--XX--\n"
    )
    assert ("paragraph", "inner words") in shape(data)


@pytest.mark.requirement("A2")
def test_history_is_quoted() -> None:
    text = (
        "Yes.\n\nOn Mon, 2 Mar 2026 at 10:00, Bob <b@example.org>\nwrote:\n> Is it shut?\n> > It leaks.\n>\n> B.\n\n"
        "I said so.\n\n-----Original Message-----\nFrom: Carl\nold words\n> older words\n"
    )
    assert shape(plain(text)) == [
        *HEAD,
        ("paragraph", "Yes."),
        ("quote", "On Mon, 2 Mar 2026 at 10:00, Bob <b@example.org>\nwrote:"),
        ("quote", "Is it shut?"),
        ("quote", "It leaks."),
        ("quote", "B."),
        ("paragraph", "I said so."),
        ("quote", "-----Original Message-----\nFrom: Carl\nold words"),
        ("quote", "older words"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "head",
    [
        "From: Bob\nSent: Monday\nTo: Ann\nSubject: Valve",
        "Von: Bob\nGesendet: Montag\nAn: Ann\nBetreff: Ventil",
        "*De :* Bob\n*Envoyé :* lundi\n*Objet :* Vanne",
        "---------- Forwarded message ---------\nFrom: Bob",
    ],
)
def test_heads_of_older_mails_begin_the_history(head: str) -> None:
    assert shape(plain(f"New.\n\n{head}\n\nOld.\n"))[2:] == [("paragraph", "New."), ("quote", head), ("quote", "Old.")]
    html = f"<p>New.</p><p>{head.replace(chr(10), '<br>')}</p><p>Old.</p>"
    assert shape(plain(html, "text/html; charset=utf-8"))[2:] == [
        ("paragraph", "New."), ("quote", head), ("quote", "Old."),
    ]  # fmt: skip


@pytest.mark.requirement("A2")
def test_a_sentence_that_begins_with_from_is_no_head() -> None:
    assert shape(plain("From: the top of the hill\none sees far.\n\nOld.\n"))[2:] == [
        ("paragraph", "From: the top of the hill\none sees far."),
        ("paragraph", "Old."),
    ]
    assert shape(plain(">= 5 bar is too much\nfor the hose"))[2:] == [
        ("paragraph", ">= 5 bar is too much\nfor the hose")
    ]


@pytest.mark.requirement("A2")
def test_signatures_are_left_out_and_long_ends_are_not() -> None:
    assert shape(plain("Words.\n-- \nAnn\nValves Ltd\n"))[2:] == [("paragraph", "Words.")]
    long = "\n".join(f"line {n}" for n in range(30))
    assert shape(plain(f"Words.\n-- \n{long}\n"))[2:] == [("paragraph", f"Words.\n--\n{long}")]


@pytest.mark.requirement("A2")
def test_flowed_lines_are_joined() -> None:
    flowed = "A line that \ngoes on \nhere.\nNew line.\n> quoted and \n> going on\n  stuffed\n-- \nAnn\n"
    assert shape(plain(flowed, "text/plain; charset=utf-8; format=flowed"))[2:] == [
        ("paragraph", "A line that goes on here.\nNew line."),
        ("quote", "quoted and going on"),
        ("paragraph", " stuffed"),
    ]
    assert shape(plain("日本 \n語です", "text/plain; charset=utf-8; format=flowed; delsp=yes"))[2:] == [
        ("paragraph", "日本語です")
    ]


@pytest.mark.requirement("A2", "F15")
@pytest.mark.parametrize(
    ("raw", "kind", "doubt"),
    [
        ("déjà prêt".encode("latin-1"), "text/plain; charset=iso-8859-1", False),
        ("déjà prêt".encode(), "text/plain; charset=x-unknown-42", True),
        ("déjà prêt, très bientôt".encode("cp1252"), "text/plain; charset=utf-8", True),
    ],
)
def test_charsets_that_are_declared_wrong_or_unknown(raw: bytes, kind: str, doubt: bool) -> None:
    document = extract(plain(raw, kind))
    assert document.blocks[2].text.startswith("déjà prêt")
    assert any(warning.startswith("charset:") for warning in document.warnings) is doubt


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"=?utf-8?b?w5xiZXJsYXVm?= of =?iso-8859-1?q?=C4rger?=", "Überlauf of Ärger"),
        ("Überlauf".encode(), "Überlauf"),
        ("Überlauf der Behälter".encode("latin-1"), "Überlauf der Behälter"),
        (b"folded\r\n  over lines", "folded over lines"),
        (b"=?x-none?q?abc?= end", "abc end"),
        (b"=?utf-8?b?!!!?= end", None),
    ],
)
def test_headers_in_any_encoding(header: bytes, text: str | None) -> None:
    document = extract(b"From: a@example.org\r\nSubject: " + header + b"\r\n\r\nBody words.\r\n")
    assert document.blocks[-1].text == "Body words."
    assert document.title == text if text is not None else document.title and document.title.endswith("end")
