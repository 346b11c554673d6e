"""The arithmetic of ``headwater size`` and what it prints."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from infra.cli import build
from infra.commands.size import count, measure
from pipeline.operate import sizing
from schemas.generation import IndexSpec, TierSpec

PLAIN = IndexSpec(
    hot=TierSpec(max_connections=16, ef_construction=64, ef=96),
    cold=TierSpec(max_connections=32, ef_construction=128, ef=128),
)


@pytest.mark.requirement("D8")
def test_raw_vectors_are_chunks_by_dimension_by_width() -> None:
    large, small = sizing.vector_bytes(2_000_000, 1536), sizing.vector_bytes(2_000_000, 384)
    assert large == 12_288_000_000
    assert small == 3_072_000_000
    assert large / small == 4
    assert sizing.vector_bytes(2_000_000, 1536, 2) == 6_144_000_000


@pytest.mark.requirement("D8")
def test_the_quantised_copy_is_a_byte_a_dimension_and_a_little() -> None:
    assert sizing.quantised_bytes(2_000_000, 384) == 2_000_000 * 400
    assert sizing.quantised_bytes(0, 384) == 0


@pytest.mark.requirement("D8")
@pytest.mark.parametrize(
    ("ids", "width"), [(1, 2), (65_536, 2), (65_537, 3), (2**24, 3), (2**24 + 1, 4), (2**40 + 1, 8)]
)
def test_links_are_as_wide_as_the_highest_id(ids: int, width: int) -> None:
    assert sizing.link_bytes(ids) == width


@pytest.mark.requirement("D8")
def test_the_graph_has_twice_m_links_below_and_m_above() -> None:
    # 31,000 nodes, M 32: 64 links below, 1/31 of the nodes above with 32 links; two bytes a link
    links = 31_000 * 64 + 1_000 * 32
    assert sizing.graph_bytes(31_000, 32) == links * 2 + 31_000 * sizing.NODE
    assert sizing.graph_bytes(0, 32) == 0
    assert sizing.graph_bytes(31_000, 64) > sizing.graph_bytes(31_000, 32)


@pytest.mark.requirement("D8")
def test_an_estimate_adds_its_parts_for_each_generation_kept() -> None:
    made = sizing.estimate(2_000_000, 384, hot=50_000)
    parts = {line.name: line for line in made.lines}
    assert made.vectors == parts["raw vectors"].disk == 3_072_000_000
    assert parts["raw vectors"].memory == 50_000 * 384 * 4  # the cold tier searches its quantised copy
    assert parts["quantised copy"].memory == 1_950_000 * 400
    assert parts["graph"].memory == sizing.graph_bytes(50_000, 16) + sizing.graph_bytes(1_950_000, 32)
    assert parts["postings"].disk == 2_000_000 * sizing.TERMS * sizing.POSTING
    assert parts["records"].disk == sizing.record_bytes(2_000_000)
    assert made.memory == sum(line.memory for line in made.lines)
    two = sizing.estimate(2_000_000, 384, hot=50_000, generations=2)
    assert (two.memory, two.disk) == (2 * made.memory, 2 * made.disk)


@pytest.mark.requirement("D8")
def test_without_quantisation_all_raw_vectors_are_in_memory() -> None:
    parts = {line.name: line for line in sizing.estimate(100_000, 384, index=PLAIN).lines}
    assert parts["raw vectors"].memory == 100_000 * 384 * 4
    assert parts["quantised copy"].memory == 0


@pytest.mark.requirement("D8")
def test_the_hot_tier_takes_what_there_is_up_to_its_limit() -> None:
    small = {line.name: line.memory for line in sizing.estimate(1_000, 384).lines}
    assert small["quantised copy"] == 0
    assert small["raw vectors"] == 1_000 * 384 * 4


@pytest.mark.requirement("D8")
def test_retrievals_share_of_an_answer() -> None:
    assert sizing.retrieval_share(40, 3.04) == pytest.approx(0.013, abs=0.0002)


@pytest.mark.requirement("D8")
def test_the_command_prints_the_exact_figures() -> None:
    answer = CliRunner().invoke(build(), ["size", "--chunks", "2000000", "--dimension", "1536", "--json"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)
    assert said["estimates"][0]["vectors"] == 12_288_000_000
    assert said["measured"] is None
    assert said["retrieval"]["share"] == pytest.approx(0.0132)
    people = CliRunner().invoke(build(), ["size", "--chunks", "2000000", "--dimension", "384"])
    assert "3,072,000,000 bytes" in people.output
    assert "1.3 %" in people.output


def test_counts_are_of_the_namespace_by_tier_and_generation() -> None:
    shards = [
        {"class": "My_ns_Hot_minilm", "objectCount": 5, "loaded": True},
        {"class": "My_ns_Hot_minilm", "objectCount": 7, "loaded": True},
        {"class": "My_ns_Cold_minilm", "objectCount": 90, "loaded": False},
        {"class": "My_ns_Records_minilm", "objectCount": 4, "loaded": True},
        {"class": "Other_Hot_minilm", "objectCount": 1000, "loaded": True},
    ]
    counts, loaded = count({"nodes": [{"shards": shards}, {"shards": None}]}, "my-ns")
    assert counts == {("Hot", "minilm"): 12, ("Cold", "minilm"): 90}
    assert loaded == 4


def test_the_process_is_measured_where_it_is_ours() -> None:
    held = [sizing.estimate(1_000, 384), sizing.estimate(500, 768)]
    assert measure(None, held, 0) is None
    found = measure(os.getpid(), held, 4)
    assert found is not None
    assert 0 < found.private <= found.resident
    assert found.expected == sizing.process_bytes(held[0].memory + held[1].memory, 4, 1_500)
    assert found.ratio == pytest.approx(found.private / found.expected)


@pytest.mark.requirement("D8")
@pytest.mark.parametrize(
    ("hot", "cold", "index", "measured"),
    [(0, 0, None, 50), (8_000, 0, None, 164), (20_000, 80_000, None, 356), (20_000, 80_000, PLAIN, 734)],
    ids=["empty", "just written", "quantised", "plain"],
)
def test_expected_memory_is_within_a_fifth_of_what_was_measured(
    hot: int, cold: int, index: IndexSpec | None, measured: int
) -> None:
    live = sizing.estimate(hot + cold, 384, hot=hot, index=index).memory
    assert sizing.process_bytes(live, 8, hot + cold) == pytest.approx(measured * 1_000_000, rel=0.2)
