"""The whole comparison: fidelity of both readers, retrieval of every strategy on both sets of questions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from infra.bench.quality import retrieval
from infra.bench.quality.fidelity import Fidelity, measure
from infra.bench.quality.readers import OwnReader, PlainUnstructured, Reader, Unreadable
from infra.bench.quality.retrieval import ARTICLES, GOLDEN, PLAIN, Encoder, Missing, Page, PlainChunker, Row
from infra.bench.quality.search import Index
from infra.errors import InfraError
from infra.progress import Reporter
from pipeline.ports import Chunker, TokenCounter
from pipeline.settings import Settings
from schemas.documents import Block, ExtractedDocument
from schemas.generation import EncoderSpec

QUESTIONS, QUICK_QUESTIONS = 300, 25
NOT_INSTALLED = "not installed"


@dataclass
class Quality:
    """What was measured. ``baseline`` is the version of ``unstructured``, or that it is not installed."""

    encoder: str
    baseline: str
    load1: float
    quick: bool
    fidelity: list[Fidelity] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "bench": "quality",
            "encoder": self.encoder,
            "unstructured": self.baseline,
            "load1": round(self.load1, 2),
            "quick": self.quick,
            "fidelity": [one.plain() for one in self.fidelity],
            "retrieval": [row.plain() for row in self.rows],
            "not_measured": [asdict(one) for one in self.missing],
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
        }


@dataclass(frozen=True)
class Places:
    """Where the corpora lie; found from a checkout."""

    samples: Path
    articles: Path

    @staticmethod
    def of_checkout() -> Places:
        """Raises InfraError where the package was installed without them."""
        root = Path(__file__).parents[3]
        if not (root / "samples" / "formats").is_dir():
            raise InfraError("There is no corpus of formats beside this installation.", "Run it from a checkout.")
        return Places(root / "samples", root.parent / "shared" / "data" / "squad2-articles")


def run(
    settings: Settings, places: Places, report: Reporter, *, baseline_python: Path | None = None, quick: bool = False,
    only: Sequence[str] = ("fidelity", "retrieval"), formats: Collection[str] = (),
) -> Quality:  # fmt: skip
    """Measure everything, or these parts and formats; ``quick`` leaves out OCR and asks few questions.

    Raises InfraError where a corpus is missing, ConfigError where the encoder cannot be loaded.
    """
    plain = PlainUnstructured.start(baseline_python)
    made = Quality(EncoderSpec().model, plain.version if plain else NOT_INSTALLED, os.getloadavg()[0], quick)
    if plain is None:
        report.finish("unstructured", f"{NOT_INSTALLED}; pip install 'headwater[baseline]' or --baseline-python")
    try:
        if "fidelity" in only:
            readers: list[Reader] = [OwnReader(), *([plain] if plain else [])]
            for reader in readers:
                _timed(made, f"fidelity {reader.name}", partial(_fidelity, made, reader, places, formats, report))
        if "retrieval" in only:
            _timed(made, "retrieval", partial(_retrieval, made, settings, places, plain, report))
    finally:
        if plain is not None:
            plain.close()
    return made


def _timed(made: Quality, name: str, step: Callable[[], None]) -> None:
    begun = time.monotonic()
    step()
    made.seconds[name] = time.monotonic() - begun


def _fidelity(made: Quality, reader: Reader, places: Places, formats: Collection[str], report: Reporter) -> None:
    name = f"fidelity {reader.name}"

    def progress(done: int, total: int, file: str) -> None:
        report.step(name, f"{done} of {total} {file}", done / total)

    made.fidelity.append(measure(reader, places.samples / "formats", progress, ocr=not made.quick, formats=formats))
    report.finish(name, f"{len(made.fidelity[-1].files)} files")


# -- retrieval ---------------------------------------------------------------------------------------------------------


def _retrieval(
    made: Quality, settings: Settings, places: Places, plain: PlainUnstructured | None, report: Reporter
) -> None:
    from pipeline.bootstrap import choose_backend
    from pipeline.embed import load_encoder, token_counter

    report.step("encoder", made.encoder)
    spec = EncoderSpec()
    counter = token_counter(spec, settings)
    encoder = Encoder(load_encoder(spec, choose_backend(settings, spec), settings), spec)
    report.finish("encoder", made.encoder)
    most = QUICK_QUESTIONS if made.quick else QUESTIONS
    chosen = _builders(spec, counter, encoder)
    plain_chunker = partial(PlainChunker, counter, spec)
    _golden(made, places, plain, encoder, chosen, plain_chunker, most, report)
    if not places.articles.is_dir():
        made.missing.append(Missing(ARTICLES, "all", f"{places.articles} is not there"))
        report.finish(ARTICLES, "is not there: left out")
        return
    found = retrieval.articles(places.articles, most=most)
    chosen[PLAIN] = plain_chunker

    def ask(index: Index, name: str) -> Row:
        return retrieval.ask(index, found, encoder, name)

    _all(made, ARTICLES, found.pages, chosen, encoder, ask, report)


def _builders(spec: EncoderSpec, counter: TokenCounter, encoder: Encoder) -> dict[str, Callable[[], Chunker]]:
    from pipeline.chunk import chunker_for

    return {
        name: partial(chunker_for, chunking, counter, spec, encoder.documents)
        for name, chunking in retrieval.variants().items()
    }


def _golden(
    made: Quality, places: Places, plain: PlainUnstructured | None, encoder: Encoder,
    chosen: Mapping[str, Callable[[], Chunker]], plain_chunker: Callable[[], Chunker], most: int, report: Reporter,
) -> None:  # fmt: skip
    own = OwnReader()

    def ask_about(pages: Sequence[Page], index: Index, name: str) -> Row:
        return retrieval.golden(index, pages, places.samples, encoder, name, most)

    pages = tuple(retrieval.wiki(places.samples / "wiki", own.extract))
    _all(made, GOLDEN, pages, chosen, encoder, partial(ask_about, pages), report)
    if plain is None:
        made.missing.append(Missing(GOLDEN, PLAIN, f"unstructured is {NOT_INSTALLED}"))
        return
    report.step(f"{GOLDEN} by unstructured", "reads the pages")
    read = tuple(retrieval.wiki(places.samples / "wiki", partial(_plainly, plain)))
    only = {f"unstructured, {PLAIN}": plain_chunker}
    _all(made, GOLDEN, read, only, encoder, partial(ask_about, read), report)


def _plainly(plain: PlainUnstructured, file: Path, content_type: str) -> ExtractedDocument:
    """A page as ``unstructured`` reads it, its elements as paragraphs; empty where it cannot."""
    try:
        heard = plain.read(file, content_type, ocr=False)
    except Unreadable:
        heard = []
    blocks = tuple(Block(type="paragraph", text=one.text) for one in heard if one.text.strip())
    return ExtractedDocument(blocks=blocks, media_type=content_type.split(";")[0])


def _all(
    made: Quality, corpus: str, pages: Sequence[Page], chosen: Mapping[str, Callable[[], Chunker]], encoder: Encoder,
    ask: Callable[[Index, str], Row], report: Reporter,
) -> None:  # fmt: skip
    done = 0

    def progress(name: str) -> None:
        nonlocal done
        report.step(f"retrieval {corpus}", name, done / len(chosen))
        done += 1

    for one in retrieval.compare(corpus, pages, chosen, encoder, ask, progress):
        if isinstance(one, Row):
            made.rows.append(one)
        else:
            made.missing.append(one)
    report.finish(f"retrieval {corpus}", f"{len(chosen)} strategies")
