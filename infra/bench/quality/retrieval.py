"""Strategies of chunking compared by what is found: the golden set, and questions on articles (squad2-articles).

The same pages, the same encoder, the same ranking; only the cuts differ. Labels are places in the documents, never
chunks: of the golden set a heading or a span (``pipeline.golden``), of the articles the answer's place in its passage,
so that strategies compare fairly. A larger chunk meets a label more easily and costs a generator more to read; the
tokens of a hit stand beside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import numpy as np

from infra.bench.quality.search import Index, Mask, Passage
from pipeline.errors import HeadwaterError
from pipeline.golden import FolderReaders, Hit, Question, Retrieved, load_questions
from pipeline.ports import Chunker, Embedder, TokenCounter, Vectors
from pipeline.quality import Interval, bootstrap, score
from schemas.documents import Block, Chunk, ExtractedDocument
from schemas.generation import ChunkingSpec, EncoderSpec
from schemas.keys import DocumentRef

K = 10
GOLDEN, ARTICLES = "golden", "squad2-articles"
PLAIN = "plain fixed 512/64"


@dataclass(frozen=True)
class Page:
    """A document of a corpus: its blocks, and when it is in effect (µs)."""

    name: str
    title: str
    extracted: ExtractedDocument
    effective_from: int | None = None
    effective_until: int | None = None


@dataclass(frozen=True)
class Row:
    """One strategy on one corpus: means over the questions, with the 95 % bootstrap interval of nDCG."""

    corpus: str
    strategy: str
    ndcg: Interval
    recall: float
    questions: int
    chunks: int
    tokens: float

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "ndcg": self.ndcg.model_dump()}


@dataclass(frozen=True)
class Missing:
    """A strategy that could not be measured, and why."""

    corpus: str
    strategy: str
    why: str


class Encoder:
    """The default encoder, which remembers what it embedded: strategies share many texts."""

    def __init__(self, embedder: Embedder, spec: EncoderSpec) -> None:
        self.spec = spec
        self._embedder = embedder
        self._known: dict[str, Vectors] = {}
        self._asked: dict[str, Vectors] = {}

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, a row a text."""
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        for text, vector in zip(new, self._embedder.embed_documents(new), strict=True):
            self._known[text] = vector
        if not texts:
            return np.zeros((0, self.spec.dimension), dtype=np.float32)
        return np.stack([self._known[text] for text in texts])

    def query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        if text not in self._asked:
            self._asked[text] = self._embedder.embed_query(text)
        return self._asked[text]


def variants() -> dict[str, ChunkingSpec]:
    """The strategies and presets by name, in sizes that the default encoder can read."""
    from pipeline.chunk import preset

    return {
        "hierarchical 200/1024": preset("200/1024"),
        "hierarchical 128/512": preset("128/512"),
        "hierarchical 200/2000": preset("200/2000"),
        "hierarchical, summary": ChunkingSpec(summary=True),
        "fixed 256/32": preset("fixed 256/32"),
        "recursive": ChunkingSpec(strategy="recursive"),
        "semantic 0.75": ChunkingSpec(strategy="semantic"),
        "semantic p25": ChunkingSpec(strategy="semantic", semantic_percentile=25),
        "document-aware": ChunkingSpec(strategy="document_aware"),
    }


def index_of(pages: Sequence[Page], chunker: Chunker, encoder: Encoder) -> Index:
    """All pages cut and embedded."""
    passages = []
    for page in pages:
        ref = DocumentRef(tenant="bench", source="quality", id=page.name)
        cut = chunker.chunk(ref, page.extracted, title=page.title, facets="")
        passages += [Passage(page.name, chunk) for chunk in cut.chunks]
    return Index(passages, encoder.documents([p.chunk.embed_text for p in passages]))


