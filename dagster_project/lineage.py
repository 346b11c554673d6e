"""What exists without Dagster: sources, the log, the records of who may read, the index that searches use.

Consumers keep them up to date by themselves. They stand in the graph so that each run shows what it works on.
"""

from __future__ import annotations

from collections.abc import Iterable

from dagster import AssetKey, AssetSpec, Definitions

OWNER = "team:search-operations"

SOURCE_DOCUMENTS = AssetSpec(
    "source_documents",
    group_name="sources",
    kinds={"file"},
    owners=[OWNER],
    description="Documents where people write them. A source's owner reads them and appends what changed.",
)
CHANGE_LOG = AssetSpec(
    "change_log",
    deps=[SOURCE_DOCUMENTS],
    group_name="sources",
    kinds={"kafka"},
    owners=[OWNER],
    description=(
        "Topics content, access and membership: the last event of each document, with its whole state. Every index is "
        "a view of it."
    ),
)
ACCESS_RECORDS = AssetSpec(
    "access_records",
    deps=[CHANGE_LOG],
    group_name="health",
    kinds={"weaviate"},
    owners=[OWNER],
    description="Collections Access and Principals: who may read what. Every search is checked against them.",
)
ACTIVE_INDEX = AssetSpec(
    "active_index",
    deps=["generation_verification", ACCESS_RECORDS],
    group_name="health",
    kinds={"weaviate"},
    owners=[OWNER],
    description="The generation that searches use now: its hot and cold chunks, sections and manifests.",
)


def defs_of(sources: Iterable[AssetKey], problem: str | None = None) -> Definitions:
    """With these sources before the log. ``problem``: why the settings do not say which there are."""
    documents = SOURCE_DOCUMENTS
    if problem is not None:
        documents = documents.merge_attributes(metadata={"settings that cannot be read": problem})
    log = CHANGE_LOG.merge_attributes(deps=sources)
    return Definitions(assets=[documents, log, ACCESS_RECORDS, ACTIVE_INDEX])
