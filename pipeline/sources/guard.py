"""When is so much missing that it is taken for a fault rather than for deletions?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeletionGuard:
    """Above ``share`` of the live documents *and* above ``count``, missing documents are hidden, not deleted."""

    share: float = 0.10
    count: int = 20

    def suspicious(self, missing: int, live: int) -> bool:
        """``missing`` of ``live`` documents (those before the deletion) are no longer there."""
        return missing > self.count and missing > self.share * live
