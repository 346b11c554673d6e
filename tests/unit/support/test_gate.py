"""The labelled sentences: how many there are, that they are sound, and that the check does not get worse on them."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from infra.bench import support as bench
from query_service.support.checker import MeasuredChecker


@pytest.mark.requirement("B8")
def test_the_test_half_is_judged_no_worse_than_the_stored_figures() -> None:
    stored = json.loads(bench.FIGURES.read_text(encoding="utf-8"))
    judged = asyncio.run(bench.judge(bench.load("test"), MeasuredChecker(stored["threshold"])))
    found = bench.rates(judged)
    for name, was in stored["measures alone"].items():
        now = found[name]
        assert isinstance(now, dict)
        assert now["n"] == was["n"] or name == "cites_another", f"{name}: the set has changed, store the figures anew"
        assert now["wrong"] <= was["wrong"], f"{name}: {now['wrong']} wrong, {was['wrong']} before"
    assert found["rejected_verbatim"]["wrong"] == 0  # type: ignore[index]
    assert found["cites_another"]["wrong"] == 0  # type: ignore[index]


def test_the_set_is_large_sound_and_split_by_passage() -> None:
    halves = {half: bench.load(half) for half in bench.HALVES}
    every = [line for lines in halves.values() for line in lines]
    passages = {half: {s.passage.section_id for line in lines for s in line.sources} for half, lines in halves.items()}
    assert len(every) >= 320 and len(set().union(*passages.values())) >= 100
    assert all(not passages[one] & passages[other] for one, other in itertools.combinations(passages, 2))
    assert len({line.id for line in every}) == len(every)
    assert sum(line.language == "de" for line in every) >= 40
    for line in every:
        assert line.label in ("supported", "unsupported", "contradicted")
        assert bool(line.supports) == line.supported, line.id
        assert set(line.supports) <= {s.number for s in line.sources}, line.id
    assert 0.35 < sum(line.supported for line in every) / len(every) < 0.6
