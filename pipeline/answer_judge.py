"""Whether a model may judge answers: its agreement with labels given by hand, stored beside them.

A judge's scores are left out of what people read until a record stands that names this model and this prompt, was made
on at least 200 labels, and reaches the kappa that is asked for. They gate nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.golden import GoldenError
from pipeline.quality import LEVEL, SAMPLES, SEED, Interval

LABELS = 200
KAPPA = 0.6
"""Smallest kappa of a judge that counts: "substantial" on the scale of Landis and Koch (1977)."""


class Record(BaseModel):
    """``judge.json``: what a judge was measured at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1)
    prompt_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    labels: int = Field(ge=0)
    accuracy: float = Field(ge=0, le=1)
    kappa: float = Field(ge=-1, le=1)
    kappa_low: float = Field(ge=-1, le=1)
    kappa_high: float = Field(ge=-1, le=1)
    false_accepts: int = Field(ge=0)
    false_rejects: int = Field(ge=0)


@dataclass(frozen=True)
class Standing:
    """Whether a judge's scores count; ``why`` is shown beside them."""

    counts: bool
    why: str


def kappa(one: Sequence[bool], other: Sequence[bool]) -> float:
    """Cohen's kappa (1960): (agreement - agreement by chance) / (1 - agreement by chance).

    1 where both say one and the same of everything. Raises ValueError for no pairs or unequal lengths.
    """
    if not one or len(one) != len(other):
        raise ValueError(f"{len(one)} verdicts and {len(other)} labels: give one of each for every sentence")
    return _kappa(np.asarray(one, dtype=bool), np.asarray(other, dtype=bool))


def _kappa(one: np.ndarray, other: np.ndarray) -> float:
    seen = float(np.mean(one == other))
    chance = float(one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean()))
    return 1.0 if chance == 1.0 else (seen - chance) / (1 - chance)


def agreement(model: str, prompt: str, verdicts: Sequence[bool], labels: Sequence[bool]) -> Record:
    """What a judge's verdicts (supported or not) are worth against labels given by hand. Raises ValueError."""
    found = kappa(verdicts, labels)
    judged, true = np.asarray(verdicts, dtype=bool), np.asarray(labels, dtype=bool)
    interval = _interval(judged, true, found)
    return Record(
        model=model,
        prompt_sha256=prompt_hash(prompt),
        labels=len(labels),
        accuracy=float(np.mean(judged == true)),
        kappa=found,
        kappa_low=interval.low,
        kappa_high=interval.high,
        false_accepts=int(np.sum(judged & ~true)),
        false_rejects=int(np.sum(~judged & true)),
    )


def _interval(judged: np.ndarray, true: np.ndarray, found: float) -> Interval:
    drawn = np.random.default_rng(SEED).integers(0, len(true), size=(SAMPLES, len(true)))
    values = [_kappa(judged[row], true[row]) for row in drawn]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(mean=found, low=float(low), high=float(high))


def prompt_hash(prompt: str) -> str:
    """sha256 of the judge's prompt: another prompt is another judge."""
    return hashlib.sha256(prompt.encode()).hexdigest()


def standing(record: Record | None, model: str, prompt: str) -> Standing:
    """Whether the scores of this model with this prompt count."""
    if record is None:
        return Standing(False, "not validated: no agreement with hand labels is stored")
    if record.model != model or record.prompt_sha256 != prompt_hash(prompt):
        return Standing(False, "not validated: the stored agreement is of another model or prompt")
    if record.labels < LABELS:
        return Standing(False, f"not validated: measured on {record.labels} labels, {LABELS} are needed")
    said = f"kappa {record.kappa:.2f} ({record.kappa_low:.2f} to {record.kappa_high:.2f}), {record.labels} labels"
    if record.kappa < KAPPA:
        return Standing(False, f"not validated: {said}, {KAPPA} is needed")
    return Standing(True, said)


def load(path: Path) -> Record | None:
    """The stored record, None where there is none. Raises GoldenError for a file that cannot be used."""
    if not path.exists():
        return None
    try:
        return Record.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise GoldenError(f"{path} is no record of a judge: measure it again, or remove the file") from error


def store(path: Path, record: Record) -> None:
    """Write the record."""
    path.write_text(json.dumps(record.model_dump(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_labels(folder: Path) -> list[tuple[str, bool]]:
    """(id, supported) of every labelled sentence in the folder's ``*.jsonl``, in order.

    Raises GoldenError: a line has no ``id`` or no ``label`` of supported, unsupported, contradicted.
    """
    found: list[tuple[str, bool]] = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                label, name = row["label"], str(row["id"])
            except (ValueError, KeyError, TypeError) as error:
                raise GoldenError(f"{file.name} line {number}: needs 'id' and 'label'") from error
            if label not in ("supported", "unsupported", "contradicted"):
                raise GoldenError(f"{file.name} line {number}, label: supported, unsupported or contradicted")
            found.append((name, label == "supported"))
    return found
