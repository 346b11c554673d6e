"""Case E17: what may leave and what may not, by measures alone and with the real encoder and reranker."""

from __future__ import annotations

import asyncio
import time

import pytest

from pipeline import settings as config
from pipeline.embed.weights import find_model
from pipeline.errors import ConfigError
from query_service.answer.interface import Draft, Source, Verdict
from query_service.rerank import files
from query_service.support.checker import MeasuredChecker
from schemas.generation import EncoderSpec
from tests.unit.support.conftest import verdicts

QUESTION = "Can I retry a transfer with E17 immediately?"
RELEASED = [
    ("Do not resubmit until the status check completes", (1,)),
    ("Checks normally finish within ten minutes", (2,)),
]
WITHHELD = [
    ("The transfer will finish in ten minutes", (2,)),
    ("Retry the transfer", (3,)),
    ("You can resubmit immediately", (1,)),
]


def expect(found: list[Verdict], sources: list[Source]) -> None:
    released, withheld = found[: len(RELEASED)], found[len(RELEASED) :]
    assert [(one.supported, one.cited) for one in released] == [(True, cited) for _, cited in RELEASED]
    for one, (_, (number,)) in zip(released, RELEASED, strict=True):
        assert one.quotes[number] in sources[number - 1].text
    assert [(one.supported, one.doubtful) for one in withheld] == [(False, False)] * len(WITHHELD)
    assert all(one.reason is not None and one.score < 0.5 for one in withheld)


@pytest.mark.requirement("B8")
def test_case_e17_by_measures_alone(e17: list[Source]) -> None:
    expect(verdicts(RELEASED + WITHHELD, e17, question=QUESTION), e17)


@pytest.mark.requirement("B8")
def test_citations_of_case_e17_are_repaired(e17: list[Source]) -> None:
    """Whatever number stands behind a sentence, it leaves with the passage that says it."""
    wrong = [(text, (3,)) for text, _ in RELEASED]
    found = verdicts(wrong, e17, question=QUESTION)
    assert [(one.supported, one.cited) for one in found] == [(True, (1,)), (True, (2,))]


@pytest.mark.requirement("B8")
def test_case_e17_with_the_real_models(e17: list[Source]) -> None:
    settings = config.load()
    try:
        find_model(EncoderSpec(), settings)
        if files.on_this_machine(settings) is None:
            pytest.skip("the default reranker's files are not here: headwater models fetch reranker")
    except ConfigError as error:
        pytest.skip(str(error))
    from infra.bench.support import real_models

    models = real_models()

    async def judged() -> list[Verdict]:
        assert await models.reranking.loaded()
        checker = MeasuredChecker(0.5, embed=models.embed, reranking=models.reranking)
        drafts = [Draft(text, cited) for text, cited in RELEASED + WITHHELD]
        return await checker.check(QUESTION, drafts, e17, deadline=time.monotonic() + 60)

    try:
        expect(asyncio.run(judged()), e17)
    finally:
        models.close()
