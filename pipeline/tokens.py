"""Signing tokens of the query service, where its secret is ours and not an identity provider's."""

from __future__ import annotations

import time
from typing import Any

ALGORITHM = "HS256"
OPERATOR = "operator"
"""Role that may look at the index as a whole: shadow searches, proofs of deletions."""
EVALUATOR = "evaluator"
"""Role that may read the query log of its tenant and resolve whom its references mean."""
ROLES = (OPERATOR, EVALUATOR)


def sign(
    secret: str, subject: str, tenant: str, seconds: float, *, audience: str, issuer: str | None, **claims: Any
) -> tuple[str, int]:
    """A token for one person of one tenant, and its expiry in seconds since the epoch."""
    import jwt

    now = int(time.time())
    expires = now + max(1, int(seconds))
    payload = {"sub": subject, "tenant": tenant, "aud": audience, "iat": now, "exp": expires, **claims}
    if issuer:
        payload["iss"] = issuer
    return jwt.encode(payload, secret, algorithm=ALGORITHM), expires
