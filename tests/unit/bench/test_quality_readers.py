"""What readers give, brought to one form; the other reader is asked in a child process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from infra.bench.quality.readers import (
    OwnReader,
    PlainUnstructured,
    Unreadable,
    heard_of,
    heard_of_elements,
)
from schemas.documents import Block, ExtractedDocument

FAKE = """
import json, sys
print(json.dumps({"version": "9.9"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["path"].endswith("bad.md"):
        print(json.dumps({"error": "ValueError: bad"}), flush=True)
    else:
        element = {"category": "NarrativeText", "text": asked["path"], "depth": None, "html": None}
        print(json.dumps({"elements": [element]}), flush=True)
"""


def test_our_blocks_stand_under_their_headings() -> None:
    blocks = (
        Block(type="heading", text="One", level=1),
        Block(type="heading", text="Two", level=3),
        Block(type="code", text="x\n\ty"),
        Block(type="heading", text="Three", level=2),
        Block(type="heading", text="Four", level=2),
        Block(type="table", text="| a | b\\|c |\n| --- | --- |\n| 1 | |", header="| a | b\\|c |\n| --- | --- |"),
    )
    heard = heard_of(ExtractedDocument(blocks=blocks, media_type="text/markdown"))
    assert [(one.kind, one.path) for one in heard] == [
        ("heading", ()), ("heading", ("One",)), ("code", ("One", "Two")), ("heading", ("One",)),
        ("heading", ("One",)), ("table", ("One", "Four")),
    ]  # fmt: skip
    assert heard[-1].rows == (("a", "b|c"), ("1", ""))
    assert "---" not in heard[-1].text


def test_elements_nest_by_category_depth_and_merged_cells_keep_their_columns() -> None:
    table = (
        '<table><tr><th rowspan="2">Pump</th><th colspan="2">Hours</th></tr><tr><td>summer</td><td>winter</td></tr>'
        "<tr><td>Ada</td><td>400</td></tr></table>"
    )
    elements: list[dict[str, Any]] = [
        {"category": "Title", "text": "Top", "depth": 0, "html": None},
        {"category": "Title", "text": "Under", "depth": 1, "html": None},
        {"category": "Table", "text": "Pump Hours", "depth": None, "html": table},
        {"category": "Title", "text": "Next", "depth": None, "html": None},
        {"category": "CodeSnippet", "text": "x", "depth": None, "html": None},
    ]
    heard = heard_of_elements(elements)
    assert [one.path for one in heard] == [(), ("Top",), ("Top", "Under"), (), ("Next",)]
    assert heard[2].rows == (("Pump", "Hours", ""), ("", "summer", "winter"), ("Ada", "400", ""))


def test_our_reader_says_why_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Pier\n\nThe pier is long.\n", encoding="utf-8")
    heard = OwnReader().read(tmp_path / "a.md", "text/markdown", ocr=False)
    assert [(one.kind, one.text) for one in heard] == [("heading", "Pier"), ("text", "The pier is long.")]
    (tmp_path / "a.bin").write_bytes(b"\x00\x01\x02" * 50)
    with pytest.raises(Unreadable):
        OwnReader().read(tmp_path / "a.bin", "application/octet-stream", ocr=False)


def test_the_other_reader_answers_from_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text(FAKE, encoding="utf-8")
    monkeypatch.setattr("infra.bench.quality.readers.CHILD", child)
    plain = PlainUnstructured.start(Path(sys.executable))
    assert plain is not None
    assert plain.version == "9.9"
    try:
        page = tmp_path / "a.wiki"
        page.write_text("== A ==", encoding="utf-8")
        assert plain.read(page, "text/x-wiki", ocr=False)[0].text.endswith("a.wiki.txt")
        with pytest.raises(Unreadable, match="ValueError"):
            plain.read(tmp_path / "bad.md", "text/markdown", ocr=False)
        assert plain.read(tmp_path / "c.md", "text/markdown", ocr=False)[0].text.endswith("c.md")
    finally:
        plain.close()
    assert plain.process.poll() is not None


def test_an_environment_without_the_other_reader_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = tmp_path / "unstructured"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('hidden')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert PlainUnstructured.start(None) is None
