"""A generator's and an NLI model's verdicts: what is understood, and that nonsense or failure leaves no opinion."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.errors import ConfigError
from pipeline.settings_query import SupportSettings
from query_service.answer.interface import Draft
from query_service.generate.interface import Completion, GeneratorUnavailable, Message, Usage
from query_service.support.build import build_checker
from query_service.support.candidates import Case, Read, case
from query_service.support.judges import NO, YES, EntailmentJudge, GeneratorJudge
from query_service.support.text import read
from tests.unit.support.conftest import source

SOURCES = [source(1, "The archive opens at nine."), source(2, "Copies are free of charge.")]


def cases() -> list[Case]:
    texts = ("The archive opens at nine in the morning.", "Copies are free.")
    return [case(Draft(text, (1,)), Read.of(SOURCES), read("")) for text in texts]


class Replying:
    """A generator with one reply; keeps what it was sent."""

    model = "m"

    def __init__(self, reply: str | None) -> None:
        self.reply = reply
        self.sent: list[Message] = []

    async def complete(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> Completion:
        self.sent = list(messages)
        if self.reply is None:
            raise GeneratorUnavailable("down")
        return Completion(self.reply, "stop", "m", Usage())


def judged(reply: str | None) -> list[Mapping[int, float] | None]:
    judge = GeneratorJudge(Replying(reply))  # type: ignore[arg-type]
    return asyncio.run(judge.judge("?", cases(), SOURCES, deadline=time.monotonic() + 9))


@pytest.mark.requirement("B8")
def test_verdicts_of_a_generator_are_read() -> None:
    reply = json.dumps({"verdicts": [{"sentence": 1, "supported_by": []}, {"sentence": 2, "supported_by": [2]}]})
    assert judged(f"```json\n{reply}\n```") == [{1: NO, 2: NO}, {1: NO, 2: YES}]


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    "reply",
    [None, "", "yes", "[]", "{}", '{"verdicts": 3}', '{"verdicts": [{"sentence": 9, "supported_by": [1]}]}',
     '{"verdicts": [{"sentence": 1, "supported_by": [7]}]}', '{"verdicts": [{"sentence": true, "supported_by": [1]}]}'],
)  # fmt: skip
def test_a_failed_or_odd_reply_is_no_opinion(reply: str | None) -> None:
    assert judged(reply) == [None, None]


class Fixed:
    """An NLI model with the same rows for every pair."""

    def __init__(self, row: tuple[float, ...]) -> None:
        self.row = row

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        return np.asarray([self.row for _ in pairs])


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("row", "expected"), [((0.9, 0.05, 0.05), 0.9), ((float("nan"), 0.0, 0.0), None), ((0.5, 0.5), None)]
)
def test_an_nli_model_gives_the_probability_of_entailment(row: tuple[float, ...], expected: float | None) -> None:
    judge = EntailmentJudge(Fixed(row))
    found = asyncio.run(judge.judge("?", cases(), SOURCES, deadline=time.monotonic() + 9))
    judge.close()
    assert found[1] == (None if expected is None else {2: expected}) or (found[1] or {}).get(2) == expected


def test_a_backend_without_its_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"support\.weights"):
        build_checker(SupportSettings(backend="nli"))
    with pytest.raises(ConfigError, match=r"support\.backend"):
        build_checker(SupportSettings(backend="generator"))
