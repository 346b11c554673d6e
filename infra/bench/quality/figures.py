"""What was measured, as tables for people and as one picture for the documentation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console

from infra.commands.output import table

SHOWN = {"recall": "text", "precision": "no noise", "cells": "cells", "code": "code", "paths": "paths"}
_HEADS = ("format", "files", *SHOWN.values(), "links", "leaks")
_OWN, _OTHER, _INK, _FAINT = "#0b6e8a", "#c9803a", "#1d2730", "#d5dce1"
_WIDTH, _LINE, _LEFT = 1180, 27, 150


def show(out: Console, result: Mapping[str, Any]) -> None:
    """Print both tables and what was not measured; ``result`` is the JSON object of a run."""
    readers = result["fidelity"]
    if readers:
        names = " / ".join(f"{one['reader']}" for one in readers)
        out.print(f"[bold]Fidelity[/]: {names}; shares from 0 to 1, of leaks fewer is better", highlight=False)
        made = table(*_HEADS)
        for form, first in readers[0]["formats"].items():
            others = [one["formats"].get(form, {}) for one in readers]
            figures = (" / ".join(_share(other.get(name)) for other in others) for name in (*SHOWN, "links", "leaks"))
            made.add_row(form, str(first["files"]), *figures)
        out.print(made)
        for one in readers:
            for file in one["files"]:
                if file["error"]:
                    out.print(f"{one['reader']} {file['file']}: {file['error']}", highlight=False, markup=False)
    if result["retrieval"]:
        out.print(f"\n[bold]Retrieval[/]: {result['encoder']}, cosine and BM25 fused, 10 hits", highlight=False)
        made = table(
            "questions", "strategy", "nDCG@10", "95 % interval", "Recall@10", "asked", "chunks", "tokens a hit"
        )
        for row in result["retrieval"]:
            ndcg = row["ndcg"]
            made.add_row(
                row["corpus"], row["strategy"], _share(ndcg["mean"]), f"{_share(ndcg['low'])}–{_share(ndcg['high'])}",
                _share(row["recall"]), str(row["questions"]), str(row["chunks"]), f"{row['tokens']:.0f}",
            )  # fmt: skip
        out.print(made)
    for one in result["not_measured"]:
        out.print(f"not measured: {one['corpus']}, {one['strategy']}: {one['why']}", highlight=False, markup=False)
    if result["unstructured"] == "not installed":
        out.print("unstructured: not installed, so nothing is compared with it", highlight=False)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


# -- picture -----------------------------------------------------------------------------------------------------------


def picture(result: Mapping[str, Any]) -> str:
    """An SVG: on the left fidelity of both readers, on the right nDCG@10 of each strategy with its interval."""
    strategies = list(dict.fromkeys(row["strategy"] for row in result["retrieval"]))
    height = 110 + _LINE * max(2 * len(SHOWN) + 4, 2 * len(strategies))
    parts = [*_fidelity(result["fidelity"], result["unstructured"]), *_retrieval(result["retrieval"], strategies)]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="14" role="img" aria-label="Fidelity of extraction and retrieval by strategy">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def _fidelity(readers: Sequence[Mapping[str, Any]], version: str) -> Iterator[str]:
    yield _text(24, 34, "Kept of what the files hold", size=18, bold=True)
    yield _text(24, 56, f"{readers[0]['formats']['all']['files'] if readers else 0} files, mean of all")
    wide = 330
    for n, name in enumerate(SHOWN):
        y = 88 + n * 2.2 * _LINE
        yield _text(_LEFT - 16, y + 20, SHOWN[name], anchor="end")
        for k, reader in enumerate(readers):
            value = reader["formats"]["all"][name] or 0.0
            at = y + k * 21
            yield f'<rect x="{_LEFT}" y="{at}" width="{wide}" height="17" fill="{_FAINT}"/>'
            colour = _OWN if k == 0 else _OTHER
            yield f'<rect x="{_LEFT}" y="{at}" width="{value * wide:.1f}" height="17" fill="{colour}"/>'
            yield _text(_LEFT + wide + 8, at + 14, f"{value:.3f}", colour=colour)
    y = 88 + len(SHOWN) * 2.2 * _LINE + 12
    yield f'<rect x="{_LEFT}" y="{y}" width="14" height="14" fill="{_OWN}"/>'
    yield _text(_LEFT + 20, y + 12, "headwater")
    if len(readers) > 1:
        yield f'<rect x="{_LEFT + 120}" y="{y}" width="14" height="14" fill="{_OTHER}"/>'
        yield _text(_LEFT + 140, y + 12, f"unstructured {version}")


def _retrieval(rows: Sequence[Mapping[str, Any]], strategies: Sequence[str]) -> Iterator[str]:
    left, right = 840, 1140
    yield _text(600, 34, "nDCG@10 by strategy, with 95 % interval", size=18, bold=True)
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    for k, corpus in enumerate(corpora):
        yield f'<circle cx="{606 + k * 160}" cy="51" r="6" fill="{(_OWN, _OTHER)[k % 2]}"/>'
        yield _text(618 + k * 160, 56, corpus)
    low = min((row["ndcg"]["low"] for row in rows), default=0.0)
    low = max(0.0, int(low * 10) / 10)

    def x(value: float) -> float:
        return left + (value - low) / (1 - low) * (right - left)

    bottom = 88 + len(strategies) * 2 * _LINE
    for tick in range(round(low * 10), 11, 1):
        yield f'<line x1="{x(tick / 10):.1f}" x2="{x(tick / 10):.1f}" y1="72" y2="{bottom}" stroke="{_FAINT}"/>'
        yield _text(x(tick / 10), bottom + 16, f"{tick / 10:.1f}", anchor="middle", size=12)
    for n, name in enumerate(strategies):
        y = 92 + n * 2 * _LINE
        yield _text(left - 16, y + 14, name, anchor="end")
        for row in rows:
            if row["strategy"] != name:
                continue
            k = corpora.index(row["corpus"])
            at, colour, ndcg = y + 2 + k * 16, (_OWN, _OTHER)[k % 2], row["ndcg"]
            yield (
                f'<line x1="{x(ndcg["low"]):.1f}" x2="{x(ndcg["high"]):.1f}" y1="{at}" y2="{at}" stroke="{colour}" '
                f'stroke-width="3" opacity="0.45"/><circle cx="{x(ndcg["mean"]):.1f}" cy="{at}" r="5" fill="{colour}"/>'
            )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 14, bold: bool = False, colour: str = _INK
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )
