"""What principals gain waits for the documents that it opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.ports import SourceMembership
from pipeline.sources.changes import Change
from pipeline.sources.ledger import Ledger


@dataclass
class _Gains:
    """The newest access state, and by partition the content that must be applied first (None until that is known)."""

    memberships: list[SourceMembership]
    undecided: frozenset[str]
    ends: dict[int, int] | None = None


class Grants:
    """What principals gain, as the newest access state says. It waits for the documents that were seen with it.

    A folder that opens shows at once what the index holds of its documents. So their new places and texts are on the
    log first, and texts that replace older ones are indexed: an old text was meant for the readers of its day.
    """

    def __init__(self, ledger: Ledger, applied: Callable[[], dict[int, int] | None] | None) -> None:
        self._ledger, self._applied = ledger, applied
        self._gains: _Gains | None = None

    @property
    def waiting(self) -> bool:
        """Whether something is still to be given."""
        return self._gains is not None

    def take(self, memberships: list[SourceMembership], undecided: frozenset[str]) -> None:
        """The access state as it is now; what it takes away was written already."""
        self._gains = _Gains(memberships, undecided)

    def forget(self) -> None:
        """Nothing is given before the source was asked again."""
        self._gains = None

    def ready(self, replaced_ends: Mapping[int, int]) -> list[Change]:
        """What is given now. Call it when no document is left to be read whose older state it would open.

        ``replaced_ends``: by partition the offset after the last content event that replaces an older text.
        """
        gains = self._gains
        if gains is None:
            return []
        if gains.ends is None:
            gains.ends = dict(replaced_ends)
        if gains.ends and self._applied is not None:
            applied = self._applied()
            if applied is None or any(applied.get(partition, 0) < end for partition, end in gains.ends.items()):
                return []
        self._gains = None
        return self._ledger.memberships(gains.memberships, whole=True, undecided=gains.undecided)
