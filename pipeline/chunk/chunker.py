"""The chunk stage: small children that are searched, inside larger parents that are read."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline import analysis
from pipeline.chunk.atoms import TOKEN, Atom, Ruler, Run, render, runs
from pipeline.chunk.leaves import Leaf, leaves
from pipeline.chunk.partition import content_hash, partition
from pipeline.errors import ConfigError, DocumentError
from pipeline.ports import TokenCounter
from schemas.documents import Chunk, ChunkedDocument, ExtractedDocument, Section
from schemas.generation import ChunkingSpec, EncoderSpec
from schemas.keys import CHUNK_NAMESPACE, SECTION_NAMESPACE, DocumentRef

STAGE = "chunk"
PATH_JOIN = " > "
_MIN_BODY = 8
_WITHIN_LEAF = 7  # weaker than every heading level


@dataclass(frozen=True)
class _Heading:
    """A leaf's heading path as it is used: shortened parts, the prefix of its chunks, room that is left for text."""

    path: tuple[str, ...]
    prefix: str
    room: int


@dataclass(frozen=True)
class _Draft:
    """A chunk before its section is known."""

    leaf: int
    first: bool  # of its leaf
    atoms: tuple[Atom, ...]
    overlap: tuple[Atom, ...]
    head: str
    size: int


