"""What extraction and chunking make of ``samples/formats``, kept to be compared: a change of it needs a new revision.

``files/`` holds one JSON file per document: its blocks, shortened for people and with a hash of each for the machine,
and the ids of its chunks. ``python -m tests.snapshots`` (``make snapshots``) renews them.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from infra.bench.quality.truth import Truth, load
from pipeline.chunk import chunker_for
from pipeline.embed.tokens import EstimatedTokens
from pipeline.extract import BlockExtractor
from pipeline.ports import Chunker
from schemas.documents import Block, ExtractedDocument
from schemas.generation import CHUNKING_REVISION, ChunkingSpec, EncoderSpec
from schemas.keys import DocumentRef

FOLDER = Path(__file__).parent / "files"
CORPUS = Path(__file__).parents[2] / "samples" / "formats"
SHOWN = 100  # characters of a block that people see

Snapshot = dict[str, Any]


def corpus() -> tuple[tuple[Truth, Path], ...]:
    """The documents, by name."""
    return load(CORPUS)


def taken(truth: Truth, file: Path) -> Snapshot:
    """What this code makes of the file. Of a page read by OCR only its text: it depends on Tesseract's version."""
    extracted = BlockExtractor().extract(file.read_bytes(), truth.content_type, path=file.name)
    told: Snapshot = {
        "revision": CHUNKING_REVISION,
        "media_type": extracted.media_type,
        "title": extracted.title,
        "language": extracted.language,
        "pages": extracted.pages,
    }
    if truth.ocr:
        return told | {"ocr": "\n".join(block.text for block in extracted.blocks)}
    return told | {
        "warnings": list(extracted.warnings),
        "blocks": [_line(block) for block in extracted.blocks],
        "chunks": _chunks(truth.file, extracted),
    }


def stored(name: str) -> Snapshot | None:
    """The kept one; None where there is none."""
    try:
        found: Snapshot = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def written(name: str, snapshot: Snapshot) -> None:
    """Keep it."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(snapshot, ensure_ascii=False, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _line(block: Block) -> str:
    """Kind, level or language, page, a hash of all that chunks are made from, and the first words."""
    whole = json.dumps([block.type, block.level, block.language, block.header, block.page, block.text])
    mark = hashlib.sha256(whole.encode()).hexdigest()[:12]
    told = f"{block.type}{block.level or ''}{f' {block.language}' if block.language else ''}"
    page = f" p{block.page}" if block.page is not None else ""
    return f"{told}{page} {mark} {' '.join(block.text.split())[:SHOWN]}"


def _chunks(name: str, extracted: ExtractedDocument) -> list[str]:
    document = DocumentRef(tenant="acme", source="snapshots", id=name)
    made = _chunker().chunk(document, extracted, title=extracted.title or name, facets="[]")
    return [f"{chunk.chunk_id} {chunk.embed_hash[:12]} {chunk.tokens}" for chunk in made.chunks] + [
        f"section {section.section_id}" for section in made.sections
    ]


@cache
def _chunker() -> Chunker:
    # Tokens are estimated, so that the ids need no encoder's files.
    return chunker_for(ChunkingSpec(), EstimatedTokens(), EncoderSpec())
