"""How far the changes of a wiki have been followed. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

MOST_SEEN = 2000
"""Rows remembered inside the overlap; what is forgotten is only told twice."""


class Spreading(BaseModel):
    """A title whose change reaches the pages that transclude it, which are still to be found."""

    model_config = ConfigDict(extra="forbid")

    title: str
    redacted: bool = False


class Cursor(BaseModel):
    """``at`` is a moment of the wiki's clock as it writes it; ``seen`` names rows no older than the overlap.

    While a long answer is read in parts, ``since`` is where it began and ``more`` what to ask next; ``spread_more`` is
    the same for the first ``asked`` of the ``spread`` titles, the first ``apart`` of which are asked for one by one.
    """

    model_config = ConfigDict(extra="forbid")

    at: str
    seen: dict[str, str] = {}  # row: its moment
    since: str | None = None
    more: dict[str, Any] | None = None
    spread: list[Spreading] = []
    asked: int = 0
    apart: int = 0
    spread_more: dict[str, Any] | None = None

    def text(self) -> str:
        """As the contract's cursor."""
        return self.model_dump_json(exclude_defaults=True)

    def remember(self, rows: dict[str, str], since: str) -> None:
        """Take note of rows; those before ``since`` will not come again."""
        kept = {key: at for key, at in (self.seen | rows).items() if at >= since}
        newest = sorted(kept.items(), key=lambda item: item[1])[-MOST_SEEN:]
        self.seen = dict(newest)
