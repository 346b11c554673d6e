"""What a ZIP or OLE container holds, told by its directory alone: nothing is unpacked but a few small members."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib

from pipeline.errors import DocumentError
from pipeline.extract.media import BY_MEDIA, DOCX, EPUB, ODT, PPTX, XLSX
from pipeline.extract.reading import refused

_MAX_DIRECTORY = 8 << 20  # bytes of a ZIP's central directory: about 100,000 members
_END = b"PK\x05\x06"
_OPC = "[Content_Types].xml"
_OPC_PARTS = {"word/": DOCX, "ppt/": PPTX, "xl/": XLSX}
_REMEDIES = {
    "application/vnd.oasis.opendocument.spreadsheet": ("an ODS spreadsheet", "XLSX or CSV"),
    "application/vnd.oasis.opendocument.presentation": ("an ODP presentation", "PPTX or PDF"),
    "application/vnd.oasis.opendocument.graphics": ("an ODG drawing", "PDF"),
}
_OLE_ENTRY = 128  # bytes of a directory entry; sectors hold whole numbers of them, so entries stand at multiples
_OLE_STREAMS = (
    ("EncryptedPackage", "encrypted", "an encrypted Office file", "remove its password"),
    ("WordDocument", "unsupported-type", "a Word 97-2003 file (DOC)", "save it as DOCX"),
    ("Workbook", "unsupported-type", "an Excel 97-2003 file (XLS)", "save it as XLSX"),
    ("Book", "unsupported-type", "an Excel 5.0 file (XLS)", "save it as XLSX"),
    ("PowerPoint Document", "unsupported-type", "a PowerPoint 97-2003 file (PPT)", "save it as PPTX"),
    ("__properties_version1.0", "unsupported-type", "an Outlook message (MSG)", "save it as EML"),
    ("VisioDocument", "unsupported-type", "a Visio drawing (VSD)", "save it as PDF"),
)


def zip_media(body: bytes) -> str:
    """The media type of the document in a ZIP container.

    Raises DocumentError: 'encrypted' for one under a password, 'unsupported-type' for office formats without reader,
    'binary' for other archives, 'bomb' for a directory beyond any document's, 'malformed' for a damaged one.
    """
    end = body.rfind(_END)
    if end >= 0 and int.from_bytes(body[end + 12 : end + 16], "little") > _MAX_DIRECTORY:
        raise refused("body: a ZIP container with more members than any document has; send its files alone", "bomb")
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return _zip_media(archive)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError) as error:
        raise refused(
            f"body: a ZIP container (DOCX, XLSX, PPTX, ODT, EPUB or an archive) that cannot be read ({error}); "
            "send the whole file again",
            "malformed",
        ) from error


def _zip_media(archive: zipfile.ZipFile) -> str:
    members = {info.filename: info for info in archive.infolist()}
    mimetype = _small(archive, members, "mimetype").decode("ascii", "replace").strip()
    media = _opc_media(members) if _OPC in members else mimetype
    if any(info.flag_bits & 1 for info in members.values()) or (
        media == ODT and b"encryption-data" in _small(archive, members, "META-INF/manifest.xml")
    ):
        raise refused("body: the file is under a password; remove it before the file is sent", "encrypted")
    if media == EPUB and "META-INF/rights.xml" in members:
        raise refused("body: the book is under digital rights management; send it without", "encrypted")
    if media in _REMEDIES:
        name, remedy = _REMEDIES[media]
        raise refused(f"body: the content is {name}, which has no reader; save it as {remedy}", "unsupported-type")
    if media in BY_MEDIA:
        return BY_MEDIA[media].media
    raise _not_text("a ZIP archive", "send the files in it one by one")


def _opc_media(members: dict[str, zipfile.ZipInfo]) -> str:
    if "xl/workbook.bin" in members:
        raise refused(
            "body: the content is a binary Excel file (XLSB), which has no reader; save it as XLSX", "unsupported-type"
        )
    return next((media for part, media in _OPC_PARTS.items() if any(name.startswith(part) for name in members)), "")


def _small(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> bytes:
    """The first bytes of a member that says what the container is; empty where there is none that can be read."""
    info = members.get(name)
    if info is None or info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return b""
    with archive.open(info) as stream:
        return stream.read(65_536)


def ole_refusal(body: bytes) -> DocumentError:
    """Why an OLE container is not read: encrypted Office files are such containers, and so are legacy formats."""
    for stream, kind, name, remedy in _OLE_STREAMS:
        if _has_stream(body, stream):
            return refused(f"body: the content is {name}, which cannot be read; {remedy} and send it again", kind)
    return _not_text("an OLE container (DOC, XLS, PPT or MSG)", "save it as DOCX, XLSX, PPTX or EML")


def _has_stream(body: bytes, name: str) -> bool:
    raw = name.encode("utf-16-le") + b"\x00\x00"
    length = len(raw).to_bytes(2, "little")
    for match in re.finditer(re.escape(raw), body):
        at = match.start()
        if at % _OLE_ENTRY == 0 and body[at + 64 : at + 66] == length:
            return True
    return False


def _not_text(name: str, remedy: str) -> DocumentError:
    return refused(f"body: the content is {name}, not a document; {remedy}", "binary")
