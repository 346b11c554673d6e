"""One line per query: ids, counts and times; no text of the query or of a passage, and principals only as a hash."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence

from query_service.scope import Scope
from schemas.access import Closure

log = logging.getLogger("headwater.query")


def principals_hash(closure: Closure) -> str:
    """Equal for equal sets of principals, of whichever caller."""
    joined = "\n".join(sorted(closure.principals)) + ("\n+" if closure.complete else "\n?")
    return hashlib.sha256(joined.encode("utf-8")).hexdigest()[:32]


def scope_reference(scope: Scope, secret: bytes) -> str:
    """A keyed hash of tenant and subject: resolved only by who holds the key and a list of subjects."""
    name = f"{scope.tenant}\n{scope.subject}".encode()
    return hashlib.blake2b(name, key=secret[:64], digest_size=16).hexdigest()


def write(
    query_id: str,
    scope: Scope,
    reference: str,
    closure: Closure | None,
    hits: Sequence[tuple[str, str, float]],
    fields: Mapping[str, object],
) -> None:
    """Log a query; ``hits`` are (chunk id, document uid, fused score) of what was shown."""
    line: dict[str, object] = {
        "query_id": query_id,
        "tenant": scope.tenant,
        "scope": reference,
        "principals_sha256": principals_hash(closure) if closure is not None else None,
        "principals": len(closure.principals) if closure is not None else 0,
        "hits": [[chunk, document, round(score, 6)] for chunk, document, score in hits],
        **fields,
    }
    log.info("query", extra={"fields": line})
