"""Figures of fidelity: each tells its own loss, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.bench.quality.fidelity import measure
from infra.bench.quality.readers import Unreadable
from infra.bench.quality.scores import Heard, failed, lcs, mean, score, words
from infra.bench.quality.truth import Piece, Truth, load
from infra.errors import InfraError
from pipeline.extract.media import BY_MEDIA, FORMATS
from pipeline.extract.sniff import parse_content_type

CORPUS = Path(__file__).parents[3] / "samples" / "formats"
TRUTH = Truth(
    file="a.md",
    format="Markdown",
    content_type="text/markdown",
    language="en",
    pieces=(
        Piece(kind="heading", text="Quays", path=(), level=1),
        Piece(kind="text", text="The western quay is closed at night.", path=("Quays",)),
        Piece(kind="heading", text="Depths", path=("Quays",), level=2),
        Piece(
            kind="table", text="", path=("Quays", "Depths"), header=1,
            rows=(("Berth", "Depth"), ("N1", "6 m"), ("both shallow", None)),
        ),
        Piece(kind="code", text="a:\n\tb  c\n\nd", path=("Quays", "Depths")),
    ),
    links=("https://quay.example",),
    forbidden=("Accept cookies",),
)  # fmt: skip
ROWS = (("Berth", "Depth"), ("N1", "6 m"), ("both shallow", "both shallow"))
RIGHT = [
    Heard("heading", "Quays"),
    Heard("text", "The western quay is closed (https://quay.example) at night.", ("Quays",)),
    Heard("heading", "Depths", ("Quays",)),
    Heard("table", "| Berth | Depth |\n| N1 | 6 m |\n| both shallow | |", ("Quays", "Depths"), ROWS),
    Heard("code", "a:\n\tb  c\n\nd", ("Quays", "Depths")),
]


@pytest.mark.requirement("A2")
def test_a_whole_reading_has_full_marks() -> None:
    scores = score(TRUTH, RIGHT)
    assert (scores.recall, scores.precision, scores.cells, scores.code, scores.paths) == (1, 1, 1, 1, 1)
    assert (scores.links, scores.leaks) == (1, 0)


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("figure", "at", "other"),
    [
        ("recall", 1, Heard("text", "The western quay is closed (https://quay.example).", ("Quays",))),
        ("precision", 1, Heard("text", "The western quay is closed (https://quay.example) at night. Home", ("Quays",))),
        ("code", 4, Heard("code", "a:\n    b  c\n\nd", ("Quays", "Depths"))),
        ("code", 4, Heard("code", "a: b c d", ("Quays", "Depths"))),
        ("paths", 1, Heard("text", RIGHT[1].text, ("Depths",))),
        ("links", 1, Heard("text", "The western quay is closed at night.", ("Quays",))),
    ],
)
def test_each_loss_shows_in_its_own_figure_alone(figure: str, at: int, other: Heard) -> None:
    whole, scores = score(TRUTH, RIGHT), score(TRUTH, [*RIGHT[:at], other, *RIGHT[at + 1 :]])
    assert getattr(scores, figure) < getattr(whole, figure)
    for name in {"recall", "precision", "cells", "code", "paths", "links"} - {figure}:
        assert getattr(scores, name) == getattr(whole, name), name


@pytest.mark.requirement("A2")
def test_cells_count_in_their_row_and_column() -> None:
    swapped = Heard("table", RIGHT[3].text, RIGHT[3].path, (("Berth", "Depth"), ("6 m", "N1"), ("both shallow", "")))
    assert score(TRUTH, [*RIGHT[:3], swapped, RIGHT[4]]).cells == pytest.approx(3 / 5)
    moved = Heard("table", RIGHT[3].text, RIGHT[3].path, (("Depths of berths", ""), *ROWS))
    assert score(TRUTH, [*RIGHT[:3], moved, RIGHT[4]]).cells == 1
    flat = Heard("text", RIGHT[3].text, RIGHT[3].path)
    assert score(TRUTH, [*RIGHT[:3], flat, RIGHT[4]]).cells == 0


@pytest.mark.requirement("A2")
def test_boilerplate_is_seen_across_lines_and_marks() -> None:
    assert score(TRUTH, [*RIGHT, Heard("text", "**Accept**\ncookies!")]).leaks == 1
    assert score(TRUTH, [*RIGHT, Heard("text", "We accept no cookies")]).leaks == 0


def test_order_counts_and_scripts_without_spaces_count_by_the_letter() -> None:
    assert lcs(["a", "b", "c"], ["c", "a", "b"]) == 2
    assert lcs([], ["a"]) == 0
    assert words("渡し船 и Паром-2") == ["渡", "し", "船", "и", "паром", "2"]


def test_a_file_that_cannot_be_read_counts_as_nothing_found() -> None:
    scores = failed(TRUTH)
    assert (scores.recall, scores.cells, scores.leaks) == (0, 0, 0)
    bare = TRUTH.model_copy(update={"pieces": TRUTH.pieces[:2]})
    assert failed(bare).cells is None
    assert mean([scores, failed(bare), score(TRUTH, RIGHT)]).cells == 0.5


class _Halting:
    name = "halting"

    def read(self, file: Path, content_type: str, ocr: bool) -> list[Heard]:
        if file.suffix == ".org":
            raise Unreadable("no org today")
        return [Heard("text", file.name)]


def test_the_corpus_goes_through_a_reader_file_by_file() -> None:
    seen: list[str] = []
    made = measure(_Halting(), CORPUS, lambda done, total, name: seen.append(name), ocr=False)
    truths = [truth for truth, _ in load(CORPUS)]
    assert seen == [truth.file for truth in truths if not truth.ocr] == [one.file for one in made.files]
    assert {one.error for one in made.files if one.file.endswith(".org")} == {"no org today"}
    assert made.counts()["all"] == len(seen)
    assert set(made.plain()["formats"]) == {truth.format for truth in truths if not truth.ocr} | {"all"}


# -- the corpus --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A2")
def test_the_corpus_has_files_of_every_format_that_is_read() -> None:
    found = load(CORPUS)
    medias = {parse_content_type(truth.content_type)[0] for truth, _ in found}
    assert {form.media for form in FORMATS} <= {BY_MEDIA[media].media for media in medias if media}
    assert len(found) >= 60
    assert sum(file.stat().st_size for _, file in found) <= 6_000_000


@pytest.mark.requirement("A2")
def test_the_corpus_asks_for_everything_that_can_be_lost() -> None:
    pieces = [piece for truth, _ in load(CORPUS) for piece in truth.pieces]
    assert {piece.kind for piece in pieces} == {
        "heading", "text", "item", "quote", "table", "code", "image", "math", "footnote",
    }  # fmt: skip
    assert any("\t" in piece.text and "\n\n" in piece.text for piece in pieces if piece.kind == "code")
    assert any(cell is None for piece in pieces for row in piece.rows for cell in row)
    assert max(piece.depth for piece in pieces) >= 2
    assert sum(bool(truth.forbidden) for truth, _ in load(CORPUS)) >= 30


def test_a_truth_without_its_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "truth").mkdir()
    with pytest.raises(InfraError, match="no corpus"):
        load(tmp_path)
    (tmp_path / "truth" / "a.md.json").write_text(TRUTH.model_dump_json(), encoding="utf-8")
    with pytest.raises(InfraError, match=r"a\.md is missing"):
        load(tmp_path)
    (tmp_path / "truth" / "a.md.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InfraError, match="no truth"):
        load(tmp_path)
