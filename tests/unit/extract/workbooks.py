"""Workbooks as the tests write them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import xlsxwriter

from pipeline.extract.media import XLSX
from pipeline.extract.reading import Body, Limits, Reading
from pipeline.extract.sheets import read_xlsx

Write = Callable[[Any], None]


def workbook(write: Write, **options: Any) -> bytes:
    """A workbook as xlsxwriter saves it, after ``write`` has filled it."""
    target = io.BytesIO()
    book = xlsxwriter.Workbook(target, {"in_memory": True, **options})
    write(book)
    book.close()
    return target.getvalue()


def patched(data: bytes, changes: dict[str, Callable[[str], str]], added: dict[str, str] | None = None) -> bytes:
    """The workbook with some of its parts changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, changes[name](text.decode()).encode() if name in changes else text)
        for name, text_added in (added or {}).items():
            new.writestr(name, text_added)
    return target.getvalue()


def read(data: bytes, limits: Limits | None = None) -> Reading:
    return read_xlsx(Body(data=data, media=XLSX, limits=limits or Limits()))


def shape(write: Write) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in read(workbook(write)).blocks]


def one_sheet(rows: list[list[Any]], name: str = "S") -> Write:
    def write(book: Any) -> None:
        sheet = book.add_worksheet(name)
        for number, row in enumerate(rows):
            for column, value in enumerate(row):
                if value is not None:
                    sheet.write(number, column, value)

    return write
