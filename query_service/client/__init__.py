"""Python client of the query API. Needs httpx and pydantic, and nothing of the service.

``langchain``, ``llamaindex`` and ``tools`` in this folder fit it into those frameworks; each is imported by name.
"""

from query_service.client.clients import AsyncHeadwaterClient, HeadwaterClient
from query_service.client.errors import (
    HeadwaterError,
    InvalidRequest,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
)
from query_service.client.exchange import Retry

__all__ = [
    "AsyncHeadwaterClient",
    "HeadwaterClient",
    "HeadwaterError",
    "InvalidRequest",
    "NotFound",
    "Retry",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnexpectedReply",
]