class HierarchicalChunker:
    """ports.Chunker: children restart at every heading and at content-defined places in long sections.

    Parents are made of whole children, cut at the highest headings first. The same document always gives the same
    ids; an edit changes the chunk that holds it, at most its neighbour's overlap, and rarely a near cut
    (``partition``).
    """

    def __init__(self, spec: ChunkingSpec, counter: TokenCounter, encoder: EncoderSpec) -> None:
        """Raises ConfigError when the sizes cannot fit the encoder."""
        self._spec = spec
        self._counter = counter
        self._special = counter.count("")
        instruction = self._size(encoder.document_instruction)
        self._maximum = min(spec.child_max_tokens, encoder.max_tokens - instruction)
        self._path_budget = spec.child_tokens // 3
        self._overlap = int(spec.overlap * spec.child_tokens)
        if self._maximum - self._special - self._path_budget - self._overlap < _MIN_BODY:
            raise ConfigError(
                "chunking.child_max_tokens",
                f"{self._maximum} tokens leave no room for text beside heading path and overlap",
                "Raise it, or lower child_tokens or overlap.",
            )

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        """Sections and chunks in document order; none for a document without text.

        ``title`` goes into the searched words only, never into what is embedded. Raises DocumentError (stage
        'chunk') above ``max_chunks``.
        """
        parts = leaves(extracted.blocks, lambda text: self._size(text) > self._path_budget)
        headings = [self._heading(leaf.path) for leaf in parts]
        drafts: list[_Draft] = []
        for number, leaf in enumerate(parts):
            drafts.extend(self._drafts(number, leaf, headings[number]))
            if len(drafts) > self._spec.max_chunks:
                raise DocumentError(
                    f"the document needs more than {self._spec.max_chunks} chunks; split it at its source or raise "
                    "chunking.max_chunks",
                    stage=STAGE,
                    kind="too-many-chunks",
                )
        starts = [0, *self._section_cuts(drafts, parts), len(drafts)] if drafts else [0]
        sections: list[Section] = []
        chunks: list[Chunk] = []
        section_seen: Counter[str] = Counter()
        chunk_seen: Counter[str] = Counter()
        for ordinal, (start, end) in enumerate(pairwise(starts)):
            group = drafts[start:end]
            sections.append(_section(document, ordinal, group, parts, headings, section_seen))
            for draft in group:
                chunks.append(
                    self._chunk(document, draft, headings[draft.leaf], ordinal, len(chunks), title, facets, chunk_seen)
                )
        return ChunkedDocument(sections=tuple(sections), chunks=tuple(chunks))

    def _size(self, text: str) -> int:
        return len(self._counter.offsets(text)) if text else 0

    def _heading(self, path: tuple[str, ...]) -> _Heading:
        short = tuple(self._shortened(part) for part in path)
        kept = short
        while kept and self._size(PATH_JOIN.join(kept)) > self._path_budget:
            kept = kept[1:]  # the nearest heading says most
        prefix = PATH_JOIN.join(kept) + "\n\n" if kept else ""
        return _Heading(short, prefix, self._maximum - self._special - self._size(prefix))

    def _shortened(self, text: str) -> str:
        if self._size(text) <= self._path_budget:
            return text
        _, end = next(iter(Ruler(self._counter, text).cut(0, len(text), max(1, self._path_budget - 2))))
        return text[:end].rstrip() + "…"

    def _drafts(self, number: int, leaf: Leaf, heading: _Heading) -> Iterable[_Draft]:
        first = True
        for run in runs(leaf.blocks, self._counter, whole=heading.room, piece=heading.room - self._overlap):
            for draft in self._pack(number, run, heading):
                yield from self._fitting(replace(draft, first=first), heading)
                first = False

    def _pack(self, number: int, run: Run, heading: _Heading) -> Iterable[_Draft]:
        """Chunks of a run: one if all of it fits, else with room kept for the overlap."""
        sizes = [atom.size for atom in run.atoms]
        limit = heading.room - run.head_size
        if not run.alone and sum(sizes) > limit:
            limit -= self._overlap
        least = max(0, self._spec.child_min_tokens - self._special - self._size(heading.prefix))
        cuts = partition(sizes, [atom.priority for atom in run.atoms], limit, least)
        edges = [0, *cuts, len(sizes)]
        for start, end in pairwise(edges):
            overlap = () if run.alone or start == 0 else self._repeated(run.atoms, start)
            yield _Draft(number, True, tuple(run.atoms[start:end]), overlap, run.head, sum(sizes[start:end]))

    def _repeated(self, atoms: Sequence[Atom], start: int) -> tuple[Atom, ...]:
        """Whole sentences before ``start``, up to the overlap; none beside lists, code and tables."""
        if not atoms[start].prose:
            return ()
        at, left = start, self._overlap
        while at > 0 and atoms[at - 1].prose and atoms[at - 1].size <= left:
            at -= 1
            left -= atoms[at].size
        return tuple(atoms[at:start])

    def _fitting(self, draft: _Draft, heading: _Heading) -> Iterable[_Draft]:
        """The draft, or smaller ones if the tokenizer counts the whole as more than its parts."""
        if self._counter.count(_embed_text(draft, heading)) <= self._maximum:
            yield draft
        elif draft.overlap:
            yield from self._fitting(replace(draft, overlap=()), heading)
        else:
            halves = _halves(draft)
            if halves is None:
                raise DocumentError(f"a single character exceeds {self._maximum} tokens", stage=STAGE, kind="too-long")
            for half in halves:
                yield from self._fitting(half, heading)

    def _section_cuts(self, drafts: Sequence[_Draft], parts: Sequence[Leaf]) -> list[int]:
        priorities = []
        for draft in drafts:
            leaf, opening = parts[draft.leaf], draft.atoms[0]
            level = min(leaf.levels[-1], 6) if leaf.levels else 0
            strength = level if draft.first else _WITHIN_LEAF + opening.priority[0]
            words = PATH_JOIN.join(leaf.path) if draft.first and leaf.path else render(draft.atoms[:1])
            priorities.append((strength, content_hash(words)))
        return partition([draft.size for draft in drafts], priorities, self._spec.parent_tokens)

    def _chunk(
        self,
        document: DocumentRef,
        draft: _Draft,
        heading: _Heading,
        section_ordinal: int,
        ordinal: int,
        title: str,
        facets: str,
        seen: Counter[str],
    ) -> Chunk:
        text = _text(draft)
        embed_text = heading.prefix + text
        tokens = self._counter.count(embed_text)
        if tokens > self._maximum:
            raise AssertionError(f"chunk {ordinal} of {document.key} has {tokens} tokens, over {self._maximum}")
        lexical = analysis.lexical(title, *heading.path, text)
        identifiers = analysis.identifiers("\n".join([title, *heading.path, text]))
        identity = [document.key, embed_text, lexical, list(identifiers), facets]
        return Chunk(
            chunk_id=_identified(CHUNK_NAMESPACE, identity, seen),
            section_ordinal=section_ordinal,
            ordinal=ordinal,
            heading_path=heading.path,
            text=text,
            embed_text=embed_text,
            embed_hash=hashlib.sha256(embed_text.encode("utf-8")).hexdigest()[:32],
            lexical=lexical,
            identifiers=identifiers,
            tokens=tokens,
        )


