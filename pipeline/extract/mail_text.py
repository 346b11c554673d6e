"""The plain text of a mail: flowed lines joined, quoted history told apart, signatures cut off."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, field
from itertools import groupby

from pipeline.extract.text import read_text
from schemas.documents import Block

_QUOTED = re.compile(r"(?:>(?!=) ?)+")
_SIGNATURE_LINES = 12  # a longer end after "-- " is no signature
_UU_BEGIN = re.compile(r"begin [0-7]{3,4} (\S.{0,200})\Z")
_ARMOUR = re.compile(r"-----(BEGIN|END) PGP (MESSAGE|SIGNATURE|SIGNED MESSAGE|PUBLIC KEY BLOCK)-----\s*\Z")
_ORIGINAL = re.compile(
    r"\s*(?:-{2,}\s*(?:original message|forwarded (?:message|by .{1,80})|ursprüngliche nachricht|original-?nachricht|"
    r"weitergeleitete nachricht|message (?:d'|d’)origine|message transféré|mensaje original|mensaje reenviado|"
    r"messaggio originale|messaggio inoltrato|oorspronkelijk bericht|mensagem original|исходное сообщение)\s*-{2,}|"
    r"begin forwarded message:|anfang der weitergeleiteten nachricht:)\s*\Z",
    re.IGNORECASE,
)
_SENDER = re.compile(r"\s*\*?(?:from|von|de|da|van|от|отправитель)\s?:\*?\s*\S", re.IGNORECASE)
_SENT = re.compile(
    r"\s*\*?(?:sent|date|gesendet|datum|envoyé|enviado(?: el)?|fecha|inviato|data|verzonden|дата)\s?:\*?\s*\S",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"\s*\*?(?:subject|betreff|objet|asunto|oggetto|onderwerp|assunto|тема)\s?:", re.IGNORECASE)
_ATTRIBUTION = re.compile(
    r"\s*(?:on|am|le|el|il|op|em)\b.{5,300}(?:wrote|schrieb(?: .{1,100})?|a écrit|escribió|ha scritto|schreef|escreveu)"
    r"\s?:\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_HEADER_LINES = 6  # in which a sender, a date and a subject make the head of an older mail


@dataclass
class PlainText:
    """What a plain text holds: blocks, files that are encoded in it, and whether a part of it is encrypted."""

    blocks: list[Block] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # names of files that cannot be decoded
    encrypted: bool = False


def read_plain(text: str, *, flowed: bool = False, delete_space: bool = False) -> PlainText:
    """Blocks of a mail's plain text; quoted lines and older mails below are quotes.

    ``flowed`` and ``delete_space`` are those of its content type (RFC 3676). The signature, after a line ``-- ``, is
    left out: it repeats in every mail of its sender. Files encoded with uuencode are given apart.
    """
    found = PlainText()
    lines = _without_armour(_without_files(text.split("\n"), found), found)
    pieces = _flowed(lines, delete_space=delete_space) if flowed else [_depth(line) for line in lines]
    history = False
    for depth, group in groupby(pieces, key=lambda piece: piece[0]):
        own = [line for _, line in group]
        if depth:
            found.blocks.extend(quoted(read_text("\n".join(own))))
            continue
        if not history:
            start = next((n for n in range(len(own)) if starts_history(own, n)), len(own))
            found.blocks.extend(read_text("\n".join(_without_signature(own[:start]))))
            own, history = own[start:], start < len(own)
        if own:
            found.blocks.extend(quoted(read_text("\n".join(own))))
    found.blocks = attributions_quoted(found.blocks)
    return found


def quoted(blocks: list[Block]) -> list[Block]:
    """The same blocks with paragraphs and lists as quotes."""
    return [
        block.model_copy(update={"type": "quote"}) if block.type in ("paragraph", "list") else block for block in blocks
    ]


def history_quoted(blocks: list[Block]) -> list[Block]:
    """Blocks of a mail in HTML: from the head of an older mail on all paragraphs are quotes."""
    for index, block in enumerate(blocks):
        if block.type == "paragraph":
            lines = block.text.split("\n")
            if starts_history(lines, 0) or (len(lines) == 1 and _one_line_head(lines[0])):
                blocks = blocks[:index] + quoted(blocks[index:])
                break
    return attributions_quoted(blocks)


def attributions_quoted(blocks: list[Block]) -> list[Block]:
    """A paragraph such as ``On Monday Ann wrote:`` belongs to the quote after it."""
    result = list(blocks)
    for index in range(len(result) - 1):
        block = result[index]
        if block.type == "paragraph" and result[index + 1].type == "quote" and _ATTRIBUTION.match(block.text):
            result[index] = block.model_copy(update={"type": "quote"})
    return result


def starts_history(lines: list[str], index: int) -> bool:
    """Whether an older mail begins at this line: a rule that says so, or a head with sender, date and subject."""
    line = lines[index]
    if _ORIGINAL.match(line):
        return True
    if not _SENDER.match(line):
        return False
    after = lines[index + 1 : index + _HEADER_LINES]
    return any(_SENT.match(one) for one in after) and any(_SUBJECT.match(one) for one in after)


def _one_line_head(line: str) -> bool:
    if not _SENDER.match(line) or len(line) > 2000:
        return False
    words = re.split(r"(?<=\s)(?=\S{3,20}\s?:)", line)
    return any(_SENT.match(one) for one in words) and any(_SUBJECT.match(one) for one in words)


def _depth(line: str) -> tuple[int, str]:
    marks = _QUOTED.match(line)
    if marks is None or line.startswith(">From "):
        return 0, line.removeprefix(">") if line.startswith(">From ") else line
    return marks[0].count(">"), line[marks.end() :]


def _flowed(lines: list[str], *, delete_space: bool) -> list[tuple[int, str]]:
    """Lines that end with a blank go on in the next one of the same depth; one blank is stuffed before some lines."""
    pieces: list[tuple[int, str]] = []
    parts: list[str] = []
    open_depth: int | None = None
    for raw in lines:
        content = raw.lstrip(">")
        depth = len(raw) - len(content)
        content = content.removeprefix(" ")
        signature = content == "-- "
        if open_depth is not None and (open_depth != depth or signature):
            pieces.append((open_depth, "".join(parts)))
            parts, open_depth = [], None
        flows = content.endswith(" ") and not signature
        parts.append(content[:-1] if flows and delete_space else content)
        if flows:
            open_depth = depth
        else:
            pieces.append((depth, "".join(parts)))
            parts, open_depth = [], None
    if open_depth is not None:
        pieces.append((open_depth, "".join(parts)))
    return pieces


def _without_signature(lines: list[str]) -> list[str]:
    for index in range(len(lines) - 1, max(-1, len(lines) - _SIGNATURE_LINES - 2), -1):
        if lines[index] == "-- ":
            return lines[:index]
    return lines


def _without_files(lines: list[str], found: PlainText) -> list[str]:
    """The lines without uuencoded files."""
    kept: list[str] = []
    index = 0
    while index < len(lines):
        begin = _UU_BEGIN.match(lines[index]) if lines[index].startswith("begin ") else None
        if begin is None or index + 1 >= len(lines) or not _is_encoded(lines[index + 1]):
            kept.append(lines[index])
            index += 1
            continue
        name, pieces, broken = begin[1].strip(), [], True
        index += 1
        while index < len(lines):
            line = lines[index]
            if line.strip() == "end":
                broken = False
                index += 1
                break
            if line.strip() in ("`", "") or not _is_encoded(line):
                if line.strip() not in ("`", ""):
                    break
            else:
                pieces.append(binascii.a2b_uu(line[: 1 + 4 * (((ord(line[0]) - 32 & 63) + 2) // 3)]))
            index += 1
        if broken:
            found.broken.append(name)
        else:
            found.files.append((name, b"".join(pieces)))
    return kept


def _is_encoded(line: str) -> bool:
    if not line or not all(32 <= ord(char) <= 96 for char in line):
        return False
    return len(line.rstrip()) <= 2 + 4 * (((ord(line[0]) - 32 & 63) + 2) // 3)


def _without_armour(lines: list[str], found: PlainText) -> list[str]:
    """The lines without what PGP wraps around a signed text, and without encrypted blocks and keys."""
    if not any(line.startswith("-----BEGIN PGP ") for line in lines):
        return lines
    kept: list[str] = []
    inside = head = False
    for line in lines:
        armour = _ARMOUR.match(line) if line.startswith("-----") else None
        if armour is not None:
            signed = armour[2] == "SIGNED MESSAGE"
            head, inside = signed, armour[1] == "BEGIN" and not signed
            found.encrypted = found.encrypted or (inside and armour[2] == "MESSAGE")
        elif head:
            head = bool(line.strip())  # "Hash: SHA256", up to an empty line
        elif not inside:
            kept.append(line.removeprefix("- ") if line.startswith("- -") else line)
    return kept
