"""Where a body travels: inside the event up to a limit, else in the body store behind a claim check."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.ports import BodyStore, BodyTree
from schemas.events import ClaimCheck, InlineBody
from schemas.keys import DocumentRef


@dataclass(frozen=True)
class BodyPlacer:
    """Decides by size; sizes in bytes. A source marked erasable has an inline limit of 0."""

    store: BodyStore | None
    inline_limit: int = 65_536
    max_bytes: int = 50_000_000
    tree: BodyTree | None = None  # what lies in the store already

    def inline(self, body: bytes) -> bool:
        """Whether the body rides in the event."""
        return len(body) <= self.inline_limit

    def stored(self, body: bytes) -> bool:
        """Whether the body goes to the store: neither inline nor refused."""
        return self.inline_limit < len(body) <= self.max_bytes

    def place(self, document: DocumentRef, version: int, body: bytes) -> InlineBody | ClaimCheck:
        """The body as an event carries it; a large one is written to the store first. Raises BusUnavailable."""
        if self.inline(body):
            try:
                return InlineBody(text=body.decode("utf-8"))
            except UnicodeDecodeError:
                return InlineBody(base64=base64.b64encode(body).decode("ascii"))
        if self.store is None:
            raise ConfigError("bodies.store", "no body store is configured", "Name one, or raise bodies.inline_limit.")
        path, sha256 = self.store.put(document, version, body)
        return ClaimCheck(path=path, size=len(body), sha256=sha256)

    def remove(self, document: DocumentRef, newest: str | None) -> None:
        """Remove every body of a deleted document, of older versions too. Raises BusUnavailable."""
        if self.tree is not None:
            for path in self.tree.of_document(document):
                self.tree.delete(path)
        elif self.store is not None and newest is not None:
            self.store.delete(newest)
