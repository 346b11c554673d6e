"""The extract stage: one entry for every kind of body."""

from __future__ import annotations

from pipeline.extract import charset, sniff
from pipeline.extract.front_matter import split
from pipeline.extract.html import read_html
from pipeline.extract.markdown import read_markdown
from pipeline.extract.text import read_text
from schemas.documents import Block, ExtractedDocument


class BlockExtractor:
    """Bytes to typed blocks for HTML, Markdown with front matter, and plain or source text."""

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        """Blocks in document order, what the body says of its title and language, and warnings.

        ``content_type`` is a media type, with charset if the source declared one; an empty or unknown one is sniffed
        from the bytes, where ``path`` only tells Markdown from plain text. An empty body has no blocks. Raises
        DocumentError (stage 'extract') for binary content, an undecodable body or a type without reader.
        """
        declared, label = sniff.parse_content_type(content_type)
        sniff.refuse_binary(body)
        media = sniff.media_type(body, declared, path)
        text, warnings = charset.decode(body, label, markup=media == sniff.HTML)
        sniff.refuse_control_characters(text)
        if media == sniff.HTML:
            page = read_html(text)
            return ExtractedDocument(
                blocks=tuple(page.blocks),
                title=page.title or _first_heading(page.blocks),
                language=page.language,
                media_type=media,
                warnings=(*warnings, *page.warnings),
            )
        if media == sniff.MARKDOWN:
            front = split(text)
            blocks = read_markdown(front.body)
            return ExtractedDocument(
                blocks=tuple(blocks),
                title=front.string("title") or _first_heading(blocks),
                language=front.string("language"),
                media_type=media,
                warnings=(*warnings, *front.warnings),
            )
        language = sniff.code_language(media)
        blocks = read_text(text) if language is None else _as_code(text, language)
        return ExtractedDocument(blocks=tuple(blocks), media_type=media, warnings=tuple(warnings))


def _as_code(text: str, language: str) -> list[Block]:
    code = text.strip("\n")
    return [Block(type="code", text=code, language=language)] if code.strip() else []


def _first_heading(blocks: list[Block]) -> str | None:
    return next((block.text for block in blocks if block.type == "heading" and block.level == 1), None)
