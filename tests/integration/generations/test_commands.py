"""A whole life of a generation by the command line, over the real processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pipeline.bus.groups import committed_offsets
from pipeline.index.store import WeaviateStore
from tests.integration.generations.conftest import Operator
from tests.product import Product, until


def ask_all_the_time(product: Product, stop: threading.Event, answers: list[tuple[float, str, set[str]]]) -> None:
    """Searches whose answers name their generation."""
    while not stop.is_set():
        reply = product.ask("ann", "yellow heron statue")
        assert reply.status_code == 200, reply.text
        found = reply.json()
        answers.append((time.monotonic(), found["generation"], {hit["document_id"] for hit in found["hits"]}))


@pytest.mark.timeout(900)
@pytest.mark.requirement("A10", "I7", "E6")
def test_a_generation_from_its_declaration_to_its_end(product: Product, operator: Operator, declaration: Path) -> None:
    product.settings.state_dir.mkdir(exist_ok=True)
    until(lambda: "eng/deploy.md" in product.found("ann", "pelican script"), 40, "the first pages are found")
    assert operator.states() == {"minilm": "active"}

    # what it will take is said before anything is made
    planned = operator.do("create", "other", "--file", str(declaration), "--dry-run")
    assert planned["created"] is False and planned["estimate"]["documents"] >= 2
    assert planned["estimate"]["chunks_per_second"] > 0 and planned["estimate"]["minutes"] is not None
    assert "encoder.document_instruction:  -> passage: " in planned["changes"]
    assert operator.states() == {"minilm": "active"}
    shown = operator.ask("create", "other", "--file", str(declaration), "--dry-run", plain=True)
    assert shown.status == 0 and all(word in shown.out for word in ("documents", "minutes", "money", "open files"))
    unasked = operator.ask("create", "other", "--file", str(declaration))
    assert unasked.status == 1 and "--yes" in unasked.json["remedy"]

    operator.do("create", "other", "--file", str(declaration), "--yes")
    early = operator.ask("activate", "other")
    assert early.status == 1 and "building; only a ready or standby one" in early.json["error"]

    built = operator.do("build", "other")
    assert (built["state"], built["stopped"]) == ("ready", False)
    unproven = operator.ask("activate", "other")
    assert unproven.status == 1 and "never verified" in unproven.json["error"]

    report = operator.do("verify", "other")
    assert report["verdict"]["passed"], report["verdict"]
    until(lambda: all(q["warm"] for q in operator.do("show", "other")["query_services"]), 40, "the encoder is warm")

    # from now on every change goes to both
    product.write("eng/new.md", "# New\n\nThe cassowary enclosure opens at nine.\n")
    until(lambda: "eng/new.md" in product.found("ann", "cassowary enclosure"), 20)
    until(lambda: operator.do("show", "other")["behind"] == 0, 20, "the new one is kept up")

    stop, answers = threading.Event(), list[tuple[float, str, set[str]]]()
    asking = threading.Thread(target=ask_all_the_time, args=(product, stop, answers))
    asking.start()
    try:
        done = operator.do("activate", "other")
        at = time.monotonic()
        assert done["details"]["checks"]["report"]["holds"] and done["details"]["before"] == "minilm"
        until(lambda: answers[-1][1] == "other", 5)
        assert next(moment for moment, name, _ in answers if name == "other") - at < 2
    finally:
        stop.set()
        asking.join(10)
    names = [name for _, name, _ in answers]
    assert names == sorted(names, key=["minilm", "other"].index), "the switch went back and forth"
    assert all("index.md" in found for _, _, found in answers)
    assert "eng/new.md" in product.found("ann", "cassowary enclosure")
    assert "eng/new.md" not in product.found("bob", "cassowary enclosure")
    assert operator.states() == {"minilm": "standby", "other": "active"}

    stale = operator.ask("activate", "minilm", "--expected-active", "minilm")
    assert stale.status == 1 and "other is active by now" in stale.json["error"]

    # back, and there again by override; then the former one goes
    assert operator.do("rollback")["generation"] == "minilm"
    until(lambda: product.ask("ann", "heron").json()["generation"] == "minilm", 5)
    again = operator.do("activate", "other", "--override", "seen before")
    assert again["generation"] == "other"
    assert operator.ask("retire", "other", "--yes").status == 1
    until(lambda: product.ask("ann", "heron").json()["generation"] == "other", 5)

    def retired() -> bool:
        said = operator.ask("retire", "minilm", "--yes")
        assert said.status == 0 or "try again in a moment" in said.json["error"], said
        return said.status == 0

    until(retired, 15, "nothing runs on the former generation")
    until(lambda: "index.minilm" not in committed_offsets(product.settings), 40, "its group is deleted")
    until(lambda: operator.do("show", "minilm")["dropped_at"], 40, "its collections are dropped")
    freed = operator.do("show", "minilm")["freed"]
    assert freed["documents"] >= 3 and freed["chunks"] >= 3 and freed["bytes"] > 0
    store = WeaviateStore(product.settings)
    try:
        assert not any("_minilm" in name for name in store.footprint().objects)
        assert any("_other" in name for name in store.footprint().objects)
    finally:
        store.close()
    assert "eng/new.md" in product.found("ann", "cassowary enclosure")
    missing = operator.ask("show", "nothing")
    assert missing.status == 1 and "minilm, other" in missing.json["remedy"]
    listed = operator.ask("list", plain=True)
    assert listed.status == 0 and "other" in listed.out and "retired" in listed.out
