"""What one page of a search hands to the next: the ranking that is left and what was shown, sealed."""

from __future__ import annotations

from collections.abc import Sequence

from query_service.outcome import Ranked


def by_date(ranked: Sequence[Ranked], *, newest: bool) -> list[Ranked]:
    """Ordered by last update at the source; what nobody knows the date of comes last, equal dates keep their order."""

    def key(item: Ranked) -> tuple[bool, int]:
        at = item.manifest.updated_at
        return at is None, 0 if at is None else -at if newest else at

    return sorted(ranked, key=key)
