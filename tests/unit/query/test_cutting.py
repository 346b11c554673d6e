"""Cutting a section around its hit: whole sentences, rows under their header, whole lines of code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunk.chunker import StrategyChunker
from pipeline.extract.extractor import BlockExtractor
from query_service.cutting import cut, joined, locate, measure, units
from query_service.evidence import ends_first
from schemas.generation import ChunkingSpec, EncoderSpec
from tests.unit.query.world import ref


class WordTokens:
    """A token is a word."""

    def count(self, text: str) -> int:
        return len(self.offsets(text)) + 2

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return [m.span() for m in re.finditer(r"\S+", text)]


COUNTER = WordTokens()
TABLE = """Before the table.

| name | port |
| --- | --- |
| alpha | 1001 |
| beta | 1002 |
| gamma | 1003 |
| delta | 1004 |

After the table."""
CODE = """Run this first. It takes a while.

```python
def one():
    return 1


def two():
    return 2
```

Then rest."""


@pytest.mark.requirement("B6")
@given(st.lists(st.integers(), max_size=60))
def test_best_first_second_best_last(ranked: list[int]) -> None:
    out = ends_first(ranked)
    assert sorted(out) == sorted(ranked) and len(out) == len(ranked)
    if len(ranked) <= 2:
        assert out == ranked
    for rank, item in enumerate(ranked):  # zero-based: even from the front, odd from the back
        assert out[rank // 2 if rank % 2 == 0 else len(ranked) - 1 - rank // 2] == item


@pytest.mark.requirement("B6")
@pytest.mark.parametrize(
    ("n", "wanted"), [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 3, 2]), (4, [1, 3, 4, 2]), (5, [1, 3, 5, 4, 2])]
)
def test_the_stated_orders(n: int, wanted: list[int]) -> None:
    assert ends_first(list(range(1, n + 1))) == wanted


@pytest.mark.requirement("B6")
def test_a_table_keeps_its_header_row() -> None:
    at = TABLE.index("| gamma")
    part = cut(TABLE, (at, at + len("| gamma | 1003 |")), 22, COUNTER)
    assert part is not None
    assert part.text.startswith("| name | port |\n| --- | --- |\n") and "| gamma | 1003 |" in part.text
    assert part.tokens <= 22 and all(line.endswith("|") for line in part.text.splitlines())
    assert cut(TABLE, (at, at + 5), 9, COUNTER) is None, "the row and its header are more than that"


@pytest.mark.requirement("B6")
def test_code_is_cut_between_lines_and_stays_fenced() -> None:
    at = CODE.index("    return 2")
    part = cut(CODE, (at, at + len("    return 2")), 7, COUNTER)
    assert part is not None
    assert part.text == "```python\ndef two():\n    return 2\n```"


@pytest.mark.requirement("B6")
def test_prose_is_cut_between_sentences() -> None:
    text = "One is here. Two is here. Three is here. Four is here. Five is here."
    at = text.index("Three")
    part = cut(text, (at, at + 14), 9, COUNTER)
    assert part is not None and part.text == "Two is here. Three is here. Four is here."
    assert cut(text, (at, at + 14), 2, COUNTER) is None
    long = "word " * 50
    part = cut(long, (50, 100), 12, COUNTER)
    assert part is not None and part.tokens <= 12, "a part of an endless sentence stands for itself"


PIECES = st.one_of(
    st.lists(
        st.sampled_from(["Alpha beta.", "Gamma delta epsilon.", "Why not?", "東京です。"]), min_size=1, max_size=5
    ).map(" ".join),
    st.integers(1, 6).map(
        lambda n: "| k | v |\n| --- | --- |\n" + "\n".join(f"| row{i} | {i} |" for i in range(n))
    ),
    st.integers(1, 6).map(lambda n: "```\n" + "\n".join(f"  line {i};" for i in range(n)) + "\n```"),
)  # fmt: skip


@pytest.mark.requirement("B6")
@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=5), st.data(), st.integers(1, 60))
def test_a_part_is_made_of_whole_units_and_holds_the_hit(pieces: list[str], data: st.DataObject, limit: int) -> None:
    text = "\n\n".join(pieces)
    found = units(text)
    assert "".join(text[u.start : u.end] for u in found).split() and all(
        a.end <= b.start for a, b in itertools.pairwise(found)
    )
    unit = data.draw(st.sampled_from(found))
    part = cut(text, (unit.start, unit.end), limit, COUNTER)
    if part is None:
        assert measure(COUNTER, text) > limit
        return
    assert part.tokens == measure(COUNTER, part.text) <= limit
    assert text[unit.start : unit.end] in part.text
    lines = set(text.split("\n"))
    for line in part.text.split("\n"):
        if line.startswith(("|", "  ", "```")):
            assert line in lines
    assert part.text.count("```") % 2 == 0
    if part.text.startswith("|"):
        assert part.text.startswith("| k | v |") or part.text.startswith("| --- ")


@pytest.mark.requirement("B6")
def test_neighbours_that_overlap_are_read_once() -> None:
    shared = "This sentence is repeated."
    assert joined(["First. " + shared, shared + " Last."]) == "First. This sentence is repeated. Last."
    assert joined(["They came in", "in the morning"]) == "They came in\n\nin the morning"
    assert joined(["same text", "same text"]) == "same text"
    assert joined([]) == ""


@pytest.mark.requirement("B6", "A11")
def test_chunks_are_found_in_the_sections_that_chunking_makes() -> None:
    rows = "\n".join(f"| host{i} | 10.0.0.{i} | the role of number {i} |" for i in range(30))
    code = "\n".join(f"call_number_{i}(argument_{i}, other_{i})" for i in range(30))
    prose = " ".join(f"Sentence number {i} tells of the valve {i}." for i in range(30))
    body = (
        f"# Manual\n\n{prose}\n\n## Hosts\n\n| host | address | role |\n| --- | --- | --- |\n{rows}\n\n"
        f"## Code\n\n```python\n{code}\n```\n\n### Small\n\nOne line.\n\n### Other\n\nAnother line.\n"
    )
    spec = ChunkingSpec(child_tokens=60, child_min_tokens=20, child_max_tokens=80, parent_tokens=400)
    extracted = BlockExtractor().extract(body.encode(), "text/markdown")
    made = StrategyChunker("hierarchical", spec, COUNTER, EncoderSpec()).chunk(
        ref("manual"), extracted, title="Manual", facets=""
    )
    assert len(made.chunks) > 10
    for chunk in made.chunks:
        section = made.sections[chunk.section_ordinal].text
        at = locate(section, chunk.text)
        assert at is not None, chunk.text
        last = [line for line in chunk.text.split("\n") if line.strip()][-1].strip()
        assert last in section[at[0] : at[1]]
        assert at[1] - at[0] <= len(chunk.text) + 40, "a repeated header does not stretch it"
        part = cut(section, at, 200, COUNTER)
        assert part is not None and last in part.text
