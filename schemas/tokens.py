"""Freshness tokens: names a write, so that a later search can wait until it holds it.

A token of few changes names documents and versions; one of many names positions on the log. It is opaque to clients
and grants nothing: it is neither signed nor trusted, and only ever makes an answer wait.
"""

from __future__ import annotations

import base64
import binascii

from pydantic import Field, ValidationError

from schemas.base import ClosedModel, Version
from schemas.keys import DocumentRef, TenantName
from schemas.topics import Topic

MAX_TOKEN = 16_384
"""Longest accepted token in characters."""
MAX_DOCUMENTS = 20
"""A token names documents up to this number, positions on the log above it."""


class TokenDocument(ClosedModel):
    """One document: visible when its content is at ``content`` or newer and its access record at ``access``."""

    kind: str
    id: str
    source: str
    content: Version = 0
    access: Version = 0

    def ref(self, tenant: str) -> DocumentRef:
        """The document's key."""
        return DocumentRef(tenant=tenant, source=self.source, kind=self.kind, id=self.id)


class TokenPosition(ClosedModel):
    """The last record written to one partition: reached when the lane's progress is beyond ``offset``."""

    topic: Topic
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)


class FreshnessToken(ClosedModel):
    """What was written by one request."""

    v: int = Field(default=1, ge=1, le=1)
    tenant: TenantName
    documents: tuple[TokenDocument, ...] = ()
    positions: tuple[TokenPosition, ...] = ()

    def encode(self) -> str:
        """URL-safe base64 of compact JSON, without padding."""
        raw = self.model_dump_json(exclude_defaults=True).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    @staticmethod
    def decode(text: str) -> FreshnessToken:
        """Read a token. Raises ValueError, whose text names no part of the input."""
        if len(text) > MAX_TOKEN:
            raise ValueError(f"a freshness token has at most {MAX_TOKEN} characters; send it as it was returned")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return FreshnessToken.model_validate_json(raw)
        except (binascii.Error, ValidationError, ValueError) as error:
            raise ValueError("this is not a freshness token; send it as it was returned") from error
