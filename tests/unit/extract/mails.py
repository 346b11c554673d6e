"""Mails as the tests write them."""

from __future__ import annotations

from email.message import EmailMessage

from pipeline.extract import BlockExtractor
from pipeline.extract.reading import Limits
from schemas.documents import ExtractedDocument


def extract(source: bytes | EmailMessage, limits: Limits | None = None) -> ExtractedDocument:
    data = source if isinstance(source, bytes) else source.as_bytes()
    return BlockExtractor(limits).extract(data, "message/rfc822", path="mail.eml")


def shape(source: bytes | EmailMessage) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in extract(source).blocks]


def mail(body: str = "Hello.", subject: str = "Valves") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ann Ü <ann@example.org>"
    message["To"] = "bob@example.org, Carl <carl@example.org>"
    message["Cc"] = "dan@example.org"
    message["Bcc"] = "secret@example.org"
    message["Date"] = "Mon, 02 Mar 2026 14:30:00 +0100"
    message["Subject"] = subject
    message["X-Mailer"] = "Noise 1.0"
    message.set_content(body)
    return message


def plain(body: str | bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    """A mail of one part as it comes over the wire."""
    content = body.encode() if isinstance(body, str) else body
    return b"From: a@example.org\r\nSubject: S\r\nContent-Type: " + kind.encode() + b"\r\n\r\n" + content


HEAD = [("heading", "S"), ("paragraph", "From: a@example.org")]
