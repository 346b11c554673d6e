"""Mails: subject, sender and recipients, the body in its richest form, and every attachment below a heading."""

from __future__ import annotations

import re
from email import policy
from email.message import Message
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from typing import Any

from pipeline.errors import DocumentError
from pipeline.extract import charset, html
from pipeline.extract.invitations import read_calendar
from pipeline.extract.mail_parts import (
    CALENDARS,
    charset_label,
    children,
    content_type,
    declared,
    disposition,
    fields_to_show,
    filename,
    header,
    inner_mail,
    payload,
    ranked,
    text_payload,
)
from pipeline.extract.mail_text import history_quoted, read_plain
from pipeline.extract.media import HTML
from pipeline.extract.normalise import clean
from pipeline.extract.reading import Body, Reading, refused
from schemas.documents import Block, ExtractedDocument

_FIELDS = ("From", "To", "Cc", "Date")
_PLAUSIBLE = ("from", "to", "subject", "date", "received", "message-id", "content-type", "mime-version")
_MAX_FIELD = 2000  # characters
_MAX_PARTS = 20_000
_MAX_WARNINGS = 100
_SIGNATURES = frozenset({"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature",
                         "application/pgp-keys", "application/applefile"})  # fmt: skip
_SMIME = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_TNEF = frozenset({"application/ms-tnef", "application/vnd.ms-tnef"})
_REFERRED = re.compile(r"""cid:([^"'\s>)]{1,500})""", re.IGNORECASE)


def read(body: Body) -> Reading:
    """A Reader of mails (RFC 5322 with MIME).

    The subject is the top heading and the title; From, To, Cc and Date are one paragraph, other fields are left out. Of
    alternatives the HTML is read where it says anything. Older mails quoted below are quotes; the sender's signature is
    left out. Each attachment stands below a heading ``Attachment: name``; one that cannot be read is a warning, and its
    name stands in a paragraph that closes the body.
    Raises DocumentError for what is no mail, and (kind 'encrypted') where everything in it is encrypted.
    """
    try:
        # The newer policies parse every header into a tree, in time that grows with the square of its length.
        message = BytesParser(policy=policy.compat32).parsebytes(body.data)
    except RecursionError:
        raise refused("body: its MIME parts are nested too deep; forward what is inside them", "nesting") from None
    except Exception as error:  # the parser has met headers that it stumbles over
        raise refused(
            f"body: the mail cannot be read ({type(error).__name__}); save it from the mail program again", "malformed"
        ) from error
    if not any(name.lower() in _PLAUSIBLE for name in message.keys()):  # noqa: SIM118
        raise refused("body: it has no mail header; send it as text/plain if it is text", "malformed")
    return _Mail(body).read(message)


