"""Mails of other kinds: invitations, encoded files, what is encrypted or broken, and limits."""

from __future__ import annotations

import binascii
import time

import pytest

from pipeline.errors import DocumentError
from pipeline.extract.mail import read
from pipeline.extract.media import MAIL
from pipeline.extract.reading import Body, Limits
from tests.unit.extract.mails import extract, mail, plain, shape

INVITATION = """BEGIN:VCALENDAR
METHOD:REQUEST
BEGIN:VTIMEZONE
BEGIN:STANDARD
DTSTART:19700101T000000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY:Valve review\\, part 2
DTSTART;TZID="Europe/Berlin":20260302T143000
DTEND;TZID=Europe/Berlin:20260302T153000
LOCATION:Room 7\\; first
  floor
ORGANIZER;CN="Ann: Head":mailto:ann@example.org
DESCRIPTION:Bring\\nthe valve.
BEGIN:VALARM
DESCRIPTION:alarm text
END:VALARM
END:VEVENT
END:VCALENDAR
"""


@pytest.mark.requirement("A2")
def test_invitations_say_what_when_and_where() -> None:
    message = mail("See you.")
    message.add_alternative("<p>See you there.</p>", "html")
    message.add_alternative(INVITATION, "calendar")
    message.make_mixed()
    message.add_attachment(INVITATION.encode(), "application", "ics", filename="invite.ics")
    assert [(b.type, b.level, b.text) for b in extract(message).blocks[2:]] == [
        ("paragraph", 0, "See you there."),
        ("heading", 2, "Invitation: Valve review, part 2"),
        (
            "paragraph",
            0,
            "When: 2026-03-02 14:30 – 15:30 (Europe/Berlin)\nWhere: Room 7; first floor\nOrganizer: Ann: Head",
        ),
        ("paragraph", 0, "Bring\nthe valve."),
    ]


@pytest.mark.requirement("A2")
def test_uuencoded_files_are_attachments() -> None:
    content = b"# Notes\n\nwords inside\n" * 5
    lines = [binascii.b2a_uu(content[i : i + 45]).decode() for i in range(0, len(content), 45)]
    encoded = f"begin 644 notes.md\n{''.join(lines)}`\nend\n"
    assert ("paragraph", "words inside") in shape(plain(f"Before.\n\n{encoded}\nAfter.\n"))
    assert shape(plain(f"Before.\n\n{encoded}\nAfter.\n"))[2:4] == [("paragraph", "Before."), ("paragraph", "After.")]
    cut = extract(plain("Before.\n\n" + encoded[:60]))
    assert cut.warnings == ("attachment notes.md: its encoding (uuencode) is damaged; left out",)
    assert shape(plain("begin 644 the work\nwith care, and see.\n"))[2:] == [
        ("paragraph", "begin 644 the work\nwith care, and see.")
    ]


@pytest.mark.requirement("A2")
def test_what_is_encrypted_is_refused_or_said() -> None:
    armour = "-----BEGIN PGP MESSAGE-----\n\nhQEMA\n=abcd\n-----END PGP MESSAGE-----\n"
    smime = plain("MIIB\n", "application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m")
    pgp = plain(
        "--XX\nContent-Type: application/pgp-encrypted\n\nVersion: 1\n--XX--\n",
        'multipart/encrypted; protocol="application/pgp-encrypted"; boundary=XX',
    )
    for data in (plain(armour), smime, pgp):
        with pytest.raises(DocumentError, match="encrypted") as caught:
            extract(data)
        assert caught.value.kind == "encrypted"
    document = extract(plain(f"Read this.\n\n{armour}"))
    assert [block.text for block in document.blocks[2:]] == ["Read this."]
    assert document.warnings == ("encrypted: a part of the mail is encrypted and was not read",)


@pytest.mark.requirement("A2")
def test_clear_signatures_leave_the_text() -> None:
    signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSigned words.\n- -dash\n" \
             "-----BEGIN PGP SIGNATURE-----\n\niQEz\n-----END PGP SIGNATURE-----\n"  # fmt: skip
    assert shape(plain(signed))[2:] == [("paragraph", "Signed words.\n-dash")]


