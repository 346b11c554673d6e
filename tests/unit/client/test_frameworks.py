"""The retrievers in their own frameworks, and the tool as a model calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import MetadataMode, QueryBundle

from query_service.client import AsyncHeadwaterClient, HeadwaterClient, Unauthorized
from query_service.client.langchain import HeadwaterRetriever as LangChainRetriever
from query_service.client.llamaindex import HeadwaterRetriever as LlamaRetriever
from query_service.client.passages import NOTE, Passages, effect_of
from query_service.client.tools import SearchArguments, arun_tool_call, run_tool_call, search_tool
from schemas.api import Problem, SearchFilters, SearchResponse
from schemas.api_examples import SEARCH_RESPONSE
from tests.unit.client.both import BASE, Through
from tests.unit.query.world import Running, World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio
TEXT = "A refund reaches the customer's account within five working days."


def replying(body: Any = SEARCH_RESPONSE, status: int = 200) -> tuple[httpx.MockTransport, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(status, json=body)

    return httpx.MockTransport(handle), seen


@pytest.fixture
def scripted() -> Iterator[tuple[HeadwaterClient, AsyncHeadwaterClient, list[dict[str, Any]]]]:
    transport, seen = replying()
    with httpx.Client(transport=transport) as http:
        sync = HeadwaterClient(BASE, token="t", http=http)
        yield sync, AsyncHeadwaterClient(BASE, token="t", http=httpx.AsyncClient(transport=transport)), seen


def joined(documents: list[Document]) -> str:
    return "\n".join(d.page_content for d in documents)


def ann(run: Running, sub: str = "ann") -> AsyncHeadwaterClient:
    http = httpx.AsyncClient(transport=Through(run.client))
    return AsyncHeadwaterClient(BASE, token=run.world.token(sub), http=http)


# ---------------------------------------------------------------- LangChain


@pytest.mark.requirement("E3")
async def test_langchain_documents_and_metadata(scripted: Any) -> None:
    sync, aclient, seen = scripted
    retriever = LangChainRetriever(client=sync, aclient=aclient, k=4, options={"mode": "dense"})
    for found in (retriever.invoke("refunds"), await retriever.ainvoke("refunds")):
        assert [d.page_content for d in found] == [TEXT]
        assert found[0].id == found[0].metadata["chunk_id"]
        assert found[0].metadata["heading_path"] == ["Refunds", "How long it takes"]
        assert {"source", "url", "title", "version", "heading_path", "page", "score", "chunk_id"} <= set(
            found[0].metadata
        )
    retriever.invoke("refunds", k=1)
    assert [(s["k"], s["mode"]) for s in seen] == [(4, "dense"), (4, "dense"), (1, "dense")]
    chain = retriever | RunnableLambda(joined) | StrOutputParser()
    assert chain.invoke("refunds") == TEXT
    assert [d[0].page_content for d in retriever.batch(["a", "b"])] == [TEXT, TEXT]
    only_sync = LangChainRetriever(client=sync)
    assert [d.page_content for d in await only_sync.ainvoke("refunds")] == [TEXT]
    with pytest.raises(ValueError, match="client"):
        LangChainRetriever(aclient=aclient).invoke("refunds")
    assert "'t'" not in repr(retriever)


@pytest.mark.requirement("E3", "B1")
async def test_langchain_in_the_callers_scope(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("a", "the plan of the pump", rule=anyone("user:ann"))
    async with world.running() as run:
        found: list[Document] = await LangChainRetriever(aclient=ann(run)).ainvoke("plan")
        assert [d.id for d in found] == [chunk_id(ref("a"), "the plan of the pump")]
        assert await LangChainRetriever(aclient=ann(run, "bob")).ainvoke("plan") == []


# ---------------------------------------------------------------- LlamaIndex


@pytest.mark.requirement("E3")
async def test_llamaindex_nodes_with_scores(scripted: Any) -> None:
    sync, aclient, seen = scripted
    retriever = LlamaRetriever(sync, aclient, k=4, options={"filters": {"sources": ["wiki"]}})
    for found in (retriever.retrieve("refunds"), await retriever.aretrieve(QueryBundle("refunds"))):
        assert [(n.node.get_content(), n.score) for n in found] == [(TEXT, 0.91)]
        assert found[0].node.node_id == found[0].node.metadata["chunk_id"]
        shown = found[0].node.get_content(metadata_mode=MetadataMode.LLM)
        assert "Refunds" in shown and found[0].node.metadata["document_uid"] not in shown
        assert found[0].node.get_content(metadata_mode=MetadataMode.EMBED) == TEXT
    assert seen == [{"query": "refunds", "k": 4, "filters": {"sources": ["wiki"]}}] * 2
    assert SimilarityPostprocessor(similarity_cutoff=0.95).postprocess_nodes(retriever.retrieve("refunds")) == []
    assert len(await LlamaRetriever(sync).aretrieve("refunds")) == 1
    with pytest.raises(ValueError, match="client"):
        LlamaRetriever(None, aclient).retrieve("refunds")


@pytest.mark.requirement("E3", "B1")
async def test_llamaindex_in_the_callers_scope(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("a", "the plan of the pump", rule=anyone("user:ann"))
    async with world.running() as run:
        assert [n.node.get_content() for n in await LlamaRetriever(None, ann(run)).aretrieve("plan")] == [
            "the plan of the pump"
        ]
        assert await LlamaRetriever(None, ann(run, "bob")).aretrieve("plan") == []


# ---------------------------------------------------------------- the tool


def call(arguments: Any, name: str = "search_documents") -> dict[str, Any]:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": given}}


@pytest.mark.requirement("E3")
def test_the_definition_is_a_schema_and_strict_where_asked() -> None:
    for style in ("chat", "responses"):
        for strict in (False, True):
            made = search_tool(style=style, strict=strict)
            function = made["function"] if style == "chat" else made
            schema = function["parameters"]
            jsonschema.Draft202012Validator.check_schema(schema)
            assert (made["type"], function["name"]) == ("function", "search_documents")
            assert schema["additionalProperties"] is False
            assert set(schema["properties"]) == set(SearchArguments.model_fields)
            assert set(schema["required"]) == (set(SearchArguments.model_fields) if strict else {"query"})
            assert function.get("strict", False) is strict
            jsonschema.validate({"query": "x", **dict.fromkeys(set(schema["properties"]) - {"query"})}, schema)


@pytest.mark.requirement("E3")
def test_the_library_takes_the_definition_and_its_calls_are_run(scripted: Any) -> None:
    from openai.types.chat import ChatCompletionMessageToolCall
    from openai.types.responses import ResponseFunctionToolCall

    sync, _, seen = scripted
    given = json.dumps({"query": "refunds", "k": 3, "languages": ["en"], "updated_after": "2026-01-01"})
    chat = ChatCompletionMessageToolCall.model_validate(call(given))
    response = ResponseFunctionToolCall(arguments=given, call_id="c", name="search_documents", type="function_call")
    for made in (chat, response, chat.model_dump(), response.model_dump()):
        found = Passages.model_validate_json(run_tool_call(sync, made))
        assert [(p.id, p.text) for p in found.passages] == [("c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a", TEXT)]
        assert found.note == NOTE and found.complete_until == {"wiki": "2026-01-01T00:00:00Z"}
    filters = {"languages": ["en"], "updated_after": 1_767_225_600_000_000}
    assert seen[0] == {"query": "refunds", "k": 3, "filters": filters, "snippets": False}


@pytest.mark.requirement("E3", "B1")
def test_the_models_narrowing_stays_within_the_applications(scripted: Any) -> None:
    sync, _, seen = scripted
    fixed = SearchFilters(sources=("wiki", "desk"), updated_after=1_800_000_000_000_000)
    run_tool_call(sync, call({"query": "x", "sources": ["wiki", "hr"], "updated_after": "2020-01-01"}), filters=fixed)
    run_tool_call(sync, call({"query": "x"}), filters=fixed)
    assert [s["filters"] for s in seen] == [
        {"sources": ["wiki"], "updated_after": 1_800_000_000_000_000},
        {"sources": ["wiki", "desk"], "updated_after": 1_800_000_000_000_000},
    ]
    refused = json.loads(run_tool_call(sync, call({"query": "x", "sources": ["hr"]}), filters=fixed))
    assert "wiki, desk" in refused["error"] and len(seen) == 2


@pytest.mark.requirement("E3", "B1")
def test_a_model_may_choose_the_date_unless_the_application_has(scripted: Any) -> None:
    sync, _, seen = scripted
    fixed = SearchFilters(as_of=1_767_225_600_000_000)
    asked = {"query": "x", "as_of": "2026-01-01T01:00:00+01:00"}
    for filters in (None, fixed):
        run_tool_call(sync, call(asked), filters=filters)
    run_tool_call(sync, call({"query": "x"}), filters=fixed)
    assert [s["filters"] for s in seen] == [{"as_of": 1_767_225_600_000_000}] * 3
    refused = json.loads(run_tool_call(sync, call({"query": "x", "as_of": "2020-01-01"}), filters=fixed))
    assert refused == {"error": "as_of: is 2026-01-01T00:00:00Z here; leave it out"} and len(seen) == 3


@pytest.mark.requirement("E3", "A3")
@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [
        (None, 90, "no longer in effect since 1970-01-01T00:01:30Z"),
        (10, 90, "no longer in effect since 1970-01-01T00:01:30Z"),
        (110, 120, "not in effect before 1970-01-01T00:01:50Z"),
        (110, None, "not in effect before 1970-01-01T00:01:50Z"),
    ],
)
@pytest.mark.parametrize("times", [{"updated_at": 40_000_000, "version": 99_000_000}, {"version": 40_000_000}])
def test_a_passage_says_that_it_is_not_in_effect(
    begins: int | None, ends: int | None, said: str, times: dict[str, int]
) -> None:
    interval = {
        "effective_from": None if begins is None else begins * 1_000_000,
        "effective_until": None if ends is None else ends * 1_000_000,
    }
    hit = SearchResponse.model_validate(SEARCH_RESPONSE).hits[0]
    hit = hit.model_copy(update={"updated_at": None, "age_s": 60.0, **times, **interval})  # it is 00:01:40
    assert effect_of(hit) is None
    assert effect_of(hit.model_copy(update={"in_effect": False})) == said


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{not json", "arguments"), ({}, "query"), ({"query": ""}, "query"), ({"query": " "}, "query"),
        ({"query": "x", "k": 1000}, "k"), ({"query": "x", "tenant": "other"}, "tenant"), ("[]", "arguments"),
        ({"query": "x", "updated_after": "2026-02-01", "updated_before": "2026-01-01"}, "updated_before"),
        ({"query": "x", "updated_after": "yesterday"}, "updated_after"), ("", "query"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_told_to_the_model(scripted: Any, arguments: Any, said: str) -> None:
    sync, _, seen = scripted
    assert said in json.loads(run_tool_call(sync, call(arguments)))["error"]
    assert seen == []


@pytest.mark.requirement("E3")
async def test_what_no_model_can_mend_is_raised() -> None:
    for status, error in ((401, Unauthorized), (422, None), (404, None)):
        body = Problem(title="x", status=status, detail="No.").model_dump()
        client = HeadwaterClient(BASE, token="t", http=httpx.Client(transport=replying(body, status)[0]))
        if error is not None:
            with pytest.raises(error):
                run_tool_call(client, call({"query": "x"}))
        else:
            assert json.loads(run_tool_call(client, call({"query": "x"}))) == {"error": "No."}
    for wrong in (call({}, name="delete_all"), {}, None, {"function": {"name": "search_documents"}}):
        with pytest.raises(ValueError, match="call"):
            run_tool_call(client, wrong)
    with pytest.raises(ValueError, match="max_chars"):
        run_tool_call(client, call({"query": "x"}), max_chars=10)


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("max_chars", [1_000, 3_000, 12_000])
@pytest.mark.parametrize("filler", ["word ", '"\\\n\x01', "ключ ", "😀"])
async def test_output_is_bounded_and_says_what_is_missing(world: World, max_chars: int, filler: str) -> None:
    world.principal("user:ann")
    for i in range(6):
        world.document(f"d{i}", f"plan {i} " + filler * (4_000 // len(filler)), title="T" * 5_000)
    async with world.running() as run:
        out = await arun_tool_call(ann(run), call({"query": "plan"}), max_chars=max_chars)
    assert len(out) <= max_chars
    found = Passages.model_validate_json(out)
    assert len(found.passages) + found.left_out == 6
    assert found.left_out > 0
    assert all(len(p.text) >= 200 for p in found.passages)
