"""Keys of the last events of a source, which its cursor carries: a repeat is known after a restart as well.

Without them a repeat that comes late, after newer events of the same document, would bring the older state back.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from schemas.keys import canonical_json

REMEMBERED = 200
_MARK = "events:"


def key_of(source: str, id_: str, content: str) -> str:
    """A short name of an event and what it says: 96 bits of a hash."""
    digest = hashlib.sha256(canonical_json([source, id_, content]).encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest[:12]).decode()


@dataclass(frozen=True)
class SeenKeys:
    """The newest keys, oldest first. Immutable: a transaction that fails leaves the old ones."""

    keys: tuple[str, ...] = ()

    @staticmethod
    def read(position: str) -> SeenKeys:
        """As a cursor carries them; none where it carries something else."""
        if not position.startswith(_MARK):
            return SeenKeys()
        return SeenKeys(tuple(position.removeprefix(_MARK).split(",")))

    def position(self) -> str:
        """For a cursor; empty where no event came yet."""
        return _MARK + ",".join(self.keys) if self.keys else ""

    def with_key(self, key: str) -> SeenKeys:
        """And one more; the oldest goes where there are too many."""
        return SeenKeys((*self.keys, key)[-REMEMBERED:])

    def __contains__(self, key: object) -> bool:
        return key in self.keys