class _Mail:
    """One mail being read."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._blocks: list[Block] = []
        self._after: list[Block] = []  # attachments: they follow the body whatever their place among the parts
        self._unread: list[str] = []  # names of attachments of which nothing is read
        self._warnings: list[str] = []
        self._unsaid = 0
        self._size = 0
        self._referred: set[str] = set()
        self._encrypted = False
        self._described: set[str] = set()

    def read(self, message: Message[str, str]) -> Reading:
        subject = header(message, "Subject")
        if subject:
            self._blocks.append(Block(type="heading", level=1, text=subject))
        fields = [f"{name}: {self._field(message, name)}" for name in _FIELDS if header(message, name)]
        if fields:
            self._blocks.append(Block(type="paragraph", text="\n".join(fields)))
        head = len(self._blocks)
        self._parts(message)
        if self._unread:
            names = Block(type="paragraph", text=f"Attachments: {', '.join(self._unread)}")
            self._add(self._blocks, [names], 1)
        blocks = self._blocks + self._after
        if self._encrypted and len(blocks) == head:
            raise refused(
                "body: the mail is encrypted; decrypt it in the mail program and save it from there", "encrypted"
            )
        if self._encrypted:
            self._warn("encrypted: a part of the mail is encrypted and was not read")
        if self._unsaid:
            self._warnings.append(f"mail: {self._unsaid} more faults of the same kinds")
        language = header(message, "Content-Language").split(",")[0].strip()
        return Reading(blocks, subject or None, language[:35] or None, warnings=self._warnings)

    def _field(self, message: Message[str, str], name: str) -> str:
        if name == "Date":
            try:
                return parsedate_to_datetime(header(message, name)).isoformat(" ", "minutes")
            except (TypeError, ValueError, OverflowError):  # no date that can be read: as it stands
                pass
        text = header(message, name)
        if len(text) > _MAX_FIELD:
            self._warn(f"mail: {name} has {len(text)} characters; cut after {_MAX_FIELD}")
            text = text[:_MAX_FIELD].rstrip() + " …"
        return text

    def _parts(self, message: Message[str, str]) -> None:
        """All parts in order, without recursion. Beside each stand the alternatives for the case that it is empty."""
        work: list[tuple[Any, list[Any]]] = [(message, [])]
        count = 0
        while work:
            part, others = work.pop()
            count += 1
            if count > _MAX_PARTS:
                self._warn(f"mail: it has more than {_MAX_PARTS} parts; the rest was not read")
                return
            kind = content_type(part)
            if kind == "multipart/alternative":
                bodies, invitations = ranked(children(part))
                work.extend((one, []) for one in reversed(invitations))
                if bodies:
                    work.append((bodies[0], bodies[1:] + others))
                continue
            if kind == "multipart/encrypted":
                self._encrypted = True
                continue
            inside = children(part) if kind.startswith("multipart/") else []
            if inside:
                work.extend((one, others if index == 0 else []) for index, one in reversed([*enumerate(inside)]))
                continue
            try:
                empty = self._leaf(part, kind)
            except DocumentError:
                raise
            except Exception as error:
                self._warn(f"mail: a part of type {kind} cannot be read ({type(error).__name__}); left out")
                empty = True
            if empty and others:
                work.append((others[0], others[1:]))

    def _leaf(self, part: Any, kind: str) -> bool:
        """Reads one part; whether it is a body without any text."""
        name = filename(part)
        attached = disposition(part) == "attachment"
        if kind in _SIGNATURES:
            return False
        if kind in _TNEF or name.lower() == "winmail.dat":
            self._warn("attachment winmail.dat: its format (TNEF) is not read; ask the sender for HTML or plain text")
        elif kind in _SMIME:
            if str(part.get_param("smime-type", "")).lower() in ("signed-data", "certs-only"):
                self._warn("mail: it is signed in a form that hides its text (S/MIME); ask for clear signatures")
            else:
                self._encrypted = True
        elif kind == "application/pgp-encrypted":
            self._encrypted = True
        elif kind in CALENDARS:
            self._calendar(part)
        elif kind == "message/rfc822":
            self._attach(*inner_mail(part, name))
        elif kind.startswith("message/"):
            self._status(part, kind)
        elif kind.startswith("multipart/"):  # its boundary never comes: what is there is text
            return self._body_part(part, "text/plain")
        elif kind in ("text/html", "text/plain") and not attached and not name:
            return self._body_part(part, kind)
        elif not self._is_inline_image(part, kind):
            data = fields_to_show(payload(part)) if kind == "text/rfc822-headers" else payload(part)
            self._attach(name or f"unnamed ({kind})", data, declared(part, kind))
        return False

    def _body_part(self, part: Any, kind: str) -> bool:
        data = text_payload(part)
        text, warnings = charset.decode(data, charset_label(part), markup=kind == HTML)
        text = clean(text)
        for warning in warnings:
            self._warn(warning)
        if kind == HTML:
            self._referred.update(found.strip("<>").lower() for found in _REFERRED.findall(text))
            inside = Body(data, HTML, text, None, self._body.depth, self._body.limits, self._body.inner)
            reading = html.read(inside)
            blocks = history_quoted(reading.blocks)
            for warning in reading.warnings:
                self._warn(warning)
        else:
            flowed = str(part.get_param("format", "")).lower() == "flowed"
            delete_space = str(part.get_param("delsp", "")).lower() == "yes"
            plain = read_plain(text, flowed=flowed, delete_space=delete_space)
            blocks = plain.blocks
            self._encrypted = self._encrypted or plain.encrypted
            for name, file in plain.files:
                self._attach(name, file, "application/octet-stream")
            for name in plain.broken:
                self._warn(f"attachment {name}: its encoding (uuencode) is damaged; left out")
        self._add(self._blocks, blocks, 1)
        return not blocks

    def _add(self, target: list[Block], blocks: list[Block], shift: int) -> None:
        """Adds blocks with their headings moved below those of the mail."""
        for block in blocks:
            self._size += len(block.text)
            moved = block.type == "heading"
            target.append(block.model_copy(update={"level": min(block.level + shift, 6)}) if moved else block)
        limit = self._body.limits.output_bytes
        if self._size > limit:
            raise refused(
                f"body: more than {limit} characters in the mail and what is attached to it; save the attachments as "
                "documents of their own or raise extraction.output_mb",
                "output",
            )

    def _attach(self, name: str, data: bytes, declared: str) -> None:
        name = " ".join(name.split())[:300]
        document = self._extracted(name, data, declared) if data else None
        if not data:
            self._warn(f"attachment {name}: it is empty")
        for warning in document.warnings if document is not None else ():
            self._warn(f"attachment {name}: {warning}")
        if document is None or not document.blocks:  # a heading without text below would answer searches for its name
            self._unread.append(name)
            return
        self._after.append(Block(type="heading", level=2, text=f"Attachment: {name}"))
        self._add(self._after, list(document.blocks), 2)

    def _extracted(self, name: str, data: bytes, declared: str) -> ExtractedDocument | None:
        """What the attachment holds; None where it cannot be read: it costs a warning and not the mail."""
        if self._body.inner is None:
            self._warn(f"attachment {name}: not read")
            return None
        try:
            return self._body.inner(data, declared, name)
        except DocumentError as error:
            self._warn(f"attachment {name}: {error}")
        except Exception as error:
            self._warn(f"attachment {name}: it cannot be read ({type(error).__name__}); save it anew")
        return None

    def _calendar(self, part: Any) -> None:
        text, _ = charset.decode(payload(part), charset_label(part), markup=False)
        known = "".join("".join(block.text.split()) for block in self._blocks)
        for event in read_calendar(clean(text)):
            key = "\n".join([event.summary, *event.lines])
            if key in self._described:  # the same invitation stands among the alternatives and as a file
                continue
            self._described.add(key)
            blocks = [Block(type="heading", level=1, text=f"Invitation: {event.summary}".rstrip(": "))]
            if event.lines:
                blocks.append(Block(type="paragraph", text="\n".join(event.lines)))
            if event.description and "".join(event.description.split()) not in known:
                blocks.extend(read_plain(event.description).blocks)
            self._add(self._after, blocks, 1)

    def _status(self, part: Any, kind: str) -> None:
        """Reports of delivery and the like: their fields are the content."""
        if kind in ("message/partial", "message/external-body"):
            self._warn(f"mail: a part of type {kind} refers to what is elsewhere; not read")
            return
        groups = part.get_payload()
        lines = [
            "\n".join(
                f"{name}: {' '.join(str(value).split())}"
                for name, value in group.items()
                if name.lower() not in ("bcc", "resent-bcc")
            )
            for group in (groups if isinstance(groups, list) else [])
            if isinstance(group, Message)
        ]
        self._add(self._blocks, [Block(type="paragraph", text=line) for line in lines if line.strip()], 1)

    def _is_inline_image(self, part: Any, kind: str) -> bool:
        """A picture that the HTML shows: its alternative text stands there."""
        identity = str(part.get("Content-ID", "")).strip().strip("<>").lower()
        return kind.startswith("image/") and bool(identity) and identity in self._referred

    def _warn(self, warning: str) -> None:
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings.append(warning)
        else:
            self._unsaid += 1
