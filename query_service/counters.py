"""Token counters of generations: one each, loaded at first use in a thread of its own and kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pipeline.errors import ConfigError
from pipeline.ports import TokenCounter
from schemas.generation import Generation

log = logging.getLogger("headwater.query.evidence")

LoadCounter = Callable[[Generation], TokenCounter]


class Counters:
    """Counts with the tokenizer by which the generation's documents were cut."""

    def __init__(self, load: LoadCounter) -> None:
        self._load = load
        self._kept: dict[str, TokenCounter] = {}
        self._lock = asyncio.Lock()

    async def of(self, generation: Generation) -> TokenCounter:
        """The generation's counter; where its tokenizer is not on this machine, an estimate from above."""
        key = generation.encoder.model_dump_json()
        if key not in self._kept:
            async with self._lock:
                if key not in self._kept:
                    self._kept[key] = await asyncio.to_thread(self._loaded, generation)
        return self._kept[key]

    def _loaded(self, generation: Generation) -> TokenCounter:
        try:
            return self._load(generation)
        except ConfigError as error:
            log.warning("tokens of evidence are estimated: %s", error)
            return estimated(generation)


def estimated(generation: Generation) -> TokenCounter:
    """Where the generation's own tokenizer cannot be asked: an estimate from above."""
    from pipeline.embed.tokens import EstimatedTokens

    return EstimatedTokens()
