"""Media types with a reader: where it is, and whether it is heavy. The one table of formats."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from pipeline.extract.reading import Reader
from pipeline.suffixes import MEDIA_BY_SUFFIX


@dataclass(frozen=True)
class Format:
    """How a media type is read. ``reader`` is 'module:function' in this package, imported when it is first needed.

    ``textual``: the body is decoded first, and the type cannot be told from the bytes, so the declared type or the name
    decides. ``heavy``: read in the processes that are kept for slow and memory-hungry work. The endings of names that
    stand for a type where nothing better is known are in ``pipeline.suffixes``, which sources of files share.
    """

    media: str
    reader: str
    textual: bool = False
    heavy: bool = False
    aliases: tuple[str, ...] = ()
    name: str = ""

    def load(self) -> Reader:
        """The reader itself. Raises ImportError where its library is not installed."""
        module, _, function = self.reader.partition(":")
        return cast(Reader, getattr(import_module(f"pipeline.extract.{module}"), function))


HTML, MARKDOWN, TEXT = "text/html", "text/markdown", "text/plain"
CONFLUENCE, WIKITEXT, TEXTILE = "application/vnd.atlassian.confluence", "text/x-wiki", "text/x-textile"
RST, ASCIIDOC, ORG, CSV, TSV = "text/x-rst", "text/asciidoc", "text/org", "text/csv", "text/tab-separated-values"
PDF, EPUB, MAIL = "application/pdf", "application/epub+zip", "message/rfc822"
_OOXML = "application/vnd.openxmlformats-officedocument."
DOCX, PPTX, XLSX = (
    f"{_OOXML}wordprocessingml.document", f"{_OOXML}presentationml.presentation", f"{_OOXML}spreadsheetml.sheet",
)  # fmt: skip
ODT, RTF = "application/vnd.oasis.opendocument.text", "application/rtf"
PNG, JPEG, TIFF, GIF, WEBP, BMP = "image/png", "image/jpeg", "image/tiff", "image/gif", "image/webp", "image/bmp"

FORMATS: tuple[Format, ...] = (
    Format(HTML, "html:read", textual=True, aliases=("application/xhtml+xml",)),
    Format(MARKDOWN, "markdown:read", textual=True,
           aliases=("text/x-markdown", "application/markdown")),
    Format(TEXT, "text:read", textual=True),
    Format(CONFLUENCE, "confluence:read", textual=True, aliases=("application/vnd.confluence.storage+xml",)),
    Format(WIKITEXT, "pandoc:read", textual=True,
           aliases=("text/mediawiki", "text/x-mediawiki", "text/wikitext")),
    Format(TEXTILE, "pandoc:read", textual=True, aliases=("text/textile",)),
    Format(RST, "pandoc:read", textual=True, aliases=("text/prs.fallenstein.rst", "text/rst")),
    Format(ASCIIDOC, "pandoc:read", textual=True, aliases=("text/x-asciidoc",)),
    Format(ORG, "pandoc:read", textual=True, aliases=("text/x-org",)),
    Format(CSV, "sheets:read_csv", textual=True, aliases=("application/csv",)),
    Format(TSV, "sheets:read_csv", textual=True),
    Format(DOCX, "pandoc:read", heavy=True),
    Format(ODT, "pandoc:read", heavy=True),
    Format(RTF, "pandoc:read", heavy=True, aliases=("text/rtf",)),
    Format(EPUB, "pandoc:read", heavy=True),
    Format(PPTX, "slides:read", heavy=True),
    Format(XLSX, "sheets:read_xlsx", heavy=True),
    Format(MAIL, "mail:read", heavy=True),
    Format(PDF, "pdf:read", heavy=True),
    Format(PNG, "images:read", heavy=True),
    Format(JPEG, "images:read", heavy=True),
    Format(TIFF, "images:read", heavy=True),
    Format(GIF, "images:read", heavy=True),
    Format(WEBP, "images:read", heavy=True),
    Format(BMP, "images:read", heavy=True),
)  # fmt: skip

BY_MEDIA = {name: one for one in FORMATS for name in (one.media, *one.aliases)}
BY_SUFFIX = {suffix: BY_MEDIA[media] for suffix, media in MEDIA_BY_SUFFIX.items()}
# Textual types whose whole body is one block of code, and the language of it.
CODE_LANGUAGES = {
    "application/json": "json",
    "application/ld+json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "application/toml": "toml",
    "application/javascript": "javascript",
    "text/javascript": "javascript",
    "text/css": "css",
    "text/x-python": "python",
    "application/x-sh": "sh",
    "application/sql": "sql",
}
