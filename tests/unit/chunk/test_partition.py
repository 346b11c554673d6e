"""Cuts: never too large, maximal, and decided nearby."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunk.partition import content_hash, partition

ITEMS = st.lists(
    st.tuples(st.integers(1, 120), st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1))), min_size=1, max_size=80
)


@pytest.mark.requirement("A4")
@settings(max_examples=200, deadline=None)
@given(ITEMS, st.integers(20, 300), st.integers(0, 100))
def test_pieces_fit_and_no_two_neighbours_could_be_one(
    items: list[tuple[int, tuple[int, int]]], limit: int, least: int
) -> None:
    sizes = [size for size, _ in items]
    cuts = partition(sizes, [priority for _, priority in items], limit, least)
    edges = [0, *cuts, len(sizes)]
    assert edges == sorted(set(edges)) or len(sizes) == 0
    pieces = [sizes[a:b] for a, b in pairwise(edges)]
    assert all(sum(piece) <= limit or len(piece) == 1 for piece in pieces)
    assert all(sum(a) + sum(b) > limit for a, b in pairwise(pieces))


@pytest.mark.requirement("A4")
def test_what_fits_twice_gets_two_pieces_at_the_strongest_place_of_fair_size() -> None:
    sizes = [10, 60, 60, 60, 60]
    priorities = [(0, 0), (0, 1), (1, 5), (0, 9), (1, 3)]
    assert partition(sizes, priorities, 150, 80) == [3]
    assert partition(sizes, priorities, 250, 80) == []


@pytest.mark.requirement("A4", "I6")
def test_far_cuts_do_not_depend_on_an_edit() -> None:
    rng = random.Random(5)
    sizes = [rng.randint(5, 60) for _ in range(400)]
    priorities = [(rng.randint(0, 1), rng.getrandbits(64)) for _ in sizes]
    cuts = partition(sizes, priorities, 200)
    for at in range(20, 380, 7):
        grown = partition([*sizes[:at], sizes[at] + 40, *sizes[at + 1 :]], priorities, 200)
        moved = set(cuts) ^ set(grown)
        assert all(abs(place - at) < 60 for place in moved), (at, moved)


@pytest.mark.requirement("A4")
def test_a_priority_is_that_of_the_opening_words() -> None:
    opening = "The gateway answers within four seconds"
    assert content_hash(f"{opening} on weekdays.") == content_hash(f"{opening.upper()}  on Sundays.")
    assert content_hash("The gateway answers") != content_hash("A gateway answers")
