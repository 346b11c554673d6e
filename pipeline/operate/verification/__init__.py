"""Proof that a generation holds what the log says, shows each person what they may see, and ranks no worse.

wait for the log's end ▸ coverage ▸ chunks, sections, vectors ▸ permissions ▸ searches in the shadow ▸ verdict
"""

from pipeline.operate.verification.verify import verify, write

__all__ = ["verify", "write"]
