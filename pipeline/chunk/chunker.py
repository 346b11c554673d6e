"""The chunk stage: small children that are searched, inside larger parents that are read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipeline.chunk.drafts import WAYS, Drafting, Piece, Sizes
from pipeline.chunk.identity import Identified
from pipeline.chunk.leaves import DEEPEST
from pipeline.chunk.likeness import Likeness, Similarity
from pipeline.chunk.partition import content_hash, partition
from pipeline.chunk.summary import summary_text
from pipeline.chunk.texts import PATH_JOIN
from pipeline.errors import ConfigError
from pipeline.ports import TokenCounter
from schemas.documents import Chunk, ChunkedDocument, ExtractedDocument, Section
from schemas.generation import ChunkingSpec, EncoderSpec, Strategy
from schemas.keys import DocumentRef

_MIN_BODY = 8
_WITHIN_LEAF = DEEPEST + 1  # weaker than every heading level


class StrategyChunker:
    """ports.Chunker of one strategy.

    Parents are made of whole children, cut at the highest headings first. The same document always gives the same
    ids; where cuts follow the content (``partition``), an edit changes the chunk that holds it, at most its neighbour's
    overlap, and rarely a near cut.
    """

    def __init__(
        self,
        strategy: Strategy,
        spec: ChunkingSpec,
        counter: TokenCounter,
        encoder: EncoderSpec,
        similarity: Similarity | None = None,
    ) -> None:
        """Raises ConfigError when the sizes cannot fit the encoder, or semantic chunking lacks ``similarity``."""
        self._way = WAYS[strategy]
        self._spec = spec
        self._counter = counter
        most = encoder.max_tokens - len(counter.offsets(encoder.document_instruction))
        size = spec.child_max_tokens if self._way.fills else spec.child_tokens
        self._sizes = Sizes(
            maximum=min(spec.child_max_tokens, most),
            encoder=most,
            special=counter.count(""),
            path=spec.child_tokens // 3,
            overlap=int(spec.overlap * size),
        )
        sizes = self._sizes
        if sizes.maximum - sizes.special - sizes.path - sizes.overlap < _MIN_BODY:
            raise ConfigError(
                "chunking.child_max_tokens",
                f"{sizes.maximum} tokens leave no room for text beside heading path and overlap",
                "Raise it, or lower child_tokens or overlap.",
            )
        self._likeness: Likeness | None = None
        if strategy == "semantic":
            if similarity is None:
                raise ConfigError(
                    "chunking.strategy",
                    "'semantic' compares the vectors of sentences, and there is no encoder here",
                    "Give the chunker the generation's encoder, or choose another strategy (here and in by_type).",
                )
            self._likeness = Likeness(similarity, counter, most)

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        """Sections and chunks in document order; none for a document without text.

        ``title`` goes into the searched words only, never into what is embedded. Raises DocumentError (stage
        'chunk') above ``max_chunks``.
        """
        drafting = Drafting(extracted.blocks, self._way, self._spec, self._sizes, self._counter, self._likeness)
        pieces = list(drafting.pieces())
        made = Identified(document, title, facets)
        sections: list[Section] = []
        chunks: list[Chunk] = []
        for start, end in pairwise([0, *self._section_cuts(pieces, drafting), len(pieces)] if pieces else [0]):
            group = pieces[start:end]
            sections.append(_section(made, len(sections), group, drafting))
            for piece in group:
                if piece.tokens > piece.most:
                    raise AssertionError(f"{document.key}: {piece.tokens} tokens in a chunk, over {piece.most}")
                chunks.append(
                    made.chunk(
                        section_ordinal=len(sections) - 1, ordinal=len(chunks), path=piece.path, prefix=piece.prefix,
                        text=piece.text, tokens=piece.tokens, own=piece.atoms,
                    )
                )  # fmt: skip
        if self._spec.summary and len(chunks) > 1:  # one chunk sums itself up
            text = summary_text(extracted.blocks, self._counter, self._sizes.maximum)
            sections.append(made.section(len(sections), (), text, None))
            chunks.append(
                made.chunk(
                    section_ordinal=len(sections) - 1, ordinal=len(chunks), path=(), prefix="", text=text,
                    tokens=self._counter.count(text), own=(), summary=True,
                )
            )  # fmt: skip
        return ChunkedDocument(sections=tuple(sections), chunks=tuple(chunks))

    def _section_cuts(self, pieces: Sequence[Piece], drafting: Drafting) -> list[int]:
        priorities = []
        for piece in pieces:
            leaf = drafting.parts[piece.atoms[0].leaf]
            strength, words = _WITHIN_LEAF + piece.opening[0], piece.opening[1]
            if piece.first:
                strength = min(leaf.opens, default=0)
                words = content_hash(PATH_JOIN.join(leaf.path)) if leaf.path else words
            priorities.append((strength, words))
        sizes = [sum(atom.size + atom.above for atom in piece.atoms) for piece in pieces]
        return partition(sizes, priorities, self._spec.parent_tokens)


def _section(made: Identified, ordinal: int, pieces: Sequence[Piece], drafting: Drafting) -> Section:
    """A parent: bodies without overlap, after what the opening of the first one limits or continues."""
    own = [atom for piece in pieces for atom in piece.atoms]
    path = drafting.texts.path(own)
    text = drafting.texts.read([*pieces[0].lead, *own], len(path))
    page = next((atom.block.page for atom in own if atom.block.page is not None), None)
    return made.section(ordinal, drafting.texts.heading(path).path, text, page)
