"""What is wrong with a request is said in the words of those who send JSON over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.query.test_app import problem
from tests.unit.query.world import World

JSON = {"Content-Type": "application/json"}
pytestmark = pytest.mark.anyio


@pytest.mark.requirement("E3")
async def test_what_is_wrong_is_said_in_the_words_of_json(world: World) -> None:
    world.principal("user:ann")

    async def said(run: Any, **sent: Any) -> dict[str, str]:
        reply = await run.client.post("/v1/search", headers={**run.headers(), **sent.pop("headers", {})}, **sent)
        return {e.field: e.problem for e in problem(reply, 422).errors}

    async with world.running() as run:
        found = await said(run, json={"query": "x", "filters": {"sources": "wiki"}})
        assert found == {"filters.sources": 'give a list, as in ["…"]'}
        assert (await said(run, json={"filters": 5})) == {
            "query": "this field is required", "filters": "give an object, as in {…}",
        }  # fmt: skip
        long = await said(run, json={"query": "x", "filters": {"languages": ["en"] * 101}})
        assert "list" in long["filters.languages"] and "uple" not in long["filters.languages"]
        for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
            found = await said(run, content=b'{"query": "x"}', headers=headers)
            assert list(found) == ["Content-Type"] and "application/json" in found["Content-Type"]
        assert list(await said(run, json=[])) == ["body"]
        for nothing in ("", " ", "\u200b"):
            assert list(await said(run, json={"query": nothing})) == ["query"], "nothing that can be seen"
        assert "The text should" in (await said(run, json={"query": ""}))["query"]
        assert (await said(run, content=b'{"query": "a \\ud83d"}', headers=JSON))["query"] == "must be valid Unicode"
        for unreadable in (b'{"query": "\xff"}', b"[" * 5000):
            reply = await run.client.post("/v1/search", content=unreadable, headers=run.headers() | JSON)
            assert "JSON in UTF-8" in problem(reply, 400).detail
        for given, told in ((world.token(), "lacks the word Bearer"), ("Bearer", "none after the word Bearer")):
            reply = await run.client.get("/v1/freshness", headers={"Authorization": given})
            assert told in problem(reply, 401).detail and world.token() not in reply.text
