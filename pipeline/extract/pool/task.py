"""What a child is started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.extract.reading import Limits


@dataclass(frozen=True)
class Task:
    """Sizes in bytes, of one document; ``parent`` is the process id of the pool's process."""

    parent: int
    heavy: bool
    memory: int
    file_bytes: int
    reply_bytes: int
    cpu_s: float
    limits: Limits

    def packed(self) -> str:
        """As a command line argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def unpacked(text: str) -> Task:
        """From a command line argument."""
        values = json.loads(text)
        return Task(**{**values, "limits": Limits(**values["limits"])})
