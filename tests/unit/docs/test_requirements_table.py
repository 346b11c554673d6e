"""The table of requirements: rows, marks, and what makes it fail."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from infra import requirements_table
from infra.requirements_table import DOCUMENT, collect_marks, main, read_document, read_tests, report

DOCUMENT_TEXT = textwrap.dedent(
    """\
    ---
    delivered: [3]
    ---
    # Requirements

    | id | issue | requirement |
    | --- | --- | --- |
    | A1 | 3, 5 | Change events reach the log. |
    | A2 | 6 | Extraction keeps `a \\| b` tables. |
    | B1 | later | Something. |
    """
)


def test_rows_carry_issues_and_text() -> None:
    rows, delivered = read_document(DOCUMENT_TEXT)
    assert [(r.id, r.issues) for r in rows] == [("A1", ("3", "5")), ("A2", ("6",)), ("B1", ("later",))]
    assert rows[0].text == "Change events reach the log."
    assert delivered == ("3",)


@pytest.mark.parametrize(
    "text",
    ["", "# no front matter", "---\ndelivered: 3\n---\n", "---\nother: []\n---\n", "---\n- 3\n---\n"],
)
def test_front_matter_is_needed(text: str) -> None:
    with pytest.raises(ValueError, match="delivered"):
        read_document(text)


def test_a_row_stands_once() -> None:
    with pytest.raises(ValueError, match="A1 stands twice"):
        read_document(DOCUMENT_TEXT + "| A1 | 3 | Again. |\n")


def test_marks_on_functions_classes_modules_and_parameters_are_found() -> None:
    source = textwrap.dedent(
        """
        import pytest
        pytestmark = [pytest.mark.slow, pytest.mark.requirement("M1")]
        CASES = [pytest.param(1, marks=pytest.mark.requirement("P2"))]

        @pytest.mark.requirement("A1", "A2")
        def test_one(): ...

        @pytest.mark.requirement("C1")
        class TestMany:
            pytestmark = pytest.mark.requirement("C2")

            @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("P1"))])
            async def test_two(self, x): ...

            def helper(self): ...

        @pytest.mark.parametrize("x", CASES)
        def test_three(x): ...
        """
    )
    found, problems = collect_marks(source, "tests/t.py")
    assert problems == []
    every = ["tests/t.py::test_one", "tests/t.py::TestMany::test_two", "tests/t.py::test_three"]
    assert found == {
        "M1": every,
        "A1": every[:1],
        "A2": every[:1],
        "C1": every[1:2],
        "C2": every[1:2],
        "P1": every[1:2],
        "P2": ["tests/t.py"],
    }


@pytest.mark.parametrize("argument", ["NAME", "*IDS", "f'A{1}'", "1"])
def test_a_mark_that_cannot_be_read_is_a_problem(argument: str) -> None:
    source = f"import pytest\n@pytest.mark.requirement({argument})\ndef test_x(): ...\n"
    _, problems = collect_marks(source, "tests/t.py")
    assert problems == ["tests/t.py:2: ids of a requirement mark are literal strings"]


def test_a_mark_that_names_no_row_is_a_problem() -> None:
    source = 'import pytest\n@pytest.mark.requirement("A1", "Z9")\ndef test_x(): ...\n'
    result = report(DOCUMENT_TEXT, {"tests/t.py": source})
    assert result.problems == ["tests/t.py::test_x: names 'Z9', which is no row of docs/requirements.md"]


def test_only_bare_rows_of_delivered_issues_are_problems() -> None:
    assert report(DOCUMENT_TEXT, {}).problems == ["A1: has no test, although issue 3 is delivered"]
    assert report(DOCUMENT_TEXT.replace("[3]", "[]"), {}).problems == []
    assert len(report(DOCUMENT_TEXT.replace("[3]", "[5, 6]"), {}).problems) == 2


def test_command_shows_table_and_json_and_fails_on_problems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "requirements.md"
    document.write_text(DOCUMENT_TEXT, encoding="utf-8")
    monkeypatch.setattr(requirements_table, "DOCUMENT", document)
    monkeypatch.setattr(requirements_table, "read_tests", dict)
    assert main([]) == 1
    shown = capsys.readouterr()
    assert "0 of 3 rows have tests; delivered: 3" in shown.out
    assert "A1: has no test" in shown.err
    assert main(["--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["rows"][1] == {
        "id": "A2",
        "issues": ["6"],
        "requirement": r"Extraction keeps `a \| b` tables.",
        "tests": [],
    }
    document.write_text(DOCUMENT_TEXT.replace("[3]", "[]"), encoding="utf-8")
    assert main(["A1"]) == 0
    document.write_text("nothing", encoding="utf-8")
    assert main([]) == 1


def test_the_real_document_holds_every_row_and_the_real_marks_fit_it() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows, _ = read_document(text)
    counts = {"A": 11, "B": 14, "C": 8, "D": 8, "E": 6, "I": 13}
    expected = [f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)]
    assert [r.id for r in rows] == expected + [f"F{n:02}" for n in range(1, 27)]
    assert all(re.fullmatch(r"\d+|later", issue) for row in rows for issue in row.issues)
    result = report(text, read_tests())
    assert result.problems == []
