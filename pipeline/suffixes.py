"""Endings of file names and the media types they stand for, for sources of files and for the extract stage."""

from __future__ import annotations

_OOXML = "application/vnd.openxmlformats-officedocument."

# Types whose bodies are text: their bytes do not tell them apart, and a charset belongs to them.
TEXT_SUFFIXES = {
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".mdown": "text/markdown",
    ".mkd": "text/markdown",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".log": "text/plain",
    ".wiki": "text/x-wiki",
    ".mediawiki": "text/x-wiki",
    ".textile": "text/x-textile",
    ".rst": "text/x-rst",
    ".rest": "text/x-rst",
    ".adoc": "text/asciidoc",
    ".asciidoc": "text/asciidoc",
    ".org": "text/org",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
}
# Zip containers, and formats that begin with a mark of their own.
ZIP_SUFFIXES = {
    ".docx": f"{_OOXML}wordprocessingml.document",
    ".pptx": f"{_OOXML}presentationml.presentation",
    ".xlsx": f"{_OOXML}spreadsheetml.sheet",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".epub": "application/epub+zip",
}
BINARY_SUFFIXES = ZIP_SUFFIXES | {
    ".rtf": "application/rtf",
    ".eml": "message/rfc822",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
MEDIA_BY_SUFFIX = TEXT_SUFFIXES | BINARY_SUFFIXES
