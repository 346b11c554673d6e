"""False accepts and false rejects of the support check on the labelled sentences of samples/support.

``python -m infra.bench.support`` prints the figures of the test half, with the real encoder and reranker and without
models. ``--fit`` makes the weights anew from the other half; ``--store`` writes the figures that the gate test compares
with; ``--show calibrate`` lists the sentences of that half that were judged wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline import settings as config
from pipeline.ports import Vectors
from query_service.answer.interface import Draft, Source, Verdict
from query_service.support import model
from query_service.support.candidates import Read, case
from query_service.support.checker import Embed, MeasuredChecker
from query_service.support.text import read
from schemas.api_ranking import EvidencePassage

if TYPE_CHECKING:
    from query_service.rerank.service import TimedReranking

FOLDER = Path(__file__).parents[2] / "samples" / "support"
FIGURES = FOLDER / "baseline.json"
DRAWS = 2000
HALVES = ("calibrate", "test", "fresh-dev", "fresh-held")
FAR = 3600.0  # seconds: time is no part of what is measured


@dataclass(frozen=True)
class Labelled:
    """One line of the set."""

    id: str
    question: str
    draft: Draft
    sources: tuple[Source, ...]
    label: str
    supports: tuple[int, ...]
    kind: str
    language: str

    @property
    def supported(self) -> bool:
        """By the person who labelled it."""
        return self.label == "supported"


@dataclass(frozen=True)
class Judged:
    """A line and what the checker said."""

    line: Labelled
    verdict: Verdict

    @property
    def wrong(self) -> bool:
        """A false accept or a false reject."""
        return self.verdict.supported != self.line.supported


@dataclass
class Models:
    """The real parts: what embeds, and what scores pairs."""

    embed: Embed
    reranking: TimedReranking

    def close(self) -> None:
        """Release them."""
        self.reranking.close()


def load(half: str, folder: Path = FOLDER) -> list[Labelled]:
    """One half of the set: 'calibrate' or 'test'. Raises OSError, ValueError or KeyError where a file is not whole."""
    passages = {one["id"]: one for one in _lines(folder / "passages.jsonl")}
    return [
        Labelled(
            one["id"],
            one["question"],
            Draft(one["sentence"], tuple(one["cited"])),
            tuple(Source(int(n), _passage(passages[name])) for n, name in one["passages"].items()),
            one["label"],
            tuple(one["supports"]),
            one["kind"],
            one["language"],
        )
        for one in _lines(folder / f"{half}.jsonl")
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _passage(one: Mapping[str, Any]) -> EvidencePassage:
    name = str(one["id"])
    return EvidencePassage(
        section_id=name, document_uid=name, document_id=name, source="samples", title=str(one["title"]), url=None,
        version=1, updated_at=None, heading_path=tuple(one["heading_path"]), text=str(one["text"]), tokens=0, rank=1,
        chunk_ids=(),
    )  # fmt: skip


def real_models() -> Models:
    """The default encoder and reranker. Raises ConfigError where their files are not here."""
    from pipeline.embed.encoder import load_encoder
    from pipeline.observe import Metrics
    from query_service.rerank.load import load_reranker
    from query_service.rerank.service import TimedReranking
    from schemas.generation import BackendChoice, EncoderSpec

    settings = config.load()
    encoder = load_encoder(EncoderSpec(), BackendChoice(name="torch-fp32", agreement=1.0), settings, for_queries=True)
    known: dict[str, Vectors] = {}

    async def embed(text: str) -> Vectors:
        if text not in known:
            known[text] = encoder.embed_documents([text])
        return known[text]

    slow = settings.rerank.model_copy(update={"full_ms": FAR * 1000})
    metrics = Metrics()
    reranking = TimedReranking(lambda: load_reranker(settings, metrics), slow, settings.inference, metrics)
    reranking.start()
    return Models(embed, reranking)


async def judge(lines: Sequence[Labelled], checker: MeasuredChecker) -> list[Judged]:
    """Every line by itself, as a sentence of an answer to its question."""
    found = []
    for line in lines:
        verdicts = await checker.check(line.question, [line.draft], line.sources, deadline=time.monotonic() + FAR)
        found.append(Judged(line, verdicts[0]))
    return found


def rates(judged: Sequence[Judged], seed: int = 7) -> dict[str, object]:
    """False accepts among the unsupported, false rejects among the supported, each with a 95 % bootstrap interval."""
    wrong = [one for one in judged if not one.line.supported]
    right = [one for one in judged if one.line.supported]
    light = [one for one in right if one.line.kind == "paraphrase"]
    verbatim = [one for one in right if one.line.kind == "verbatim"]
    accepted = [one for one in right if one.verdict.supported]
    return {
        "false_accepts": _rate([one.wrong for one in wrong], seed),
        "false_rejects": _rate([one.wrong for one in right], seed),
        "rejected_verbatim": _rate([one.wrong for one in verbatim], seed),
        "rejected_paraphrases": _rate([one.wrong for one in light], seed),
        "cites_another": _rate([not set(one.verdict.cited) <= set(one.line.supports) for one in accepted], seed),
    }


def _rate(wrong: Sequence[bool], seed: int) -> dict[str, float]:
    values = np.asarray(wrong, dtype=float)
    if not len(values):
        return {"n": 0, "wrong": 0, "rate": 0.0, "low": 0.0, "high": 0.0}
    draws = np.random.default_rng(seed).choice(values, (DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return {
        "n": len(values), "wrong": int(values.sum()), "rate": round(float(values.mean()), 4),
        "low": round(float(low), 4), "high": round(float(high), 4),
    }  # fmt: skip


def by_kind(judged: Sequence[Judged]) -> dict[str, tuple[int, int, int]]:
    """Lines, false accepts and false rejects of each kind."""
    found: dict[str, tuple[int, int, int]] = {}
    for one in judged:
        n, accepts, rejects = found.get(one.line.kind, (0, 0, 0))
        found[one.line.kind] = (
            n + 1, accepts + (one.wrong and one.verdict.supported), rejects + (one.wrong and one.line.supported)
        )  # fmt: skip
    return dict(sorted(found.items()))


async def rows(lines: Sequence[Labelled], models: Models) -> list[tuple[dict[str, float], float]]:
    """Features of the best window of each line that no veto struck, with its label; what is identical is left out."""
    checker = MeasuredChecker(0.5, embed=models.embed, reranking=models.reranking)
    found = []
    for line in lines:
        one = case(line.draft, Read.of(line.sources), read(line.question))
        if one.literal:
            continue
        top = next((m for m in one.whole.best() if m.veto is None), None)
        if top is not None:
            more = await checker.by_models(one.whole, [top], time.monotonic() + FAR)
            found.append(({**top.features, **more.get(id(top), {})}, float(line.supported)))
    return found


async def fitted(models: Models) -> dict[str, model.Weights]:
    """Weights of every set of features, from the calibration half and the part of the fresh set that was looked at."""
    data = await rows([*load("calibrate"), *load("fresh-dev")], models)
    labels = np.asarray([label for _, label in data])
    sets = {}
    for key, names in model.SETS.items():
        complete = [i for i, (features, _) in enumerate(data) if set(names) <= set(features)]
        matrix = np.asarray([[data[i][0][name] for name in names] for i in complete])
        sets[key] = model.fit(names, matrix, labels[complete])
    return sets


def show(console: Console, name: str, judged: Sequence[Judged]) -> None:
    """The tables of one run."""
    table = Table(title=f"{name}: {len(judged)} sentences")
    for column in ("", "of", "wrong", "rate", "95 % interval"):
        table.add_column(column, justify="left" if not column else "right")
    for key, one in rates(judged).items():
        assert isinstance(one, dict)
        interval = f"{one['low']:.1%} to {one['high']:.1%}"
        table.add_row(key, str(one["n"]), str(one["wrong"]), f"{one['rate']:.1%}", interval)
    console.print(table)
    kinds = Table(title=f"{name}, by kind")
    for column in ("kind", "sentences", "false accepts", "false rejects"):
        kinds.add_column(column, justify="left" if column == "kind" else "right")
    for kind, counts in by_kind(judged).items():
        kinds.add_row(kind, *(str(n) for n in counts))
    console.print(kinds)


async def main(arguments: argparse.Namespace) -> None:
    """Fit, judge, print."""
    console = Console(width=110)
    models = real_models() if arguments.fit or not arguments.alone else None
    try:
        if models is not None and not await models.reranking.loaded():
            console.print("the reranker could not be loaded")
            sys.exit(1)
        if arguments.fit and models is not None:
            made = await fitted(models)
            model.PATH.write_text(model.stored(made, "python -m infra.bench.support --fit"), encoding="utf-8")
            model.packaged.cache_clear()
        ways = {"measures alone": MeasuredChecker(arguments.threshold)}
        if models is not None and not arguments.alone:
            ways["with models"] = MeasuredChecker(arguments.threshold, embed=models.embed, reranking=models.reranking)
        half = arguments.show or arguments.half
        stored: dict[str, object] = {"threshold": arguments.threshold}
        for name, checker in ways.items():
            judged = await judge(load(half), checker)
            show(console, name, judged)
            stored[name] = rates(judged)
            if arguments.show:
                for one in judged:
                    if one.wrong:
                        v = one.verdict
                        console.print(
                            f"{one.line.label:12} {one.line.kind:10} {v.score:.2f} {v.reason} | {one.line.draft.text}",
                            markup=False,
                        )
        if arguments.store:
            FIGURES.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    finally:
        if models is not None:
            models.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--alone", action="store_true", help="Judge with the measures alone.")
    parser.add_argument("--show", choices=HALVES)
    parser.add_argument("--half", choices=HALVES, default="test")
    parser.add_argument("--threshold", type=float, default=0.5)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_arguments()))
