"""How much is measured: in full, or a little of everything to see that it works."""

from __future__ import annotations

from dataclasses import dataclass

from infra.bench.session import Session
from infra.bench.sizes import QUICK


@dataclass(frozen=True)
class RankingSizes:
    """Counts; of searches by number of clients, number of principals and way of reranking."""

    questions: int = 150  # of each set, at most
    off: int = 60
    fast: int = 40
    full: int = 16
    flood_clients: int = 50
    flood_s: float = 20.0
    backfill_documents: int = 1_500

    def searches(self, rerank: str) -> int:
        """For one cell."""
        return {"off": self.off, "fast": self.fast, "full": self.full}[rerank]


FULL = RankingSizes()
SMALL = RankingSizes(questions=4, off=4, fast=4, full=4, flood_clients=8, flood_s=1.0, backfill_documents=40)


def sizes_of(session: Session) -> RankingSizes:
    """Those of the run."""
    return SMALL if session.sizes == QUICK else FULL
