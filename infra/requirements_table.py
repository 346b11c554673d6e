"""Each requirement with the tests that prove it: ``python -m infra.requirements_table [--json] [ID ...]``.

Rows come from the tables of ``docs/requirements.md``, tests from ``@pytest.mark.requirement("A3", "I2")`` read from the
source of the tests without importing them. The exit status is 1 when a row of a delivered issue has no test, when a
mark names no row, or when a mark cannot be read.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "requirements.md"
TESTS = ROOT / "tests"

_ROW = re.compile(r"^\| (?P<id>[A-Z]\d{1,2}) \| (?P<issues>[^|]+) \| (?P<text>.+) \|$")
_FRONT_MATTER = re.compile(r"\A---\n(?P<yaml>.*?)^---\n", re.DOTALL | re.MULTILINE)
_SHOWN_TESTS = 3


@dataclass
class Row:
    """One requirement. ``issues`` are numbers, or the word ``later``."""

    id: str
    issues: tuple[str, ...]
    text: str
    tests: list[str] = field(default_factory=list)


@dataclass
class Report:
    """All rows in the document's order, and what is wrong."""

    rows: list[Row]
    delivered: tuple[str, ...]
    problems: list[str]


def read_document(text: str) -> tuple[list[Row], tuple[str, ...]]:
    """Rows and delivered issues. Raises ValueError on a missing front matter or an id that stands twice."""
    head = _FRONT_MATTER.match(text)
    facts = yaml.safe_load(head["yaml"]) if head else None
    if not isinstance(facts, dict) or not isinstance(facts.get("delivered"), list):
        raise ValueError("docs/requirements.md: the front matter needs 'delivered: [...]', a list of issue numbers")
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        match = _ROW.match(line)
        if match is None:
            continue
        if match["id"] in rows:
            raise ValueError(f"docs/requirements.md: {match['id']} stands twice")
        issues = tuple(part.strip() for part in match["issues"].split(","))
        rows[match["id"]] = Row(match["id"], issues, match["text"])
    return list(rows.values()), tuple(str(number) for number in facts["delivered"])


def collect_marks(source: str, name: str) -> tuple[dict[str, list[str]], list[str]]:
    """Requirement ids with the tests of one file that carry them, and marks that cannot be read."""
    tree = ast.parse(source)
    found: dict[str, list[str]] = {}
    problems: list[str] = []
    claimed: set[ast.Call] = set()

    def give(marks: Iterable[ast.Call], test: str) -> None:
        for mark in marks:
            claimed.add(mark)
            for argument in mark.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    tests = found.setdefault(argument.value, [])
                    if test not in tests:
                        tests.append(test)
                elif f"{name}:{mark.lineno}" not in " ".join(problems):
                    problems.append(f"{name}:{mark.lineno}: ids of a requirement mark are literal strings")

    def visit(body: Sequence[ast.stmt], prefix: str, inherited: list[ast.Call]) -> None:
        marks = inherited + [m for s in body if _is_pytestmark(s) for m in _marks(s)]
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test"):
                own = [m for d in statement.decorator_list for m in _marks(d)]
                give([*marks, *own], f"{prefix}::{statement.name}")
            elif isinstance(statement, ast.ClassDef):
                own = [m for d in statement.decorator_list for m in _marks(d)]
                visit(statement.body, f"{prefix}::{statement.name}", [*marks, *own])

    visit(tree.body, name, [])
    give((m for m in _marks(tree) if m not in claimed), name)  # marks of parameters kept in a list of their own
    return found, problems


def _is_pytestmark(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)


def _marks(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr == "requirement"
            and isinstance(inner.func.value, ast.Attribute)
            and inner.func.value.attr == "mark"
        ):
            yield inner


def report(document: str, sources: Mapping[str, str]) -> Report:
    """Join the document's rows with the marks of test sources (by file name)."""
    rows, delivered = read_document(document)
    by_id = {row.id: row for row in rows}
    problems: list[str] = []
    for name, source in sorted(sources.items()):
        found, unreadable = collect_marks(source, name)
        problems += unreadable
        for requirement, tests in found.items():
            if requirement in by_id:
                by_id[requirement].tests += tests
            else:
                problems += [
                    f"{test}: names {requirement!r}, which is no row of docs/requirements.md" for test in tests
                ]
    for row in rows:
        due = [issue for issue in row.issues if issue in delivered]
        if due and not row.tests:
            problems.append(f"{row.id}: has no test, although issue {due[0]} is delivered")
    return Report(rows, delivered, problems)


def read_tests(folder: Path = TESTS) -> dict[str, str]:
    """Sources of all test files by their path in the repository."""
    return {
        file.relative_to(folder.parent).as_posix(): file.read_text(encoding="utf-8")
        for file in folder.rglob("test_*.py")
    }


def show(result: Report, console: Console, wanted: Sequence[str] = ()) -> None:
    """Print the table: the first tests of each row, or all tests of the wanted rows."""
    table = Table("id", "issue", "requirement", box=None, pad_edge=False)
    table.add_column("tests", overflow="fold")
    for row in result.rows:
        if wanted and row.id not in wanted:
            continue
        shown = row.tests if wanted else row.tests[:_SHOWN_TESTS]
        rest = len(row.tests) - len(shown)
        tests = "\n".join([*(test if wanted else test.rsplit("::", 1)[-1] for test in shown), *_more(rest)])
        text = row.text if wanted or len(row.text) <= 90 else f"{row.text[:89]}…"
        table.add_row(row.id, ", ".join(row.issues), _plain(text), tests or "[dim]none[/dim]")
    console.print(table)
    covered = sum(1 for row in result.rows if row.tests)
    console.print(
        f"{covered} of {len(result.rows)} rows have tests; delivered: {', '.join(result.delivered) or 'none'}"
    )


def _more(count: int) -> list[str]:
    return [f"… and {count} more"] if count > 0 else []


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def as_json(result: Report) -> str:
    """The report as one JSON document."""
    rows = [{"id": r.id, "issues": list(r.issues), "requirement": r.text, "tests": r.tests} for r in result.rows]
    return json.dumps(
        {"delivered": list(result.delivered), "rows": rows, "problems": result.problems, "ok": not result.problems},
        ensure_ascii=False,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit status 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m infra.requirements_table", description="Requirements and tests.")
    parser.add_argument("ids", nargs="*", help="show these rows only, with all their tests")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(arguments)
    try:
        result = report(DOCUMENT.read_text(encoding="utf-8"), read_tests())
    except (OSError, ValueError, SyntaxError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        print(as_json(result))
    else:
        show(result, Console(soft_wrap=False), options.ids)
        for problem in result.problems:
            print(problem, file=sys.stderr)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
