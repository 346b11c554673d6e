"""Mails whose headers raised, lost their text or showed who was to stay hidden."""

from __future__ import annotations

import pytest

from pipeline.extract.extractor import BlockExtractor

pytestmark = pytest.mark.requirement("A2")
MAIL = "message/rfc822"


def _text(mail: str) -> str:
    made = BlockExtractor().extract(mail.encode(), MAIL)
    return "\n".join([made.title or "", *(block.text for block in made.blocks)])


def test_an_encoded_word_with_a_nul_in_its_charset_is_read() -> None:
    assert "a body" in _text("Subject: =?utf\0-8?q?Tides?=\nFrom: a@x\n\na body\n")


@pytest.mark.parametrize("label", ["charset*=a\0b''utf-8", "charset*=a%00b''utf-8%ff", 'charset="a\0b"'])
def test_a_part_with_a_broken_charset_keeps_its_text(label: str) -> None:
    assert "a body" in _text(f"Subject: s\nFrom: a@x\nContent-Type: text/plain; {label}\n\na body\n")


def test_a_returned_mails_headers_do_not_name_hidden_recipients() -> None:
    text = _text(
        "From: a@x\nSubject: Returned\nContent-Type: multipart/report; boundary=b\n\n--b\n\nIt failed.\n"
        "--b\nContent-Type: text/rfc822-headers\n\nTo: ann@x\n"
        "BCC: bob@x,\n carl@x\nResent-Bcc: dora@x\nSubject: Tides\n"
        "--b--\n"
    )
    assert "ann@x" in text and "Tides" in text and "It failed." in text
    assert not any(name in text for name in ("bob", "carl", "dora", "BCC", "Bcc"))
