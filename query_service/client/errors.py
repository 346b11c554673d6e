"""What goes wrong, as exceptions. None of them holds a token, a header or what was asked."""

from __future__ import annotations

from schemas.api import FieldProblem


class HeadwaterError(Exception):
    """The request brought no usable answer.

    ``status`` is the HTTP status, None where no reply came; ``query_id`` names the query in the service's log.
    """

    def __init__(self, detail: str, *, status: int | None = None, query_id: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.query_id = query_id


class Unauthorized(HeadwaterError):
    """The token or key is missing, expired or not valid there (401)."""


class NotFound(HeadwaterError):
    """Absent, or not for this caller: the two cannot be told apart (404)."""


class InvalidRequest(HeadwaterError):
    """Fields that cannot be used (400, 409, 413, 422, or found before anything was sent). ``fields`` names them."""

    def __init__(
        self,
        detail: str,
        *,
        fields: tuple[FieldProblem, ...] = (),
        status: int | None = None,
        query_id: str | None = None,
    ) -> None:
        named = "; ".join(f"{f.field}: {f.problem}" for f in fields)
        super().__init__(f"{detail} {named}".strip() if named else detail, status=status, query_id=query_id)
        self.fields = fields


class _Later(HeadwaterError):
    """Asking again later may help. ``retry_after`` is in seconds, None where the service does not say."""

    def __init__(
        self,
        detail: str,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        query_id: str | None = None,
    ) -> None:
        super().__init__(detail, status=status, query_id=query_id)
        self.retry_after = retry_after


class TooManyRequests(_Later):
    """The caller's limit is reached (429)."""


class Unavailable(_Later):
    """The service, or something below it, does not answer at the moment (502, 503, 504, or no reply at all)."""


class UnexpectedReply(HeadwaterError):
    """A reply that is not this API's: another server listens at the address, or one of another version."""
