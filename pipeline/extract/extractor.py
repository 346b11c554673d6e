"""The extract stage: one entry for every kind of body."""

from __future__ import annotations

from functools import cache

from pipeline.errors import DocumentError
from pipeline.extract import charset, sniff
from pipeline.extract.anchors import anchored
from pipeline.extract.language import detected, tag
from pipeline.extract.media import BY_MEDIA, CODE_LANGUAGES
from pipeline.extract.normalise import clean, doubts, normalised, prose
from pipeline.extract.reading import STAGE, Body, Limits, Reader, Reading, refused
from schemas.documents import Block, ExtractedDocument


class BlockExtractor:
    """Bytes to typed blocks, in this process. ``pipeline.extract.pool`` runs it in children, with limits."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        """Blocks in reading order, what the body says of its title and language, and warnings.

        ``content_type`` is a media type, with charset if the source declared one. What the bytes plainly are goes
        before it; ``path`` decides only between kinds of text. An empty text has no blocks. Raises DocumentError (stage
        'extract') for a body without reader, one that is malformed, encrypted or beyond a limit.
        """
        return self._extract(body, content_type, path, 0)

    def _extract(self, data: bytes, content_type: str, path: str | None, depth: int) -> ExtractedDocument:
        limits = self._limits
        if depth > limits.nesting:
            raise refused(
                f"body: containers are nested deeper than {limits.nesting}; take them apart at the source or raise "
                "extraction.nesting",
                "nesting",
            )
        declared, label = sniff.parse_content_type(content_type)
        media = sniff.media_type(data, declared, path)
        form = BY_MEDIA.get(media)
        text: str | None = None
        warnings: tuple[str, ...] = ()
        if form is None or form.textual:
            text, warnings = charset.decode(data, label, markup=media in sniff.MARKUP)
            sniff.refuse_control_characters(text)
            text = clean(text)

        def inner(inside: bytes, kind: str, name: str | None) -> ExtractedDocument:
            return self._extract(inside, kind, name, depth + 1)

        body = Body(data=data, media=media, text=text, path=path, depth=depth, limits=limits, inner=inner)
        reading = _read_code(body) if form is None else _reader(form.media)(body)
        blocks = normalised(reading.blocks)
        size = sum(len(block.text) for block in blocks)
        if size > limits.output_bytes:
            raise refused(
                f"body: {size} characters of text, over {limits.output_bytes}; split it or raise extraction.output_mb",
                "output",
            )
        if text is not None and depth == 0:
            blocks = anchored(blocks, text)
        language = tag(reading.language)
        if language is None and (reading.language or "").strip():
            warnings = (*warnings, f"language: {reading.language!r:.60} is declared, which names no language")
        return ExtractedDocument(
            blocks=tuple(blocks),
            title=_title(reading.title) or _first_heading(blocks),
            language=language or detected(blocks),
            media_type=media,
            pages=reading.pages,
            warnings=(*warnings, *reading.warnings, *doubts(blocks)),
        )


@cache
def _reader(media: str) -> Reader:
    try:
        return BY_MEDIA[media].load()
    except ImportError as error:
        raise DocumentError(
            f"content_type: {media} needs a library that is not installed ({error.name}); pip install "
            "'headwater[consumers]'",
            stage=STAGE,
            kind="unsupported-type",
        ) from error


def _read_code(body: Body) -> Reading:
    """A textual body that is code as a whole."""
    code = (body.text or "").strip("\n")
    language = CODE_LANGUAGES[body.media]
    return Reading([Block(type="code", text=code, language=language)] if code.strip() else [])


def _title(title: str | None) -> str | None:
    """A title on one line, in the form of prose; None where nothing is left of it."""
    return " ".join(prose(title or "").split()) or None


def _first_heading(blocks: list[Block]) -> str | None:
    return next((block.text for block in blocks if block.type == "heading" and block.level == 1), None)
