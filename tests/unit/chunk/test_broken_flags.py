"""Rows of flags: the time they take, and where they are cut."""

from __future__ import annotations

import time

import pytest

from pipeline.chunk.graphemes import cut_at, first_end
from tests.unit.chunk.support import SMALL, STRATEGIES, body, chunked, paragraph

pytestmark = pytest.mark.requirement("A4")
FLAGS = "\U0001f1e9\U0001f1ea"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_thirty_thousand_flags_are_cut_between_flags_in_linear_time(strategy: str) -> None:
    text = FLAGS * 30_000
    began = time.process_time()
    document = chunked(paragraph(text), strategy=strategy, overlap=0.0, **SMALL)
    assert time.process_time() - began < 15
    assert "".join(body(chunk) for chunk in document.chunks) == text
    assert all(body(chunk).startswith(FLAGS) and len(body(chunk)) % 2 == 0 for chunk in document.chunks)


def test_a_place_is_found_in_constant_time_wherever_the_piece_begins() -> None:
    text = FLAGS * 50_000
    began = time.process_time()
    for floor in (0, 10, 90_000):
        for at in (floor + 1, floor + 2001, 99_999):
            assert cut_at(text, at, floor) == at - 1
            assert cut_at(text, at + 1, floor) == at + 1
    assert first_end(text, 99_998, 100_000) == 100_000 and first_end(text, 0, 100_000) == 2
    assert time.process_time() - began < 6


def test_a_cluster_of_any_length_ends_where_it_ends() -> None:
    text = "e" + "\u0301" * 1000 + "x"
    assert first_end(text, 0, len(text)) == 1001
    assert first_end(text, 0, 500) == 500 and first_end(text, 1001, len(text)) == 1002
