"""The corpus of formats through a reader: figures by file, by format, and over all files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.bench.quality.readers import Reader, Unreadable
from infra.bench.quality.scores import Scores, failed, mean, score
from infra.bench.quality.truth import Truth, load

ALL = "all"
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class FileScore:
    """One file: its figures, and why it was not read, if so."""

    file: str
    format: str
    scores: Scores
    error: str = ""


@dataclass(frozen=True)
class Fidelity:
    """One reader over the corpus."""

    reader: str
    files: tuple[FileScore, ...]

    def formats(self) -> dict[str, Scores]:
        """Means by format in the corpus's order, and of all files."""
        names = dict.fromkeys(one.format for one in self.files)
        found = {name: mean([one.scores for one in self.files if one.format == name]) for name in names}
        return found | {ALL: mean([one.scores for one in self.files])}

    def counts(self) -> dict[str, int]:
        """Files by format, and all."""
        names = [one.format for one in self.files]
        return {name: names.count(name) for name in dict.fromkeys(names)} | {ALL: len(names)}

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "reader": self.reader,
            "formats": {
                name: {"files": self.counts()[name], **asdict(scores)} for name, scores in self.formats().items()
            },
            "files": [
                {"file": one.file, "format": one.format, **asdict(one.scores), "error": one.error} for one in self.files
            ],
        }


def measure(
    reader: Reader, corpus: Path, progress: Progress, *, ocr: bool = True, formats: Collection[str] = ()
) -> Fidelity:
    """Every file of the corpus through the reader, of these formats if any are named.

    Without ``ocr`` scans and images are left out.
    """
    wanted = [
        (truth, file)
        for truth, file in load(corpus)
        if (ocr or not truth.ocr) and (not formats or truth.format in formats)
    ]
    return Fidelity(reader.name, tuple(_each(reader, wanted, progress)))


def _each(reader: Reader, wanted: list[tuple[Truth, Path]], progress: Progress) -> Iterator[FileScore]:
    for at, (truth, file) in enumerate(wanted):
        progress(at, len(wanted), truth.file)
        try:
            heard = reader.read(file, truth.content_type, truth.ocr)
        except Unreadable as error:
            yield FileScore(truth.file, truth.format, failed(truth), str(error))
        else:
            yield FileScore(truth.file, truth.format, score(truth, heard))