def _text(draft: _Draft) -> str:
    return render([*draft.overlap, *draft.atoms], draft.head)


def _embed_text(draft: _Draft, heading: _Heading) -> str:
    return heading.prefix + _text(draft)


def _halves(draft: _Draft) -> tuple[_Draft, _Draft] | None:
    atoms = draft.atoms
    if len(atoms) == 1:
        atom = atoms[0]
        middle = (atom.start + atom.end) // 2
        if middle == atom.start:
            return None
        size = max(1, atom.size // 2)
        atoms = (
            Atom(atom.block, atom.start, middle, size, atom.priority),
            Atom(atom.block, middle, atom.end, size, (TOKEN, atom.priority[1])),
        )
    split = len(atoms) // 2
    halves = []
    for first, part in ((draft.first, atoms[:split]), (False, atoms[split:])):
        halves.append(_Draft(draft.leaf, first, part, (), draft.head, sum(atom.size for atom in part)))
    return halves[0], halves[1]


def _section(
    document: DocumentRef,
    ordinal: int,
    drafts: Sequence[_Draft],
    parts: Sequence[Leaf],
    headings: Sequence[_Heading],
    seen: Counter[str],
) -> Section:
    paths = [headings[draft.leaf].path for draft in drafts]
    common = paths[0]
    for path in paths:
        shared = 0
        while shared < min(len(common), len(path)) and common[shared] == path[shared]:
            shared += 1
        common = common[:shared]
    text = _section_text(drafts, parts, len(common))
    page = next((a.block.page for draft in drafts for a in draft.atoms if a.block.page is not None), None)
    identity: Sequence[object] = [document.key, list(common), text]
    return Section(
        section_id=_identified(SECTION_NAMESPACE, identity, seen),
        ordinal=ordinal,
        heading_path=common,
        text=text,
        page=page,
    )


def _section_text(drafts: Sequence[_Draft], parts: Sequence[Leaf], shared: int) -> str:
    """Bodies without overlap, under the headings that the section's own path does not name."""
    out: list[str] = []
    shown: tuple[str, ...] = ()
    at = 0
    while at < len(drafts):
        leaf = parts[drafts[at].leaf]
        last = at
        while last + 1 < len(drafts) and drafts[last + 1].leaf == drafts[at].leaf:
            last += 1
        known = shared
        while known < min(len(shown), len(leaf.path)) and shown[known] == leaf.path[known]:
            known += 1
        for level, heading in zip(leaf.levels[known:], leaf.path[known:], strict=True):
            out.append(f"{'#' * level} {heading}")
        shown = leaf.path
        out.append(render([atom for draft in drafts[at : last + 1] for atom in draft.atoms], fenced=True))
        at = last + 1
    return "\n\n".join(out)


def _identified(namespace: uuid.UUID, identity: Sequence[object], seen: Counter[str]) -> str:
    """uuid5 of the identity and of how often the same one stood before it in the document."""
    key = json.dumps(identity, ensure_ascii=False, separators=(",", ":"))
    occurrence = seen[key]
    seen[key] += 1
    return str(uuid.uuid5(namespace, json.dumps([*identity, occurrence], ensure_ascii=False, separators=(",", ":"))))