class PlainChunker:
    """Equal pieces of 512 tokens with 64 in common, of the text alone, as a plain pipeline cuts; ports.Chunker.

    The encoder reads the first of them, as far as it can: what is cut off is still searched by words.
    """

    def __init__(self, counter: TokenCounter, encoder: EncoderSpec, size: int = 512, overlap: int = 64) -> None:
        self._counter, self._room = counter, encoder.max_tokens - counter.count("")
        self._size, self._step = size, size - overlap

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> Any:
        """As ports.Chunker; sections are left out."""
        from pipeline import analysis
        from schemas.documents import ChunkedDocument

        del facets
        text = "\n\n".join(block.text for block in extracted.blocks)
        spans = list(self._counter.offsets(text))
        chunks = []
        for ordinal, first in enumerate(range(0, max(1, len(spans)), self._step)):
            part = spans[first : first + self._size]
            if not part or (ordinal and len(part) <= self._size - self._step):
                break
            own = text[part[0][0] : part[-1][1]]
            seen = text[part[0][0] : part[: self._room][-1][1]]
            while self._counter.count(seen) > self._room + self._counter.count(""):
                seen = seen[: -max(1, len(seen) // 50)]
            chunks.append(
                Chunk(
                    chunk_id=f"{document.key}#{ordinal}", section_ordinal=0, ordinal=ordinal, heading_path=(),
                    text=own, embed_text=seen, embed_hash="", lexical=analysis.lexical(title, own),
                    identifiers=analysis.identifiers(own), tokens=len(part),
                )
            )  # fmt: skip
        return ChunkedDocument(sections=(), chunks=tuple(chunks))


# -- golden set --------------------------------------------------------------------------------------------------------


def wiki(root: Path, read: Callable[[Path, str], ExtractedDocument]) -> Iterator[Page]:
    """The pages of a folder as its source would send them, each through ``read`` (file, content type)."""
    from infra.corpus import pages
    from pipeline.sources.folder.pages import read_page

    for file in pages(root):
        name = file.relative_to(root).as_posix()
        facts = read_page(name, file.read_bytes())
        extracted = read(file, facts.content_type)
        yield Page(name, facts.title, extracted, facts.effective_from, facts.effective_until)


def golden(index: Index, pages: Sequence[Page], samples: Path, encoder: Encoder, strategy: str, limit: int) -> Row:
    """The golden questions, each as its own person and on its own day."""
    questions = load_questions(samples / "golden" / "questions.jsonl")
    answerable = [question for question in questions if question.answerable][:limit]
    readers = FolderReaders(samples / "wiki")
    dates = {page.name: page for page in pages}
    results = [
        Retrieved(
            tuple(
                Hit(one.document, one.chunk.text, one.chunk.heading_path)
                for one in index.search(
                    question.question, encoder.query(question.question), _open(index, question, readers, dates)
                )[:K]
            )
        )
        for question in answerable
    ]
    report = score(answerable, results)
    return _row(GOLDEN, strategy, index, report.interval, report.overall.recall[K], len(answerable))


def _open(index: Index, question: Question, readers: FolderReaders, dates: Mapping[str, Page]) -> Mask:
    day = int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000 if question.as_of else None
    verdicts: dict[str, bool] = {}
    for passage in index.passages:
        if passage.document not in verdicts:
            page = dates[passage.document]
            in_effect = day is None or (
                (page.effective_from is None or page.effective_from <= day)
                and (page.effective_until is None or day < page.effective_until)
            )
            verdicts[passage.document] = in_effect and readers.may_read(question.user, passage.document)
    return np.array([verdicts[passage.document] for passage in index.passages], dtype=np.bool_)


# -- articles ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Articles:
    """Articles as pages, and questions with the place of their answer: (article, start, end) in its levelled text."""

    pages: tuple[Page, ...]
    texts: Mapping[str, str]
    questions: tuple[tuple[str, tuple[str, int, int]], ...]


def articles(folder: Path, *, most: int) -> Articles:
    """Read squad2-articles; at most so many questions, evenly taken. OSError where it is not there."""

    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]

    titles: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    places: dict[str, tuple[str, int, int]] = {}
    for line in lines("corpus.jsonl"):
        article = line["_id"].split("-")[0]
        titles[article] = line["title"]
        before = parts.setdefault(article, [])
        start = sum(len(part) + 1 for part in before)
        before.append(_level(line["text"]))
        places[line["_id"]] = (article, start, start + len(before[-1]))
    texts = {name: " ".join(found) for name, found in parts.items()}
    rows = [line.split("\t") for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()]
    passages = {row[0]: row[1] for row in rows if row[1] in places}
    asked = []
    for line in lines("queries.jsonl"):
        passage = places.get(passages.get(line["_id"], ""))
        if passage and line["answerable"] and (place := _answer(line["answers"], texts, passage)):
            asked.append((str(line["text"]), place))
    step = max(1, -(-len(asked) // most))
    made = tuple(_article(name, titles[name], found) for name, found in parts.items())
    return Articles(made, texts, tuple(asked[::step]))


def _level(text: str) -> str:
    return " ".join(text.split())


def _answer(
    answers: Sequence[str], texts: Mapping[str, str], passage: tuple[str, int, int]
) -> tuple[str, int, int] | None:
    article, start, end = passage
    for answer in answers:
        at = texts[article].find(_level(answer), start, end)
        if at >= 0:
            return article, at, at + len(_level(answer))
    return None


def _article(name: str, title: str, parts: Sequence[str]) -> Page:
    blocks = [Block(type="heading", text=title, level=1), *(Block(type="paragraph", text=part) for part in parts)]
    return Page(name, title, ExtractedDocument(blocks=tuple(blocks), title=title, media_type="text/plain"))


def ask(index: Index, found: Articles, encoder: Encoder, strategy: str) -> Row:
    """Every question over all articles; a hit is right where it holds the answer at its place."""
    spans = [_span(passage, found.texts[passage.document]) for passage in index.passages]
    where = {id(passage): span for passage, span in zip(index.passages, spans, strict=True)}
    everything = np.ones(len(index.passages), dtype=np.bool_)
    gains, recalls = [], []
    for question, (article, start, end) in found.questions:
        hits = index.search(question, encoder.query(question), everything)[:K]
        ranks = [
            rank
            for rank, hit in enumerate(hits, start=1)
            if hit.document == article and where[id(hit)][0] <= start and end <= where[id(hit)][1]
        ]
        gains.append(1.0 / float(np.log2(ranks[0] + 1)) if ranks else 0.0)
        recalls.append(float(bool(ranks)))
    return _row(ARTICLES, strategy, index, bootstrap(gains), float(np.mean(recalls)), len(gains))


def _span(passage: Passage, text: str) -> tuple[int, int]:
    """Where a chunk's text stands in the article: by the whole of it, else by its first and last words."""
    own = _level(passage.chunk.text)
    at = text.find(own)
    if at >= 0:
        return at, at + len(own)
    start, last = text.find(own[:60]), text.find(own[-60:])
    if start < 0:  # it begins with the heading
        start = last - len(own) + 60 if last >= 0 else -1
    return (max(0, start), last + 60) if last >= 0 else (start, start + len(own) if start >= 0 else -1)


def _row(corpus: str, strategy: str, index: Index, ndcg: Interval, recall: float, questions: int) -> Row:
    tokens = [passage.chunk.tokens for passage in index.passages]
    return Row(corpus, strategy, ndcg, recall, questions, len(tokens), float(np.mean(tokens)) if tokens else 0.0)


# -- all ---------------------------------------------------------------------------------------------------------------


def compare(
    corpus: str,
    pages: Sequence[Page],
    chosen: Mapping[str, Callable[[], Chunker]],
    encoder: Encoder,
    ask_all: Callable[[Index, str], Row],
    progress: Callable[[str], None],
) -> Iterator[Row | Missing]:
    """Each strategy on one corpus; one that cannot be built is told of, the others go on."""
    for name, build in chosen.items():
        progress(name)
        try:
            index = index_of(pages, build(), encoder)
        except HeadwaterError as error:
            yield Missing(corpus, name, str(error))
        else:
            yield ask_all(index, name)
