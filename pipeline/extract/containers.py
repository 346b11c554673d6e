"""Zip containers (DOCX, PPTX, XLSX, ODT, EPUB) are checked as a whole before any library opens them."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO

from pipeline.errors import DocumentError
from pipeline.extract.reading import Limits, refused

MAX_MEMBERS = 20_000
BOMB_RATIO = 200
BOMB_BYTES = 10 << 20  # below this no ratio matters: a short file of blanks packs well
_PIECE = 1 << 20
_PROLOG = 1 << 16
_XML_SUFFIXES = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".vml", ".svg", ".fodt")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED_FLAGS = 0x41  # bit 0: encrypted, bit 6: strong encryption
# What may stand before the root element of XML. Linear: its pieces begin with different characters.
_BEFORE_ROOT = re.compile(rb"(?:[\s\xef\xbb\xbf\xff\xfe]+|<\?(?:[^?]|\?(?!>))*\?>|<!--(?:[^-]|-(?!->))*-->)*+")
_ROOT = re.compile(rb"<[^?!]|<!DOCTYPE", re.IGNORECASE)
_DOCTYPE = re.compile(rb"""<!DOCTYPE(?:[^"'\[>]|"[^"]*"|'[^']*')*+""", re.IGNORECASE)


@dataclass(frozen=True)
class Contents:
    """What a checked container holds: the names of its usable members in directory order, and what is doubtful."""

    names: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.names


def check_zip(data: bytes, limits: Limits, *, doctypes: bool = False) -> Contents:
    """Reads every member of a zip container once, keeping nothing, and says what it holds.

    ``doctypes`` allows XML members to declare a document type without entities of its own, as XHTML in an EPUB does.
    Members with absolute names or ``..`` in them are left out of the names and never read. Raises DocumentError: kind
    'bomb' for more than ``limits.unpacked_bytes``, a packing ratio above 200 on more than 10 MB, too many members or
    XML entities; 'encrypted'; 'malformed' for a truncated or damaged file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check_directory(members, len(data), limits)
            usable = [member for member in members if not member.is_dir() and _safe(member.filename)]
            left = limits.unpacked_bytes
            for member in usable:
                left -= _check_member(archive, member, left, limits, doctypes)
    except DocumentError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise refused(
            f"body: the zip container is truncated or damaged ({_short(error)}); send the file again as it was saved",
            "malformed",
        ) from error
    names = tuple(member.filename for member in usable)
    warnings = []
    if any(name.lower().endswith(("vbaproject.bin", "vbadata.xml")) or name.startswith("Basic/") for name in names):
        warnings.append("macro: the file carries macros; they are neither run nor indexed")
    return Contents(names, tuple(warnings))


def member_bytes(data: bytes, name: str, limit: int = 64 << 20) -> bytes | None:
    """One member of a container that ``check_zip`` passed; None where it is missing.

    Raises DocumentError (kind 'bomb') for more than ``limit`` bytes.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        try:
            stream = archive.open(name)
        except KeyError:
            return None
        with stream:
            content = stream.read(limit + 1)
    if len(content) > limit:
        raise refused(f"body: {name!r} unpacks to more than {limit} bytes; split the document", "bomb")
    return content


def _check_directory(members: list[zipfile.ZipInfo], packed: int, limits: Limits) -> None:
    if len(members) > MAX_MEMBERS:
        raise refused(f"body: the container has {len(members)} members, over {MAX_MEMBERS}; split it", "bomb")
    for member in members:
        if member.flag_bits & _ENCRYPTED_FLAGS:
            raise refused("body: the file is encrypted; remove its password and send it again", "encrypted")
        if member.compress_type not in _METHODS:
            raise refused(
                f"body: {member.filename!r} is packed with method {member.compress_type}; save it with deflate",
                "malformed",
            )
        _check_size(member.file_size, member.compress_size, limits)
    _check_size(sum(member.file_size for member in members), packed, limits)


def _check_size(unpacked: int, packed: int, limits: Limits) -> None:
    if unpacked > limits.unpacked_bytes:
        raise refused(
            f"body: the container unpacks to {unpacked} bytes, over {limits.unpacked_bytes}; split the document or "
            "raise extraction.unpacked_mb",
            "bomb",
        )
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * max(packed, 1):
        raise refused(
            f"body: {packed} packed bytes unpack to {unpacked}, which no document does; if it is one, save it anew",
            "bomb",
        )


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, left: int, limits: Limits, doctypes: bool) -> int:
    """Size of the member as it really unpacks, whatever the directory says of it."""
    size = 0
    with archive.open(member) as stream:
        if member.filename.lower().endswith(_XML_SUFFIXES):
            size += _check_prolog(stream, member.filename, doctypes)
        while piece := stream.read(_PIECE):
            size += len(piece)
            if size > left:
                _check_size(limits.unpacked_bytes + size - left, len(piece), limits)
    return size


def _check_prolog(stream: IO[bytes], name: str, doctypes: bool) -> int:
    start = stream.read(_PROLOG)
    plain = start.replace(b"\x00", b"")  # UTF-16 and UTF-32 read as the ASCII in them
    before = _BEFORE_ROOT.match(plain)
    position = before.end() if before else 0
    if len(start) == _PROLOG and not _ROOT.match(plain, position):
        raise refused(f"body: {name!r} has no root element in its first {_PROLOG} bytes; save it anew", "malformed")
    declared = _DOCTYPE.match(plain, position)
    if declared:
        if plain[declared.end() : declared.end() + 1] != b">":  # an internal subset: the place of entities
            raise refused(f"body: {name!r} declares XML entities; save the document without them", "bomb")
        if not doctypes:
            raise refused(f"body: {name!r} declares a document type, as no such file does; save it anew", "malformed")
    return len(start)


def _safe(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return bool(name) and not name.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0]


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:120]
