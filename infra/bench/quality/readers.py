"""The two readers that are compared, each giving the same plain form: ours, and ``unstructured`` in a child process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from infra.bench.quality.scores import Heard
from pipeline.errors import DocumentError
from schemas.documents import Block, ExtractedDocument

CHILD = Path(__file__).with_name("plain_unstructured.py")
# Its types go by the name; these endings are the nearest that it knows.
_KNOWN_AS = {".confluence": ".html", ".wiki": ".txt", ".textile": ".txt", ".adoc": ".txt"}
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"^\|(?: ?:?-+:? ?\|)+$")


class Unreadable(Exception):
    """The reader refuses or breaks on a file; the message says how."""


class Reader(Protocol):
    """Reads a file into blocks. Raises Unreadable."""

    name: str

    def read(self, file: Path, content_type: str, ocr: bool) -> list[Heard]: ...


class OwnReader:
    """Headwater's extract stage, in this process."""

    name = "headwater"

    def __init__(self) -> None:
        from pipeline.extract import BlockExtractor

        self._extractor = BlockExtractor()

    def read(self, file: Path, content_type: str, ocr: bool) -> list[Heard]:
        """Blocks of the file under its declared type."""
        del ocr  # it finds that out itself
        return heard_of(self.extract(file, content_type))

    def extract(self, file: Path, content_type: str) -> ExtractedDocument:
        """The document itself. Raises Unreadable."""
        try:
            return self._extractor.extract(file.read_bytes(), content_type, path=file.name)
        except DocumentError as error:
            raise Unreadable(str(error)) from error


def heard_of(extracted: ExtractedDocument) -> list[Heard]:
    """Blocks with the headings above them."""
    found: list[Heard] = []
    above: list[tuple[int, str]] = []
    for block in extracted.blocks:
        path = tuple(text for _, text in above)
        if block.type == "heading":
            while above and above[-1][0] >= block.level:
                above.pop()
            found.append(Heard("heading", block.text, tuple(text for _, text in above)))
            above.append((block.level, block.text))
        elif block.type == "table":
            found.append(Heard("table", _unruled(block.text), path, tuple(_pipe_rows(block))))
        else:
            found.append(Heard("code" if block.type == "code" else "text", block.text, path))
    return found


def _unruled(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not _RULE.match(line))


def _pipe_rows(block: Block) -> Iterator[tuple[str, ...]]:
    for line in block.text.split("\n"):
        if line.startswith("|") and not _RULE.match(line):
            yield tuple(cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1])


@dataclass
class PlainUnstructured:
    """``unstructured`` as it comes: partition by type, strategy fast for PDF, ocr_only for scans and images."""

    process: subprocess.Popen[str]
    version: str
    folder: Path
    name: str = "unstructured"

    @classmethod
    def start(cls, python: Path | None) -> PlainUnstructured | None:
        """In another environment's Python, else in this one; None where ``unstructured`` is not installed there."""
        process = subprocess.Popen(
            [str(python or sys.executable), str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        version = json.loads(line).get("version") if line else None
        if version is None:
            process.kill()
            process.communicate()
            return None
        return cls(process, str(version), Path(tempfile.mkdtemp(prefix="quality-")))

    def read(self, file: Path, content_type: str, ocr: bool) -> list[Heard]:
        """Elements of the file; headings nest by their category depth, as their order says."""
        del content_type  # it goes by the file's name
        known = _KNOWN_AS.get(file.suffix)
        if known:
            file = Path(shutil.copyfile(file, self.folder / f"{file.name}{known}"))
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"path": str(file.absolute()), "ocr": ocr}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Unreadable("the process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Unreadable(str(answer["error"]))
        return heard_of_elements(answer["elements"])

    def close(self) -> None:
        """End the child and remove its folder."""
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def heard_of_elements(elements: Sequence[dict[str, Any]]) -> list[Heard]:
    """Elements as blocks; a Title is a heading of its depth."""
    found: list[Heard] = []
    above: list[tuple[int, str]] = []
    for element in elements:
        path = tuple(text for _, text in above)
        text = str(element["text"])
        if element["category"] == "Title":
            depth = int(element["depth"] or 0)
            while above and above[-1][0] >= depth:
                above.pop()
            found.append(Heard("heading", text, tuple(t for _, t in above)))
            above.append((depth, text))
        elif element["category"] == "Table" and element["html"]:
            found.append(Heard("table", text, path, _html_rows(str(element["html"]))))
        else:
            found.append(Heard("code" if element["category"] == "CodeSnippet" else "text", text, path))
    return found


def _html_rows(markup: str) -> tuple[tuple[str, ...], ...]:
    """Rows of cells; a merged cell's words stand in its first place, blanks in the others."""
    from lxml import html

    rows: dict[tuple[int, int], str] = {}
    for r, row in enumerate(html.fragment_fromstring(markup, create_parent="div").iter("tr")):
        at = 0
        for cell in row.iterchildren("td", "th"):
            while (r, at) in rows:
                at += 1
            down, across = (min(_whole(cell.get(name)), 100) for name in ("rowspan", "colspan"))
            for dr in range(down):
                for dc in range(across):
                    rows[r + dr, at + dc] = " ".join(cell.itertext()) if (dr, dc) == (0, 0) else ""
            at += across
    height = max((r for r, _ in rows), default=-1) + 1
    width = max((c for _, c in rows), default=-1) + 1
    return tuple(tuple(rows.get((r, c), "") for c in range(width)) for r in range(height))


def _whole(value: str | None) -> int:
    return max(1, int(value)) if value and value.isdigit() else 1
