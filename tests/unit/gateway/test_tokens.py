"""Freshness tokens."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tokens import FreshnessToken, TokenDocument, TokenPosition
from schemas.topics import Topic


@given(st.text(min_size=1, max_size=50), st.integers(0, 2**53 - 1))
def test_what_is_written_is_read(id_: str, version: int) -> None:
    try:
        id_.encode()
    except UnicodeEncodeError:
        return
    token = FreshnessToken(
        tenant="acme",
        documents=(TokenDocument(kind="page", id=id_, source="kb", content=version),),
        positions=(TokenPosition(topic=Topic.MEMBERSHIP, partition=3, offset=9),),
    )
    text = token.encode()
    assert FreshnessToken.decode(text) == token
    assert text.isascii() and not set(text) & set("+/=")


@pytest.mark.parametrize(
    "text",
    ["", "x", "????", "e30", base64.urlsafe_b64encode(b'{"tenant":"a","more":1}').decode(), "A" * 20_000, "é", "a b"],
)
def test_what_is_none_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="freshness token") as raised:
        FreshnessToken.decode(text)
    assert len(str(raised.value)) < 120
