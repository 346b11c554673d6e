"""LangChain: a retriever over a client. Needs the extra ``langchain``."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from query_service.client.clients import AsyncHeadwaterClient, HeadwaterClient
from query_service.client.passages import metadata
from schemas.api import SearchResponse


class HeadwaterRetriever(BaseRetriever):
    """Passages as ``Document``s, best first: ``id`` is the chunk's, ``metadata`` has source, url, title, version,
    heading_path, page, score and the ids.

    With ``client`` it is invoked, with ``aclient`` awaited; without ``aclient`` awaiting uses ``client`` in a thread.
    ``options`` are further fields of a search; a call may give its own: ``retriever.invoke(query, k=3)``.
    Raises ``query_service.client.HeadwaterError``.
    """

    client: HeadwaterClient | None = None
    aclient: AsyncHeadwaterClient | None = None
    k: int = Field(default=10, ge=1, le=100)
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **fields: Any
    ) -> list[Document]:
        if self.client is None:
            raise ValueError("client: the retriever has none that blocks; give one, or await it")
        return _documents(self.client.search(query, **{"k": self.k, **self.options, **fields}))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **fields: Any
    ) -> list[Document]:
        if self.aclient is None:
            from langchain_core.runnables import run_in_executor

            manager = run_manager.get_sync()
            return await run_in_executor(
                None, lambda: self._get_relevant_documents(query, run_manager=manager, **fields)
            )
        return _documents(await self.aclient.search(query, **{"k": self.k, **self.options, **fields}))


def _documents(reply: SearchResponse) -> list[Document]:
    return [Document(id=hit.chunk_id, page_content=hit.text, metadata=metadata(hit)) for hit in reply.hits]
