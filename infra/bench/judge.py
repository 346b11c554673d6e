"""How far the configured generator, as a judge, agrees with the labels of samples/support.

``python -m infra.bench.judge`` asks it of every labelled sentence and prints the record; ``--most N`` takes N of them
drawn with a seed; ``--store`` keeps the record beside the labels, where ``headwater quality`` finds it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence

from infra.answer_judging import PROMPT, RECORD, Assessor, assessing
from infra.bench.support import HALVES, Labelled, load
from pipeline import settings as config
from pipeline.answer_judge import LABELS, Record, agreement, standing, store
from pipeline.quality import SEED


def measured(assessor: Assessor, lines: Sequence[Labelled], progress: Callable[[int], None]) -> Record:
    """Its agreement. A reply that is no score counts as *not supported*: so a run would read it. Raises ValueError
    where there are no lines."""
    verdicts = []
    for done, line in enumerate(lines, 1):
        passages = [source.text for source in line.sources]
        verdicts.append(assessor.supported(line.question, line.draft.text, passages) is True)
        progress(done)
    return agreement(assessor.model, PROMPT, verdicts, [line.supported for line in lines])


def drawn(most: int | None) -> list[Labelled]:
    """The labelled sentences of all parts, or so many of them."""
    lines = [line for half in HALVES for line in load(half)]
    return lines if most is None or most >= len(lines) else random.Random(SEED).sample(lines, most)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; 1 where no generator is configured."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.judge", description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, help=f"sentences at most; below {LABELS} the judge does not count")
    parser.add_argument("--store", action="store_true", help="keep the record")
    given = parser.parse_args(argv)
    with assessing(config.load()) as assessor:
        if assessor is None:
            print(
                "No generator is configured: set HEADWATER_GENERATOR__URL and __MODEL.",
                file=sys.stderr,
            )
            return 1
        lines = drawn(given.most)
        record = measured(assessor, lines, lambda done: print(f"{done} of {len(lines)}", file=sys.stderr))
        print(json.dumps({**record.model_dump(), "standing": standing(record, assessor.model, PROMPT).why}))
    if given.store:
        store(RECORD, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