@pytest.mark.requirement("A2")
def test_containers_of_outlook_are_named() -> None:
    message = mail()
    message.add_attachment(b"\x78\x9f\x3e\x22", "application", "ms-tnef", filename="winmail.dat")
    document = extract(message)
    assert [warning.partition(":")[0] for warning in document.warnings] == ["attachment winmail.dat"]
    assert document.blocks[-1].text == "Hello."


@pytest.mark.requirement("A2")
def test_reports_of_delivery_are_read() -> None:
    data = plain(
        "--XX\n\nIt failed.\n--XX\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.example.org\n\n"
        "Final-Recipient: rfc822; bob@example.org\nStatus: 5.1.1\n\n--XX--\n",
        "multipart/report; boundary=XX; report-type=delivery-status",
    )
    assert shape(data)[2:] == [
        ("paragraph", "It failed."),
        ("paragraph", "Reporting-MTA: dns; mx.example.org"),
        ("paragraph", "Final-Recipient: rfc822; bob@example.org\nStatus: 5.1.1"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "data",
    [
        b"From: a@example.org\nContent-Type: multipart/mixed; boundary=XX\n\nno boundary, only words\n",
        b"From: a@example.org\nContent-Type: multipart/mixed\n\nno boundary, only words\n",
        b"From: a@example.org\nContent-Type: multipart/mixed; boundary=XX\n\n--XX\n\nno boundary, only words\n",
        b"From: a@example.org\nContent-Type: text/plain; charset\n\nno boundary, only words\n",
        b"From: a@example.org\nContent-Type: ;;;\n\nno boundary, only words\n",
        b"From: <<>>@@,,\nDate: yesterday\nTo: \xff\xfe\nMIME-Version: x\n\nno boundary, only words\n",
        b"From: a@example.org\nContent-Transfer-Encoding: base64\n\nno boundary, only words\n",
        b"From: a@example.org\nContent-Transfer-Encoding: x-strange\n\nno boundary, only words\n",
        b"From: a@example.org\r\rno boundary, only words\r",
    ],
)
def test_broken_mails_keep_their_words(data: bytes) -> None:
    assert "no boundary, only words" in "\n".join(block.text for block in extract(data).blocks)


@pytest.mark.requirement("A2")
def test_what_has_no_header_is_no_mail() -> None:
    with pytest.raises(DocumentError, match="no mail header"):
        read(Body(data=b"Just a text\n\nwithout any header.\n", media=MAIL))


@pytest.mark.requirement("A2")
def test_parts_within_parts_without_end() -> None:
    deep = b"From: a@example.org\nSubject: S\n" + b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3000)
    )
    start = time.process_time()
    with pytest.raises(DocumentError) as caught:
        extract(deep + b"\nwords\n")
    assert caught.value.kind == "nesting"
    assert time.process_time() - start < 40


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "field",
    [b"To: " + b'"a" ' * 30_000, b"Cc: " + b"x <a@b.c>, " * 30_000, b"Subject: " + b"=?utf-8?q?a?= " * 30_000,
     b"Content-Type: text/plain" + b"; a=b" * 10_000, b"To: " + b"(" * 50_000],
)  # fmt: skip
def test_endless_headers_take_no_time(field: bytes) -> None:
    start = time.process_time()
    document = extract(b"From: a@example.org\n" + field + b"\n\nBody words.\n")
    assert document.blocks[-1].text == "Body words."
    assert time.process_time() - start < 15


@pytest.mark.requirement("A2")
def test_all_of_a_mail_counts_for_the_limit_of_output() -> None:
    message = mail()
    for number in range(10):
        message.add_attachment("word " * 100, filename=f"{number}.txt")
    with pytest.raises(DocumentError) as caught:
        extract(message, Limits(output_bytes=2000))
    assert caught.value.kind == "output"


@pytest.mark.requirement("A2", "I6")
def test_the_same_mail_gives_the_same_blocks() -> None:
    message = mail()
    message.add_attachment("a,b\n1,2\n", subtype="csv", filename="t.csv")
    data = message.as_bytes()
    assert extract(data) == extract(data)
