"""What is wrong with a request: problem+json that names field and remedy and repeats nothing of what was sent."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from schemas.api import FieldProblem
from schemas.api_changes import ChangesProblem

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
_TAGS = ("upsert", "delete", "access", "membership")


class Refused(Exception):
    """A request that is not served, as it is answered."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        token: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = ChangesProblem(title=title, status=status, detail=detail, errors=tuple(errors), token=token)
        self.retry_after = retry_after


def unauthorized(detail: str) -> Refused:
    """401."""
    return Refused(401, "Not authorised", detail)


def too_large(limit: int) -> Refused:
    """413 for the request as a whole."""
    return Refused(413, "Too large", f"A request has at most {limit} bytes (gateway.max_bytes); send fewer changes.")


def unavailable(detail: str, seconds: int = 2) -> Refused:
    """503: nothing is lost, the same request may be sent again."""
    return Refused(503, "Temporarily unavailable", detail, retry_after=seconds)


def field_problem(field: str, problem: str) -> FieldProblem:
    """One field."""
    return FieldProblem(field=field, problem=problem)


def invalid(errors: Sequence[FieldProblem]) -> Refused:
    """422 with its fields. Nothing of the request was written."""
    shown = ", ".join(e.field for e in errors[:3])
    more = f" and {len(errors) - 3} more" if len(errors) > 3 else ""
    detail = f"Nothing was written. Correct {shown}{more} and send the request again."
    return Refused(422, "Not understood", detail, errors=errors[:MAX_ERRORS])


def of_validation(error: ValidationError, *, single: bool) -> Refused:
    """The fields of a failed validation, e.g. ``changes[2].access.allow[0]``."""
    found = []
    items = error.errors(include_url=False, include_input=False, include_context=False)
    for item in items:
        loc = item["loc"]
        if item["type"] == "too_short" and any(o is not item and o["loc"][: len(loc)] == loc for o in items):
            continue  # short only because its entries failed
        message = str(item["msg"]).removeprefix("Value error, ")
        if item["type"].startswith("union_tag"):
            loc = (*loc, "type")
        if item["type"] == "union_tag_invalid":
            message = f"must be one of {', '.join(_TAGS)}"
        elif item["type"] == "union_tag_not_found":
            message = f"is missing; it is one of {', '.join(_TAGS)}"
        elif item["type"] == "extra_forbidden":
            message = "is not known here; remove it"
        found.append(field_problem(_path(loc, single=single), message))
    return invalid(found)


def _path(loc: tuple[int | str, ...], *, single: bool) -> str:
    out = ""
    for place, part in enumerate(loc):
        if place == 0 and isinstance(part, int):
            out = "" if single else f"changes[{part}]"
        elif place == 1 and part in _TAGS:
            continue  # which kind of change it was taken for
        elif isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else str(part)
    return out or ("changes" if not single else "change")
