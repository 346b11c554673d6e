"""Sources against the whole product: reconcile, undo, backfill, remove, as operators do it on the command line."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from typer.testing import CliRunner

from infra import launcher
from infra.cli import build
from pipeline.bus.producer import KafkaAppender
from pipeline.index.store import WeaviateStore
from pipeline.ports import Outgoing
from schemas.access import AccessRule
from schemas.documents import AccessRecord
from schemas.events import AccessSet, ContentUpserted, InlineBody
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.e2e.test_folder import word
from tests.product import Product, until


class Operator:
    """Commands with ``--json``, on the product's settings."""

    def __init__(self, product: Product) -> None:
        self.product = product

    def __call__(self, *arguments: str, status: int = 0) -> Any:
        done = CliRunner().invoke(build(), ["sources", *arguments, "--json"])
        assert done.exit_code == status, (done.output, done.exception)
        return json.loads(done.stdout)

    def reconcile(self, *arguments: str) -> dict[str, Any]:
        """The one report."""
        (report,) = self("reconcile", "wiki", *arguments)
        assert report["problem"] is None
        return report  # type: ignore[no-any-return]


@pytest.fixture
def operator(product: Product, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setattr(launcher.Services, "endpoints", lambda self: product.endpoints)
    return Operator(product)


@pytest.fixture
def store(product: Product) -> Any:
    made = WeaviateStore(product.settings)
    yield made
    made.close()


@pytest.mark.requirement("F02", "A8")
def test_a_healthy_source_has_no_difference_and_the_list_shows_it(product: Product, operator: Operator) -> None:
    until(lambda: "eng/deploy.md" in product.found("ann", "pelican script"))
    report = operator.reconcile()
    listing, index = report["listing"], report["index"]
    # other tests of this product leave pages that cannot be read or indexed: only differences are judged
    assert listing["complete"] and min(listing["listed"], index["known"], index["manifests"]) > 1, report
    assert all(listing[name] == 0 for name in ("new", "stale", "missing", "held", "purged", "repaired"))
    assert all(index[name] == 0 for name in ("extra", "missing", "wrongly_readable", "wrongly_hidden", "behind"))
    (wiki,) = [s for s in operator("list") if s["source"] == "wiki"]
    assert wiki["configured"] and wiki["documents"] == listing["known"] and wiki["requests"] == []


@pytest.mark.requirement("F01", "F02", "A8")
def test_what_a_lost_log_left_behind_is_found_and_removed(product: Product, operator: Operator, store: Any) -> None:
    ghost, secret = DocumentRef(tenant="acme", source="wiki", id="ghost.md"), word()
    version = 1_700_000_000_000_000
    rule = AccessSet(
        document=ghost, version=version, content_version=version, rule=AccessRule.any_of("everyone"), observed_at=1
    )
    content = ContentUpserted(
        document=ghost, version=version, access_version=version, title="Ghost", content_type="text/plain",
        body=InlineBody(text=f"The ghost says {secret}."), observed_at=1,
    )  # fmt: skip
    appender = KafkaAppender(product.settings, "somebody.else")
    appender.append(
        [
            Outgoing(Topic.ACCESS, ghost.key, rule.model_dump_json().encode()),
            Outgoing(Topic.CONTENT, ghost.key, content.model_dump_json().encode()),
        ]
    )
    appender.close()
    until(lambda: product.found("bob", secret, mode="sparse"), 20, "the ghost is searchable")
    dry = operator.reconcile("--dry-run")
    assert (dry["index"]["extra"], dry["index"]["repaired"]) == (1, 0) and product.found("bob", secret, mode="sparse")
    report = operator.reconcile()["index"]
    assert (report["extra"], report["repaired"], report["examples"]["extra"]) == (1, 1, ["ghost.md"])
    until(lambda: not product.found("bob", secret, mode="sparse"), 20, "the ghost is gone")
    until(lambda: store.chunk_ids_of("minilm", ghost) == {"hot": set(), "cold": set()}, 20, "its chunks are gone")
    assert operator.reconcile()["index"]["extra"] == 0


@pytest.mark.requirement("A8", "I3")
def test_a_record_that_lets_too_many_in_is_found_and_narrowed(product: Product, operator: Operator, store: Any) -> None:
    page = DocumentRef(tenant="acme", source="wiki", id="eng/deploy.md")
    until(lambda: "eng/deploy.md" in product.found("ann", "pelican script"))
    known: AccessRecord = store.read_access("acme", [page.uid])[page.uid]
    wide = known.model_copy(update={"rule": AccessRule.any_of("everyone"), "version": known.version - 1})
    store.write_access("acme", [wide])
    report = operator.reconcile()["index"]
    assert (report["wrongly_readable"], report["repaired"]) == (1, 1)
    now = until(
        lambda: (found := store.read_access("acme", [page.uid])[page.uid]).version > known.version and found, 20
    )
    assert now.rule == known.rule
    assert operator.reconcile()["index"]["wrongly_readable"] == 0


@pytest.mark.requirement("F02", "A8", "D5")
def test_a_folder_that_is_away_is_hidden_and_one_command_shows_it_again(product: Product, operator: Operator) -> None:
    secret = word()
    for n in range(25):
        product.write(f"away/p{n}.md", f"# Page {n}\n\nThe word is {secret}.\n")
    until(lambda: len(product.found("bob", secret, mode="sparse", k=50)) == 25, 60, "all are searchable")
    product.kill("owner")
    shutil.move(product.folder / "away", product.base / "elsewhere")
    product.start("owner")
    until(lambda: not product.found("bob", secret, mode="sparse"), 40, "what is missing is hidden")
    holds = operator("holds", "wiki")
    (listing,) = {hold["by"] for hold in holds}
    assert len(holds) == 25 and all(hold["reason"] == "missing" and hold["purge_at"] for hold in holds)
    assert operator("undo", "wiki", listing)["released"] == 25
    until(lambda: len(product.found("bob", secret, mode="sparse", k=50)) == 25, 20, "all are visible again")
    assert operator.reconcile()["listing"]["missing"] == 25  # and stay so while they are away
    assert len(product.found("bob", secret, mode="sparse", k=50)) == 25
    purged = operator.reconcile("--confirm-deletions")
    assert purged["listing"]["purged"] == 25
    until(lambda: not product.found("bob", secret, mode="sparse"), 20, "they are deleted")


@pytest.mark.requirement("A10")
def test_a_backfill_embeds_nothing_again_and_a_document_is_said_again(product: Product, operator: Operator) -> None:
    listed = operator.reconcile()["listing"]["listed"]
    assert operator("backfill", "wiki")["repaired"] == listed
    assert operator("backfill", "wiki", "--until", "1990-01-01")["repaired"] == 0
    assert operator("backfill", "wiki", "--document", "index.md")["repaired"] == 1
    assert operator.reconcile()["index"]["missing"] == 0


@pytest.mark.requirement("A8", "F01")
def test_a_source_that_is_no_longer_configured_is_removed_whole(
    product: Product, operator: Operator, store: Any
) -> None:
    secret = word()
    change = {
        "type": "upsert", "tenant": "acme", "source": "news", "id": "n1", "title": "News", "text": f"Say {secret}.",
        "access": {"allow": ["everyone"]},
    }  # fmt: skip
    assert product.change(change, wait="searchable").status_code == 200
    uid = product.hits("bob", secret, mode="sparse")[0]["document_uid"]
    removed = operator("remove", "news", "--yes", "--take-over")
    assert removed["purged"] == 1
    until(lambda: not product.found("bob", secret, mode="sparse"), 20, "the source is gone")
    page = DocumentRef(tenant="acme", source="news", id="n1")
    assert page.uid == uid
    until(lambda: store.chunk_ids_of("minilm", page) == {"hot": set(), "cold": set()}, 20)
    assert "news" not in {s["source"] for s in operator("list")}
    until(lambda: "news" not in product.ask("bob", "lobby").json()["complete_until"], 20, "nobody waits for it")
    more = change | {"text": f"Say {secret} again."}  # the gateway was fenced, says so once, and takes it back
    until(lambda: product.change(more, wait="searchable").status_code == 200, 20)
    assert product.found("bob", secret, mode="sparse")
