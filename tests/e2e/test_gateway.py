"""Changes over HTTP: signed, durable before 2xx, applied when asked, and read back by a freshness token."""

from __future__ import annotations

import time
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.product import Product, until


def person(name: str, *parents: str) -> dict[str, Any]:
    return {"type": "membership", "tenant": "acme", "principal": f"user:{name}", "parents": list(parents)}


def page(name: str, text: str, *allow: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "upsert", "tenant": "acme", "id": name, "title": name, "text": text, "content_type": "text/markdown",
        "access": {"allow": list(allow)}, **more,
    }  # fmt: skip


def fresh() -> str:
    return f"g{uuid4().hex[:12]}"


@pytest.mark.requirement("A1", "A8")
def test_a_change_is_found_by_its_freshness_token(product: Product) -> None:
    name = fresh()
    product.change(person("gina", "group:gw"), wait="applied")
    answer = product.change(page(name, f"The word {name} stands here.", "group:gw"))
    assert answer.status_code in (200, 202), answer.text
    token = answer.json()["token"]
    found = product.ask("gina", name, after=token, wait_ms=5000).json()
    assert found["fresh"] is True
    assert [h["document_id"] for h in found["hits"]][:1] == [name]


@pytest.mark.requirement("A8", "D5", "I4")
def test_after_wait_applied_nothing_revoked_is_served(product: Product) -> None:
    name = fresh()
    product.change(person("gina", "group:gw"), wait="applied")
    token = product.change(page(name, f"The word {name}.", "group:gw")).json()["token"]
    assert product.ask("gina", name, after=token, wait_ms=5000).json()["hits"]
    for round_ in range(10):
        rule = {"type": "access", "tenant": "acme", "id": name}
        gone = product.change({**rule, "access": {"allow": ["user:somebody"]}}, wait="applied")
        assert gone.status_code == 200, gone.text
        assert name not in product.found("gina", name), f"round {round_}"
        back = product.change({**rule, "access": {"allow": ["group:gw"]}}, wait="applied")
        assert back.status_code == 200
        until(lambda: name in product.found("gina", name), 10)
    assert product.change({"type": "delete", "tenant": "acme", "id": name}, wait="applied").status_code == 200
    assert name not in product.found("gina", name)


@pytest.mark.requirement("A8", "I3", "I4")
def test_old_text_is_never_shown_to_readers_who_came_with_its_redaction(product: Product) -> None:
    name, old = fresh(), fresh()
    product.change(person("gina", "group:gw"), person("hana", "group:hw"), wait="applied")
    first = product.change(page(name, f"Secret {old}.", "group:gw")).json()["token"]
    assert product.ask("gina", old, after=first, wait_ms=5000).json()["hits"]
    change = page(name, f"Public {name}.", "group:gw", "group:hw", redacted=True)
    token = product.change(change, wait="applied").json()["token"]
    seen: list[str] = []
    while not (answer := product.ask("hana", name, after=token, wait_ms=50).json())["fresh"]:
        seen += [h["text"] for h in product.hits("hana", old)]
    assert [h["document_id"] for h in answer["hits"]] == [name]
    seen += [h["text"] for h in product.hits("hana", old)]
    assert not any(old in text for text in seen)
    restored = product.change(
        {"type": "delete", "tenant": "acme", "id": name}, page(name, f"Again {name}.", "group:hw")
    )
    product.ask("hana", name, after=restored.json()["token"], wait_ms=5000)
    assert not any(old in h["text"] for h in product.hits("hana", old))


def both(product: Product, name: str, tenant: str) -> list[dict[str, Any]]:
    hits = product.hits("gina", name, tenant=tenant, mode="sparse")
    return hits if len(hits) == 2 else []


@pytest.mark.requirement("I3", "A8")
def test_the_same_id_in_two_tenants_and_two_sources_is_four_documents(product: Product) -> None:
    name = fresh()
    for tenant in ("acme", "globex"):
        for source in ("one", "two"):
            text = f"{name} of {tenant} {source}"
            change = {**page(name, text, "user:gina"), "tenant": tenant, "source": source}
            answer = product.change({**person("gina"), "tenant": tenant, "source": source}, change)
            assert answer.status_code in (200, 202), answer.text
    for tenant in ("acme", "globex"):
        hits = until(partial(both, product, name, tenant), 15)
        assert {h["text"].split()[2] for h in hits} == {tenant}
        assert {h["source"] for h in hits} == {"one", "two"}
    product.change({"type": "delete", "tenant": "acme", "source": "one", "id": name}, wait="applied")
    assert {h["source"] for h in product.hits("gina", name, mode="sparse")} == {"two"}
    assert len(product.hits("gina", name, tenant="globex", mode="sparse")) == 2


