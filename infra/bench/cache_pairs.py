"""How often a kept answer would be given to a question that is another one, and how often to the same one.

    python -m infra.bench.cache_pairs

Prints, for each half of ``samples/cache/pairs.jsonl`` and for some thresholds, the share of false hits among pairs of
different questions and the share of hits among pairs of equal ones: by the cosine alone, and with the signature.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.ports import Vectors
from query_service.cache.signature import Signature

PAIRS = Path(__file__).parents[2] / "samples" / "cache" / "pairs.jsonl"
THRESHOLDS = (0.85, 0.9, 0.95, 0.98)


@dataclass(frozen=True)
class Pair:
    """Two questions, whether one answer serves both, and the half that they are in: ``tune`` or ``held``."""

    a: str
    b: str
    same: bool
    half: str


@dataclass(frozen=True)
class Shares:
    """Of one half at one threshold. ``false_hits`` of ``different`` pairs, ``hits`` of ``same`` ones."""

    false_hits: int
    different: int
    hits: int
    same: int


def pairs(path: Path = PAIRS) -> list[Pair]:
    """The labelled pairs. Raises OSError, ValueError."""
    return [Pair(**json.loads(line)) for line in path.read_text("utf-8").splitlines() if line.strip()]


def measured(
    found: Sequence[Pair], embed: Callable[[str], Vectors], threshold: float, *, signature: bool = True
) -> tuple[Shares, list[Pair]]:
    """Counts, and the pairs that are false hits. ``embed`` gives unit vectors, shape (1, dimension)."""

    def hit(pair: Pair) -> bool:
        if signature and Signature.of(pair.a) != Signature.of(pair.b):
            return False
        return float(embed(pair.a)[0] @ embed(pair.b)[0]) >= threshold

    met = [pair for pair in found if hit(pair)]
    wrong = [pair for pair in met if not pair.same]
    same = sum(pair.same for pair in found)
    return Shares(len(wrong), len(found) - same, len(met) - len(wrong), same), wrong


def main() -> int:
    """Print the table. 1 where a different question of the held-out half is a hit at 0.95."""
    from pipeline.bootstrap import build_encoder
    from pipeline.settings import Settings
    from schemas.generation import BackendChoice, EncoderSpec, Generation

    generation = Generation(
        name="pairs", state="ready", encoder=EncoderSpec(), backend=BackendChoice(name="torch-fp32", agreement=1.0),
        created_at=0,
    )  # fmt: skip
    encoder = build_encoder(Settings(), generation, for_queries=True)
    known: dict[str, Vectors] = {}

    def embed(text: str) -> Vectors:
        if text not in known:
            known[text] = encoder.embed_query(text)
        return known[text]

    failed = False
    for half in ("tune", "held"):
        chosen = [pair for pair in pairs() if pair.half == half]
        for signature in (False, True):
            for threshold in THRESHOLDS:
                shares, wrong = measured(chosen, embed, threshold, signature=signature)
                by = "cosine and signature" if signature else "cosine alone"
                sys.stdout.write(
                    f"{half}: {by} ≥ {threshold}: false hits {shares.false_hits} of {shares.different}, "
                    f"hits {shares.hits} of {shares.same}\n"
                )
                failed |= bool(wrong) and signature and half == "held" and threshold == 0.95
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
