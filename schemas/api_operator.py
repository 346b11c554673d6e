"""Contracts of the operator's routes: for tokens with the role ``operator``, absent for all others."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from schemas.api import SearchRequest
from schemas.base import ClosedModel, name_fault


def _subject(value: str) -> str:
    fault = name_fault(value)
    if fault is not None:
        raise ValueError(f"a person's name {fault}")
    return value


Subject = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_subject)]


class OperatorSearch(ClosedModel):
    """A search of any generation as a person of the token's tenant would see it; answered as a search is.

    The person's own groups count, and nothing of the operator's; the token's dates and products bound it too.
    """

    seen_as: Subject = Field(description="The person: ann, as in `user:ann` of the access rules.")
    generation: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")
    request: SearchRequest
