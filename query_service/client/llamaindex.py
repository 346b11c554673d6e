"""LlamaIndex: a retriever over a client. Needs the extra ``llamaindex``."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from query_service.client.clients import AsyncHeadwaterClient, HeadwaterClient
from query_service.client.passages import metadata, score_of
from schemas.api import SearchHit, SearchResponse

SHOWN = ("title", "heading_path", "source", "url", "page", "updated_at")  # of the metadata, to a model


class HeadwaterRetriever(BaseRetriever):
    """Passages as nodes, best first: ``node_id`` is the chunk's, ``metadata`` as LangChain's retriever has it.

    With ``client`` it blocks, with ``aclient`` it is awaited; without ``aclient`` awaiting uses ``client`` in a thread.
    ``options`` are further fields of a search. A query bundle's own embedding is not used: the service embeds.
    Raises ``query_service.client.HeadwaterError``.
    """

    def __init__(
        self,
        client: HeadwaterClient | None = None,
        aclient: AsyncHeadwaterClient | None = None,
        *,
        k: int = 10,
        options: dict[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._client, self._aclient = client, aclient
        self._fields: dict[str, Any] = {"k": k, **(options or {})}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._client is None:
            raise ValueError("client: the retriever has none that blocks; give one, or await it")
        return _nodes(self._client.search(query_bundle.query_str, **self._fields))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._aclient is None:
            return await asyncio.to_thread(self._retrieve, query_bundle)
        return _nodes(await self._aclient.search(query_bundle.query_str, **self._fields))


def _nodes(reply: SearchResponse) -> list[NodeWithScore]:
    return [NodeWithScore(node=_node(hit), score=score_of(hit)) for hit in reply.hits]


def _node(hit: SearchHit) -> TextNode:
    facts = metadata(hit)
    hidden = [name for name in facts if name not in SHOWN]
    return TextNode(
        id_=hit.chunk_id,
        text=hit.text,
        metadata=facts,
        excluded_embed_metadata_keys=list(facts),
        excluded_llm_metadata_keys=hidden,
    )
