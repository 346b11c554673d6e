"""What a reader is given and what it gives back: the contract of every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.errors import DocumentError
from schemas.documents import Block, ExtractedDocument

STAGE = "extract"


@dataclass(frozen=True)
class Limits:
    """What one document may take; the child process around it bounds time and memory besides."""

    output_bytes: int = 64 << 20
    nesting: int = 4
    unpacked_bytes: int = 512 << 20
    pages: int = 2000
    ocr: bool = True
    ocr_languages: str = "eng"
    ocr_pages: int = 200


@dataclass(frozen=True)
class Body:
    """One body as a reader gets it.

    ``text`` is the decoded body with line ends normalised, None for formats that are bytes. ``media`` is the sniffed
    type, ``path`` what the source calls the file. ``depth`` counts the containers around it. ``inner`` extracts a body
    that is contained in this one (a mail's attachment), with depth and nesting limit kept: it raises DocumentError.
    """

    data: bytes
    media: str
    text: str | None = None
    path: str | None = None
    depth: int = 0
    limits: Limits = Limits()
    inner: Callable[[bytes, str, str | None], ExtractedDocument] | None = None


@dataclass
class Reading:
    """What a reader made of a body: blocks in reading order, what it says of itself, and what is doubtful.

    Warnings are sentences with a subject before a colon (``table: a cell spans 900 columns; kept once``).
    """

    blocks: list[Block] = field(default_factory=list)
    title: str | None = None
    language: str | None = None
    pages: int | None = None
    warnings: list[str] = field(default_factory=list)


Reader = Callable[[Body], Reading]


def refused(reason: str, kind: str) -> DocumentError:
    """A body that cannot be read; ``kind`` names the fault for dead letters (``encrypted``, ``bomb``)."""
    return DocumentError(reason, stage=STAGE, kind=kind)


@contextmanager
def refusing(what: str, remedy: str) -> Iterator[None]:
    """A library meets a malformed part with whatever it stumbles over: that becomes DocumentError 'malformed'."""
    try:
        yield
    except DocumentError:
        raise
    except Exception as error:
        raise refused(f"body: {what} cannot be read ({type(error).__name__}); {remedy}", "malformed") from error
