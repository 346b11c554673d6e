"""The writers' adapter to Weaviate."""

from __future__ import annotations

from pipeline.index.chunk_store import ChunkStore
from pipeline.index.evidence import Evidence
from pipeline.index.record_store import RecordStore
from pipeline.index.walks import Walks


class WeaviateStore(RecordStore, ChunkStore, Walks, Evidence):
    """``ports.IndexStore`` on Weaviate: one client for the life of the process, opened at first use.

    A call that is not acknowledged whole raises StoreUnavailable within the deadline and is not retried here. A
    missing tenant is empty for reads and created by the first write.
    """