@pytest.mark.requirement("A6")
def test_the_same_change_twice_appends_nothing(product: Product) -> None:
    name = fresh()
    change = page(name, f"Once {name}.", "user:gina")
    first = product.change(change).json()
    second = product.change(change).json()
    assert first["token"] == second["token"]


@pytest.mark.requirement("A1")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "upsert", "tenant": "acme", "id": "x", "title": "t"}, "text"),
        ({"type": "upsert", "tenant": "a b", "id": "x", "title": "t", "text": "t"}, "tenant"),
        ({"type": "nonsense"}, "type"),
        ({"type": "access", "tenant": "acme", "id": "x", "access": {"allow": ["bob"]}}, "access"),
    ],
)
def test_wrong_input_names_the_field_and_changes_nothing(product: Product, change: dict[str, Any], field: str) -> None:
    name = fresh()
    answer = product.change(page(name, f"good {name}", "user:gina"), change)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert field in answer.text
    assert product.hits("gina", name, mode="sparse") == []


@pytest.mark.requirement("A8")
def test_an_unsigned_or_wrongly_signed_request_is_refused(product: Product) -> None:
    name = fresh()
    answer = product.change(page(name, name, "user:gina"), secret="another secret")
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("application/problem+json")


@pytest.mark.requirement("B2")
def test_exact_identifiers_rank_above_their_near_twins(product: Product) -> None:
    base = fresh()
    twins = {
        f"{base}-1": "The X-500-G2 probe is calibrated monthly. X-500-G2 needs a torque of 4 Nm.",
        f"{base}-2": "The X-500-G3 probe is calibrated monthly. X-500-G3 needs a torque of 5 Nm.",
        f"{base}-3": "Call fs.readFileSync to read a file and wait.",
        f"{base}-4": "Call fs.readFile to read a file and go on.",
        f"{base}-5": "Release v2.4.18-rc1 fixed the rounding.",
        f"{base}-6": "Release v2.4.18 fixed the rounding.",
        f"{base}-7": "Exit code 0xC0000005 means an access violation.",
        f"{base}-8": "The browser shows ERR_CONNECTION_TIMED_OUT.",
    }
    source = {"source": base}
    product.change({**person("gina"), **source})
    changes = [{**page(name, text, "user:gina"), **source} for name, text in twins.items()]
    token = product.change(*changes).json()["token"]
    product.ask("gina", "x", after=token, wait_ms=10_000)
    for query, expected in {
        "torque of X-500-G3": f"{base}-2",
        "X-500-G2": f"{base}-1",
        "how to use fs.readFile": f"{base}-4",
        "fs.readFileSync": f"{base}-3",
        "what changed in v2.4.18": f"{base}-6",
        "v2.4.18-rc1": f"{base}-5",
        "0xC0000005": f"{base}-7",
        "ERR_CONNECTION_TIMED_OUT": f"{base}-8",
    }.items():
        hits = product.hits("gina", query, filters={"sources": [base]})
        assert hits[0]["document_id"] == expected, query


@pytest.mark.requirement("A3", "I6")
def test_a_chunk_that_an_edit_elsewhere_kept_names_the_section_that_holds_it_now(product: Product) -> None:
    name = fresh()
    kept = f"The kept sentence of {name} stands in the first part. " * 12
    before, after = "The old ending of the page says this. " * 12, "A new ending of the page says that. " * 12
    text = "# Page\n\n## First\n\n{}\n\n## Second\n\n{}\n"
    product.change(person("gina", "group:gw"), wait="applied")
    product.change(page(name, text.format(kept, before), "group:gw"), wait="searchable")
    token = product.change(page(name, text.format(kept, after), "group:gw"), wait="searchable").json()["token"]
    time.sleep(6)  # what was replaced is removed by now
    answer = product.ask("gina", f"kept sentence {name}", after=token, wait_ms=5000).json()
    hit = next(h for h in answer["hits"] if h["document_id"] == name and "kept sentence" in h["text"])
    document = product.get(f"/v1/documents/{hit['document_uid']}", "gina").json()
    sections = {s["section_id"]: s["text"] for s in document["sections"]}
    assert "kept sentence" in sections[hit["section_id"]]
    assert [s["ordinal"] for s in document["sections"]] == list(range(len(sections)))
